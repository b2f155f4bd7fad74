#pragma once
#include <meso/core/tiles.hpp>
#include <meso/layer/activation.hpp>

namespace meso {

/// Columns of the pre-activation for `hidden` outputs: twice as many for a gated activation, gate then up.
template <class A>
constexpr Index preactivation_width(Index hidden) {
  return A::gated ? 2 * hidden : hidden;
}

/// y = f(x) or y = f(gate, up) on the calling thread; shapes as for activation_forward, nothing is checked here.
template <class A, class S>
void activation_forward_tile(const A& activation, const View<const S>& x, const View<S>& y) {
  for (Index i = 0; i < y.rows; ++i) {
    if constexpr (A::gated)
      activation.forward(array(x.row(i), y.cols), array(x.row(i) + y.cols, y.cols), row_array(y, i));
    else
      activation.forward(row_array(x, i), row_array(y, i));
  }
}

/// dx of y = f(x) on the calling thread; shapes as for activation_backward, nothing is checked here.
template <class A, class S>
void activation_backward_tile(const A& activation, const View<const S>& x, const View<const S>& dy, const View<S>& dx) {
  for (Index i = 0; i < dy.rows; ++i) {
    if constexpr (A::gated)
      activation.backward(array(x.row(i), dy.cols), array(x.row(i) + dy.cols, dy.cols), row_array(dy, i),
                          array(dx.row(i), dy.cols), array(dx.row(i) + dy.cols, dy.cols));
    else
      activation.backward(row_array(x, i), row_array(dy, i), row_array(dx, i));
  }
}

/// y = f(x) element-wise, or y = f(gate, up) with x = [gate | up]. Shapes: y (tokens, hidden), x (tokens, hidden or
/// 2·hidden). Error: the policy's. Throws: std::invalid_argument on a shape mismatch.
template <class Products, class A, class S>
void activation_forward(CpuContext<Products>& context, const A& activation, const ConstView<S>& x, const View<S>& y) {
  check_shape("activation_forward", "x", x, y.rows, preactivation_width<A>(y.cols));
  const RowTiles tiles = RowTiles::of(y.rows, y.cols);
  parallel_for(context, tiles.count(), [&](Index t, Index) {
    const RowTile tile = tiles[t];
    activation_forward_tile<A, S>(activation, x.row_range(tile.first, tile.count), y.row_range(tile.first, tile.count));
  });
}

/// dx = the gradient at x of y = f(x). Shapes as for activation_forward, dx as x, dy as y. Error: the policy's.
/// Throws: std::invalid_argument on a shape mismatch.
template <class Products, class A, class S>
void activation_backward(CpuContext<Products>& context, const A& activation, const ConstView<S>& x,
                         const ConstView<S>& dy, const View<S>& dx) {
  check_shape("activation_backward", "x", x, dy.rows, preactivation_width<A>(dy.cols));
  check_same_shape("activation_backward", "x", x, "dx", dx);
  const RowTiles tiles = RowTiles::of(dy.rows, dy.cols);
  parallel_for(context, tiles.count(), [&](Index t, Index) {
    const RowTile tile = tiles[t];
    const auto rows = [&](const auto& view) { return view.row_range(tile.first, tile.count); };
    activation_backward_tile<A, S>(activation, rows(x), rows(dy), rows(dx));
  });
}

}  // namespace meso
