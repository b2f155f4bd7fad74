#pragma once
// What a Transformer needs of a device's memory, before anything is allocated. No Eigen.
#include <algorithm>
#include <cmath>

#include <meso/core/accumulate.hpp>
#include <meso/model/layout.hpp>

namespace meso {

/// Bytes of a model's parts. Real numbers, since of sizes too large for any memory the product overflows an integer.
struct TransformerMemory {
  double weights = 0;  ///< one buffer of its layout; gradients and each moment of an optimizer take the same again
  double layout = 0;   ///< names and shapes of one layout, which weights, gradients and optimizer have a copy of
  double cache = 0;    ///< what `forward` keeps
  double scratch = 0;  ///< gradients of activations in `backward`
};

/// Σ measure(layout) of a model of any number of layers, from layouts of one and of two: a block adds the same each
/// time. For sums over parameters and for ParameterLayout::size; exact up to 2⁵³.
/// Throws: std::invalid_argument as the constructor of Transformer does.
template <class A, class Measure>
double measure_layout(TransformerConfig<A> c, Measure&& measure) {
  c = completed(c);
  const double layers = static_cast<double>(c.layers);
  const auto of = [&](Index few) {
    c.layers = few;
    return static_cast<double>(measure(declare_parameters(c).layout));
  };
  const double one = of(1);
  return layers == 1 ? one : one + (layers - 1) * (of(2) - one);
}

/// Bytes on the CPU of a Transformer<S, A> and of a step on `sequences` sequences of `time` tokens.
/// Error: weights exact; cache and scratch at most 64 B a tensor too low (padding); layout about. The packed operands of
/// products and the tiles of attention are left out: some MB, and a thread some hundred scalars a token of a sequence,
/// with a whole-matrix normalizer 4·time.
/// Throws: std::invalid_argument as the constructor of Transformer does.
template <class S, class A>
TransformerMemory transformer_memory(const TransformerConfig<A>& config, Index sequences, Index time) {
  const TransformerConfig<A> c = completed(config);
  const auto real = [](Index size) { return static_cast<double>(size); };
  const double width = real(c.width), qkv = width + 2 * real(c.key_value_heads) * real(c.width / c.heads);
  const double hidden = real(c.mlp_width), up = A::Mlp::gated ? 2 * hidden : hidden, vocabulary = real(c.vocabulary);
  const double tokens = real(sequences) * real(time), layers = real(c.layers);
  // As place_views lays them out: residual, norm1, heads, middle, norm2, qkv, up, hidden; and what the norms save.
  const double kept = layers * (5 * width + qkv + up + hidden) + 2 * width + vocabulary;
  const double saved = (2 * layers + 1) * real(A::Norm::saved_per_row);
  // attention_backward splits key-value heads that are few among tasks, each with its own dk and dv.
  const double heads = real(sequences) * real(c.key_value_heads);
  const double tasks = (std::min)(std::ceil(real(time) / 64), std::ceil(16 / (std::max)(1.0, heads)));
  const double split = tasks > 1 ? tasks * (qkv - width) : 0;
  const double gradients = 4 * width + qkv + hidden + up + vocabulary + split;
  TransformerMemory bytes;
  bytes.weights = sizeof(Accumulator<S>) * measure_layout(c, [](const ParameterLayout& l) { return l.size(); });
  // A ParameterInfo, a node of the index and two copies of the name.
  bytes.layout = 256 * measure_layout(c, [](const ParameterLayout& l) { return l.count(); });
  bytes.cache = tokens * (sizeof(S) * kept + sizeof(Accumulator<S>) * saved);
  bytes.scratch = tokens * sizeof(S) * gradients;
  return bytes;
}

}  // namespace meso
