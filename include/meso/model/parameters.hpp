#pragma once
#include <cmath>

#include <meso/core/random.hpp>
#include <meso/model/config.hpp>

namespace meso {

/// GPT-2's initialization: weights and embeddings N(0, 0.02²), the two projections that write to the residual stream
/// (attention.output, mlp.down) divided by √(2·layers), biases 0, norms and normalizers by their own initialize.
/// Every parameter has the random stream of its name, so that models that share a parameter share its values.
/// Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), §2.3.
template <class A, class S>
void initialize_parameters(const TransformerConfig<A>& c, const TransformerParameters& p, Parameters<S>& values) {
  values.values.fill(S(0));
  for (Index i = 0; i < p.layout.count(); ++i) {
    const ParameterInfo& info = p.layout[i];
    if (info.kind == ParameterKind::matrix || info.kind == ParameterKind::embedding)
      fill_normal(values[i], Random{c.seed, stream_of(info.name)}, 0.02);
  }
  const S residual = static_cast<S>(1.0 / std::sqrt(2.0 * static_cast<double>(c.layers)));
  const auto norm = [&](Index i) {
    if (i >= 0) c.norm.initialize(c.width, array(values[i].data, c.norm.parameter_count(c.width)));
  };
  for (const BlockParameters& b : p.blocks) {
    map(values[b.output]) *= residual;
    map(values[b.down]) *= residual;
    norm(b.norm1);
    norm(b.norm2);
    if (b.normalizer >= 0) initialize_normalizer(c.normalizer, c.heads, c.context, values[b.normalizer].data);
  }
  norm(p.final_norm);
}

}  // namespace meso
