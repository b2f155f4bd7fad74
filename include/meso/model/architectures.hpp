#pragma once
#include <meso/attention/position.hpp>
#include <meso/layer/gelu.hpp>
#include <meso/layer/swiglu.hpp>
#include <meso/model/config.hpp>
#include <meso/norm/layer_norm.hpp>
#include <meso/norm/rms_norm.hpp>
#include <meso/normalizer/softmax.hpp>
#include <meso/normalizer/softmax1.hpp>

namespace meso {

/// GPT-2: LayerNorm, learned positions, GELU, biases, a tied head.
/// Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019).
struct Gpt2 {
  using Normalizer = Softmax;
  using Norm = LayerNorm;
  using Position = LearnedPosition;
  using Mlp = Gelu;
  static constexpr bool bias = true;
};

/// GPT-2 whose heads may attend to nothing: the first half of Kaul et al., ICLR 2025.
struct Gpt2Softmax1 : Gpt2 {
  using Normalizer = Softmax1;
};

/// Llama: RMSNorm, rotary positions, SwiGLU, no biases, an own head.
/// Source: Touvron et al., "Llama 2" (2023).
struct Llama {
  using Normalizer = Softmax;
  using Norm = RmsNorm;
  using Position = Rotary;
  using Mlp = SwiGlu;
  static constexpr bool bias = false;
  static constexpr bool tied = false;
};

struct LlamaSoftmax1 : Llama {
  using Normalizer = Softmax1;
};

/// The shapes of GPT-2 for the sizes that Kaul et al. name (vocabulary 50,257, sequences of 256). The paper names sizes
/// by their number of parameters; 130M and 350M are GPT-2's published small and medium shapes, 60M and 1.4B are the
/// usual ones at that size.
template <class A = Gpt2>
struct PaperSizes {
  static TransformerConfig<A> of(Index layers, Index heads, Index width) {
    TransformerConfig<A> c;
    c.vocabulary = 50257;
    c.context = 256;
    c.layers = layers;
    c.heads = heads;
    c.width = width;
    return c;
  }
  static TransformerConfig<A> size_60m() { return of(10, 8, 512); }
  static TransformerConfig<A> size_130m() { return of(12, 12, 768); }
  static TransformerConfig<A> size_350m() { return of(24, 16, 1024); }
  static TransformerConfig<A> size_1_4b() { return of(26, 16, 2048); }
};

}  // namespace meso
