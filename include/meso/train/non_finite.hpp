#pragma once
#include <string>

#include <meso/model/decoder.hpp>

namespace meso {

/// Where NaN or Inf first appeared, in the order of the forward pass: the first parameter that is not finite, else the
/// first activation of the cache; an empty string if all is finite. For a run that has failed already: on a GPU it waits
/// for the device at every tensor.
template <class Context, class S, class A, class Device>
std::string first_non_finite(Context& context, const Transformer<S, A, Device>& model,
                             const TransformerCache<S, Device>& cache) {
  const auto finite = [&](const auto& x) { return all_finite(context, x); };
  const auto& parameters = model.parameters();
  for (Index i = 0; i < parameters.layout.count(); ++i)
    if (!finite(parameters[i])) return "parameter " + parameters.layout[i].name;
  if (!finite(cache.residual.front())) return "embedding";
  for (std::size_t l = 0; l < cache.blocks.size(); ++l) {
    const BlockCache<S, Device>& b = cache.blocks[l];
    const auto named = [&](const char* name) { return "layer " + std::to_string(l + 1) + ", " + name; };
    if (!finite(b.norm1)) return named("norm1");
    if (!finite(b.qkv)) return named("attention.query/key/value");
    if (!finite(b.heads)) return named("attention.heads");
    if (!finite(b.middle)) return named("residual after attention");
    if (!finite(b.norm2)) return named("norm2");
    if (!finite(b.up)) return named("mlp.up");
    if (!finite(b.hidden)) return named("mlp.hidden");
    if (!finite(cache.residual[l + 1])) return named("residual after the MLP");
  }
  if (!finite(cache.final_norm)) return "final_norm";
  if (!finite(cache.logits)) return "logits";
  return {};
}

}  // namespace meso
