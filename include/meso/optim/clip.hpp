#pragma once
#include <algorithm>
#include <cmath>
#include <meso/core/context.hpp>
#include <meso/core/parameter.hpp>
#include <meso/optim/clip_scale.hpp>
#include <meso/optim/tiles.hpp>

namespace meso {

namespace detail {

/// Σ x² in double: eight interleaved sums, added in order.
template <class S>
double sum_of_squares(const S* x, Index size) {
  constexpr Index lanes = 8;
  double sum[lanes] = {};
  Index i = 0;
  for (; i + lanes <= size; i += lanes) {
    for (Index l = 0; l < lanes; ++l) {
      const double value = static_cast<double>(x[i + l]);
      sum[l] += value * value;
    }
  }
  for (Index l = 0; i < size; ++i, ++l) sum[l] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  double total = 0;
  for (const double s : sum) total += s;
  return total;
}

}  // namespace detail

/// Euclidean norm of all gradients together, those of frozen parameters left out: √Σ g². Flags are those of `layout`.
/// Numerics: sums in double per fixed tile, tiles added in order: the same bits for any number of threads.
/// Error: relative, ≤ (tile/16 + tiles + 8)·2⁻⁵³. A float gradient cannot overflow.
/// Throws: std::invalid_argument when the layouts differ in size.
template <class Products, class S>
double global_norm(CpuContext<Products>& context, const Parameters<S>& gradients, const ParameterLayout& layout) {
  check(layout.count() == gradients.layout.count() && layout.size() == gradients.values.size(),
        "global_norm: the layout has ", layout.count(), " parameters in ", layout.size(),
        " elements but the gradients are ", gradients.layout.count(), " in ", gradients.values.size());
  const auto tiles = detail::element_tiles(context, layout);
  const auto partials = context.workspace.template take<double>(tiles.size());
  parallel_for(context, tiles.size(), [&](Index t, Index) {
    const detail::ElementTile tile = tiles.data()[t];
    partials.data()[t] =
        detail::sum_of_squares(gradients.values.data() + layout[tile.parameter].offset + tile.first, tile.count);
  });
  double sum = 0;
  for (Index t = 0; t < tiles.size(); ++t) sum += partials.data()[t];
  return std::sqrt(sum);
}

template <class Products, class S>
double global_norm(CpuContext<Products>& context, const Parameters<S>& gradients) {
  return global_norm(context, gradients, gradients.layout);
}

}  // namespace meso
