#pragma once
// What meso::train asks of a model on the device.
#include <cmath>
#include <string>
#include <vector>

#include <meso/cuda/clip.cuh>
#include <meso/cuda/transformer.cuh>

namespace meso::cuda {

namespace detail {

template <class F>
struct NonFiniteElement {
  View<const F> x;
  int* flag;
  __device__ void operator()(Index i, Index j) const {
    const Compute<F> value = load(x(i, j));
    if (!(value - value == Compute<F>(0))) *flag = 1;
  }
};

template <class F>
bool all_finite(Context& context, const View<const F>& x) {
  const auto flag = context.workspace.template take<int>(1);
  clear(context, flag.data(), 1);
  for_elements(context, "all_finite", NonFiniteElement<F>{x, flag.data()}, x.rows, x.cols);
  int found = 0;
  download(context, flag.data(), 1, &found);
  return found == 0;
}

}  // namespace detail

/// Where NaN or Inf first appeared, as meso::first_non_finite. It waits for the device many times: for a run that has
/// failed already.
template <class S, class A>
std::string first_non_finite(Context& context, const Transformer<S, A, Cuda>& model, const TransformerCache<S>& cache) {
  const auto finite = [&]<class T>(const View<T>& x) { return detail::all_finite<std::remove_const_t<T>>(context, x); };
  const auto& parameters = model.parameters();
  for (Index i = 0; i < parameters.layout.count(); ++i)
    if (!finite(parameters[i])) return "parameter " + parameters.layout[i].name;
  if (!finite(cache.residual.front())) return "embedding";
  for (std::size_t l = 0; l < cache.blocks.size(); ++l) {
    const BlockCache<S>& b = cache.blocks[l];
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

}  // namespace meso::cuda
