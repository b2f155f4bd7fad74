#pragma once
// A linear layer and what stands next to it in a block, on the CPU. On a GPU: meso/cuda/fused_linear.cuh.
#include <meso/core/parameter.hpp>
#include <meso/layer/float_linear.hpp>
#include <meso/layer/linear.hpp>
#include <meso/layer/mlp.hpp>

namespace meso {

/// y = residual + x wᵀ + bias, by a linear policy (see FloatLinear); weight and bias are numbers in `parameters`.
/// Shapes: x (tokens, in), residual, y (tokens, out). Error: the policy's and u·|y|.
/// Throws: std::invalid_argument on a shape mismatch.
template <class Linear, class Products, class S>
void linear_residual_forward(CpuContext<Products>& context, const Linear& linear, const Parameters<S>& parameters,
                             Index weight, Index bias, const ConstView<S>& x, const ConstView<S>& residual,
                             const View<S>& y) {
  check_same_shape("linear_residual_forward", "residual", residual, "y", y);
  linear(context, parameters, weight, Index{1}, bias, x, y);
  const RowTiles tiles = RowTiles::of(y.rows, y.cols);
  parallel_for(context, tiles.count(), [&](Index t, Index) {
    map(y.row_range(tiles[t].first, tiles[t].count)) += map(residual.row_range(tiles[t].first, tiles[t].count));
  });
}

/// u = x wᵀ + bias by a linear policy, y = f(u); a gated activation has two adjacent weights and biases, gate and up.
/// Numerics: f in the epilogue of the product if it is element-wise and the policy takes one.
/// Shapes: x (tokens, in), y (tokens, hidden), u (tokens, hidden or 2·hidden). Error: the policies'.
/// Throws: std::invalid_argument on a shape mismatch.
template <class Linear, class A, class Products, class S>
void linear_activation_forward(CpuContext<Products>& context, const Linear& linear, const A& activation,
                               const Parameters<S>& parameters, Index weight, Index bias, const ConstView<S>& x,
                               const View<S>& u, const View<S>& y) {
  const auto epilogue = [&](const View<S>& tile, Index i, Index j) {
    activation_forward_tile(activation, View<const S>(tile), y.block(i, j, tile.rows, tile.cols));
  };
  if constexpr (!A::gated && requires { linear(context, parameters, weight, Index{1}, bias, x, u, epilogue); }) {
    check_same_shape("linear_activation_forward", "u", u, "y", y);
    linear(context, parameters, weight, Index{1}, bias, x, u, epilogue);
  } else {
    linear(context, parameters, weight, Index{A::gated ? 2 : 1}, bias, x, u);
    activation_forward(context, activation, u, y);
  }
}

/// Backward of z = f(u) wᵀ + bias, y = f(u): dy = dz w, du = dy ∘ f'(u), dw = dzᵀ y, dbias = Σ_tokens dz.
/// Numerics: du in the epilogue of dz w if f is element-wise. dy, du are written; dw, dbias (null: none) written or
/// added to.
/// Shapes: y, dy (tokens, hidden), u, du (tokens, hidden or 2·hidden), w, dw (out, hidden), dz (tokens, out).
/// Error: as linear_backward, and the policy's of du. Throws: std::invalid_argument on a shape mismatch.
template <class A, class Products, class S>
void activation_linear_backward(CpuContext<Products>& context, const A& activation, const ConstView<S>& u,
                                const ConstView<S>& y, const ConstView<S>& w, const ConstView<S>& dz, const View<S>& dy,
                                const View<S>& du, const std::type_identity_t<View<S>>& dw,
                                std::type_identity_t<S>* dbias, Accumulate accumulate) {
  if constexpr (A::gated) {
    linear_backward(context, y, w, dz, dy, dw, dbias, accumulate);
    activation_backward(context, activation, u, dy, du);
  } else {
    check_same_shape("activation_linear_backward", "u", u, "du", du);
    check_same_shape("activation_linear_backward", "y", y, "du", du);
    linear_backward(context, y, w, dz, dy, dw, dbias, accumulate, [&](const View<S>& tile, Index i, Index j) {
      activation_backward_tile(activation, View<const S>(u.block(i, j, tile.rows, tile.cols)), View<const S>(tile),
                               du.block(i, j, tile.rows, tile.cols));
    });
  }
}

}  // namespace meso
