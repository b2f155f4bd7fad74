#pragma once
#include <cmath>

#include <meso/core/random.hpp>
#include <meso/model/layout.hpp>

namespace meso {

/// GPT-2's initialization: weights and embeddings N(0, 0.02²), the two projections that write to the residual stream
/// (attention.output, mlp.down) divided by √(2·layers), biases 0, norms and normalizers by their own initialize.
/// Every parameter has the random stream of its name, so that models that share a parameter share its values.
/// Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), §2.3.
template <class S, class A, class Norm, class Normalizer>
Parameters<S> initial_parameters(const TransformerConfig<A>& c, const TransformerParameters& p, const Norm& norm,
                                 const Normalizer& normalizer) {
  Parameters<S> values(p.layout);
  for (Index i = 0; i < p.layout.count(); ++i) {
    const ParameterInfo& info = p.layout[i];
    if (info.kind == ParameterKind::matrix || info.kind == ParameterKind::embedding)
      fill_normal(values[i], Random{c.seed, stream_of(info.name)}, 0.02);
  }
  const S residual = static_cast<S>(1.0 / std::sqrt(2.0 * static_cast<double>(c.layers)));
  const auto scale = [&](Index number) {
    const View<S> w = values[number];
    for (Index k = 0; k < w.size(); ++k) w.data[k] *= residual;
  };
  const auto fill_norm = [&](Index number) {
    if (number >= 0)
      initialize_norm(norm, c.width, contiguous_view(values[number].data, 1, norm.parameter_count(c.width)));
  };
  for (const BlockParameters& b : p.blocks) {
    scale(b.output);
    scale(b.down);
    fill_norm(b.norm1);
    fill_norm(b.norm2);
    if constexpr (Normalizer::parameters_per_head > 0)
      initialize_normalizer(normalizer, c.heads, c.context, values[b.normalizer]);
  }
  fill_norm(p.final_norm);
  return values;
}

}  // namespace meso
