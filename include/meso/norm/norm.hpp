#pragma once
#include <concepts>
#include <string>

#include <meso/core/accumulate.hpp>
#include <meso/core/eigen.hpp>
#include <meso/core/parameter.hpp>
#include <meso/core/tiles.hpp>

namespace meso {

/// A policy that normalizes one token. Its parameters are one contiguous run theta.
/// Members of a norm N, for scalar S:
///   static constexpr Index saved_per_row;             scalars kept a row for the backward pass (mean, 1/std, …)
///   Index parameter_count(width);                     length of theta
///   Index declare(layout, prefix, width);             adds theta's parameters, adjacent; returns the first one's number, −1 if none
///   initialize(width, theta);                         initial values
///   forward (theta, x, y, saved);                     one row
///   backward(theta, x, saved, dy, dx, dtheta);        dx =, dtheta +=
/// All runs are Array<S> or ConstArray<S> (Eigen maps, passed by value).
template <class N, class S>
concept Norm = requires(const N n, ConstArray<S> in, Array<S> out, ParameterLayout& layout, const std::string& name) {
  { N::saved_per_row } -> std::convertible_to<Index>;
  { n.parameter_count(Index{}) } -> std::convertible_to<Index>;
  { n.declare(layout, name, Index{}) } -> std::convertible_to<Index>;
  n.initialize(Index{}, out);
  n.forward(in, in, out, out);
  n.backward(in, in, in, in, out, out);
};

/// Fills theta by the norm's own initialize. Shapes: theta (1, parameter_count(width)).
template <class N, class S>
void initialize_norm(const N& norm, Index width, const View<S>& theta) {
  norm.initialize(width, array(theta.data, theta.cols));
}

/// y = norm(x) for every row.
/// Shapes: x, y (tokens, width), saved (tokens, N::saved_per_row), theta parameter_count(width) values.
/// Throws: std::invalid_argument on a shape mismatch.
template <class Products, class N, class S>
void norm_forward(CpuContext<Products>& context, const N& norm, const S* theta, const ConstView<S>& x, const View<S>& y,
                  const View<S>& saved) {
  check_same_shape("norm_forward", "x", x, "y", y);
  check_shape("norm_forward", "saved", saved, x.rows, N::saved_per_row);
  const RowTiles tiles = RowTiles::of(x.rows, x.cols);
  const ConstArray<S> parameters = array(theta, norm.parameter_count(x.cols));
  parallel_for(context, tiles.count(), [&](Index t, Index) {
    const RowTile tile = tiles[t];
    for (Index i = tile.first; i < tile.first + tile.count; ++i)
      norm.forward(parameters, row_array(x, i), row_array(y, i), row_array(saved, i));
  });
}

/// dx = residual + ∂/∂x of y = norm(x); dtheta = or += the gradient of the parameters.
/// `residual` may be an empty view; it is the gradient that reaches x on a path around the norm.
/// Shapes: x, dy, dx, residual (tokens, width), saved (tokens, N::saved_per_row), dtheta parameter_count(width) values.
/// Error: dx that of the policy and u·|dx|; dtheta ≤ (rows of a tile + tiles)·u·Σ|terms| on top of the policy's terms.
/// Throws: std::invalid_argument on a shape mismatch.
/// Numerics: dtheta is summed per fixed row tile, the tiles in order: the same bits for any number of threads.
template <class Products, class N, class S>
void norm_backward(CpuContext<Products>& context, const N& norm, const S* theta, const ConstView<S>& x,
                   const ConstView<S>& saved, const ConstView<S>& dy, const ConstView<S>& residual, const View<S>& dx,
                   S* dtheta, Accumulate accumulate) {
  check_same_shape("norm_backward", "x", x, "dy", dy);
  check_same_shape("norm_backward", "x", x, "dx", dx);
  check_shape("norm_backward", "saved", saved, x.rows, N::saved_per_row);
  if (residual.data) check_same_shape("norm_backward", "x", x, "residual", residual);
  const Index count = norm.parameter_count(x.cols);
  const RowTiles tiles = RowTiles::of(x.rows, x.cols);
  const auto scratch = context.workspace.template take<S>(tiles.count() * padded<S>(count));
  const View<S> partials{scratch.data(), tiles.count(), count, padded<S>(count)};
  const ConstArray<S> parameters = array(theta, count);
  parallel_for(context, tiles.count(), [&](Index t, Index) {
    const RowTile tile = tiles[t];
    Array<S> partial = row_array(partials, t);
    partial.setZero();
    for (Index i = tile.first; i < tile.first + tile.count; ++i) {
      norm.backward(parameters, row_array(x, i), row_array(saved, i), row_array(dy, i), row_array(dx, i), partial);
      if (residual.data) row_array(dx, i) += row_array(residual, i);
    }
  });
  sum_partials<S>(partials, dtheta, accumulate == Accumulate::yes);
}

}  // namespace meso
