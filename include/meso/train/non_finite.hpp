#pragma once
#include <string>

#include <meso/model/transformer.hpp>

namespace meso {

namespace detail {
template <class T>
bool all_finite(const View<T>& x) {
  for (Index i = 0; i < x.rows; ++i)
    if (!row_array(x, i).isFinite().all()) return false;
  return true;
}
}  // namespace detail

/// Where NaN or Inf first appeared, in the order of the forward pass: the first parameter that is not finite, else the
/// first activation of the cache; an empty string if all is finite.
template <class S, class A>
std::string first_non_finite(const Transformer<S, A>& model, const TransformerCache<S>& cache) {
  const Parameters<S>& parameters = model.parameters();
  for (Index i = 0; i < parameters.layout.count(); ++i)
    if (!detail::all_finite(parameters[i])) return "parameter " + parameters.layout[i].name;
  if (!detail::all_finite(cache.residual.front())) return "embedding";
  for (std::size_t l = 0; l < cache.blocks.size(); ++l) {
    const BlockCache<S>& b = cache.blocks[l];
    const auto named = [&](const char* name) { return "layer " + std::to_string(l + 1) + ", " + name; };
    if (!detail::all_finite(b.norm1)) return named("norm1");
    if (!detail::all_finite(b.qkv)) return named("attention.query/key/value");
    if (!detail::all_finite(b.heads)) return named("attention.heads");
    if (!detail::all_finite(b.middle)) return named("residual after attention");
    if (!detail::all_finite(b.norm2)) return named("norm2");
    if (!detail::all_finite(b.up)) return named("mlp.up");
    if (!detail::all_finite(b.hidden)) return named("mlp.hidden");
    if (!detail::all_finite(cache.residual[l + 1])) return named("residual after the MLP");
  }
  if (!detail::all_finite(cache.final_norm)) return "final_norm";
  if (!detail::all_finite(cache.logits)) return "logits";
  return {};
}

}  // namespace meso
