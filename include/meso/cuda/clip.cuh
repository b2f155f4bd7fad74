#pragma once
#include <cmath>

#include <meso/cuda/norm.cuh>
#include <meso/cuda/parameter.hpp>

namespace meso::cuda {

namespace detail {

inline constexpr Index norm_tile = 16384;

template <class C>
__global__ void __launch_bounds__(256) square_sums_kernel(const C* x, Index count, double* partials) {
  MESO_DYNAMIC_SHARED(memory);
  double* const scratch = reinterpret_cast<double*>(memory);
  const Index first = static_cast<Index>(blockIdx.x) * norm_tile;
  const Index last = first + norm_tile < count ? first + norm_tile : count;
  double sum = 0;
  for (Index i = first + static_cast<Index>(threadIdx.x); i < last; i += 256) {
    const double value = static_cast<double>(x[i]);
    sum += value * value;
  }
  sum = block_reduce(sum, scratch, Sum{});
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

}  // namespace detail

/// Euclidean norm of all gradients together, those of frozen parameters left out: √Σ g², as meso::global_norm. Waits
/// for the number. Flags are those of `layout`.
/// Error: relative, ≤ (80 + ⌈elements/2²²⌉)·2⁻⁵³. The same bits in every run.
/// Throws: std::invalid_argument when the layouts differ in size.
template <class C>
double global_norm(Context& context, const Parameters<C>& gradients, const ParameterLayout& layout) {
  meso::check(layout.count() == gradients.layout.count() && layout.size() == gradients.values.size(),
              "global_norm: the layout has ", layout.count(), " parameters in ", layout.size(),
              " elements but the gradients are ", gradients.layout.count(), " in ", gradients.values.size());
  const auto runs = [&](auto&& f) {
    detail::for_runs(
        layout, [](Index, Index) { return true; }, f);
  };
  Index tiles = 0;
  runs([&](Index, Index, Index count) { tiles += (count + detail::norm_tile - 1) / detail::norm_tile; });
  const auto partials = context.workspace.template take<double>(tiles + 1);
  Index tile = 0;
  runs([&](Index, Index offset, Index count) {
    const unsigned blocks = blocks_for(count, detail::norm_tile);
    launch(context, "global_norm", {{blocks}, {256}, sizeof(double) * 32}, detail::square_sums_kernel<C>,
           gradients.values.data() + offset, count, partials.data() + tile);
    tile += blocks;
  });
  launch(context, "global_norm", {{1}, {256}, sizeof(double) * 32}, detail::sum_kernel<double>, partials.data(), tiles,
         partials.data() + tiles, false);
  double sum = 0;
  download(context, partials.data() + tiles, 1, &sum);
  return std::sqrt(sum);
}
template <class C>
double global_norm(Context& context, const Parameters<C>& gradients) {
  return global_norm(context, gradients, gradients.layout);
}

}  // namespace meso::cuda
