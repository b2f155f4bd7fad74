#pragma once
#include <meso/model.hpp>
#include <vector>

#include "../support.hpp"

namespace bench {

/// A model of the size of the training step.
template <class Architecture>
meso::TransformerConfig<Architecture> step_config() {
  meso::TransformerConfig<Architecture> c;
  c.vocabulary = vocabulary;
  c.width = width;
  c.layers = layers;
  c.heads = heads;
  c.context = context_length;
  return c;
}

/// The models that the ladder trains, at 64 tokens: 4 layers of width 128 on bytes, 16 sequences a step, and 1 layer of
/// width 64 on the 28 symbols of Bigram-Backcopy, 32 sequences.
template <class Architecture>
meso::TransformerConfig<Architecture> small_config(Index of_width) {
  auto c = step_config<Architecture>();
  const bool text = of_width == 128;
  c.vocabulary = text ? 256 : 28;
  c.width = of_width;
  c.layers = c.heads = text ? 4 : 1;
  c.context = 64;
  return c;
}
inline Index small_batch(Index of_width) { return of_width == 128 ? 16 : 32; }

inline std::vector<meso::Token> random_tokens(Index count, std::uint64_t stream, Index below = vocabulary) {
  std::vector<meso::Token> drawn(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < drawn.size(); ++i)
    drawn[i] = static_cast<meso::Token>(meso::Random{1, stream}.below(i, below));
  return drawn;
}

/// Operations that a step needs: 6 a token and weight of the linear layers, and 6 products of attention over the causal
/// half. What a backward pass computes twice does not count.
template <class Architecture>
double step_flops(const meso::Transformer<float, Architecture>& model, Index sequences) {
  const auto& config = model.config();
  Index weights = 0;
  for (const meso::ParameterInfo& p : model.parameters().layout)
    weights += p.kind == meso::ParameterKind::matrix ? p.size() : 0;
  if constexpr (meso::detail::tied_head<Architecture>()) weights += config.vocabulary * config.width;
  const Index attention = config.layers * config.width * (config.context + 1);
  return 6.0 * static_cast<double>(sequences * config.context) * static_cast<double>(weights + attention);
}

}  // namespace bench
