#pragma once
// A linear layer and what stands next to it in a block: as meso/layer/fused_linear.hpp.
#include <meso/cuda/activation.cuh>
#include <meso/cuda/linear.cuh>
#include <meso/cuda/parameter.hpp>
#include <meso/layer/float_linear.hpp>

namespace meso::cuda {

namespace detail {

/// y = x wᵀ without the bias, which the next kernel adds; the packed neighbors of `weight` as one matrix.
template <class T>
void weight_product(Context& context, const Parameters<T>& parameters, Index weight, const View<const T>& x,
                    const View<T>& y) {
  const View<const T> first = parameters[weight];
  gemm<T, T>(context, x, View<const T>{first.data, y.cols, first.cols, first.stride}, y, {.transpose_b = true});
}
template <class T>
const T* bias_data(const Parameters<T>& parameters, Index bias) {
  return bias < 0 ? nullptr : parameters[bias].data;
}

}  // namespace detail

/// y = residual + x wᵀ + bias by a linear policy, as meso::linear_residual_forward: for FloatLinear bias and residual in
/// one pass. Shapes: x (tokens, in), residual, y (tokens, out). Error: as gemm and add.
/// Throws: std::invalid_argument on a shape mismatch.
template <class Linear, class T>
void linear_residual_forward(Context& context, const Linear& linear, const Parameters<T>& parameters, Index weight,
                             Index bias, const ConstView<T>& x, const ConstView<T>& residual, const View<T>& y) {
  if constexpr (std::is_same_v<Linear, FloatLinear>) {
    detail::weight_product<T>(context, parameters, weight, x, y);
    add<T>(context, detail::bias_data(parameters, bias), residual, y);
  } else {
    linear(context, parameters, weight, Index{1}, bias, x, y);
    add<T>(context, nullptr, residual, y);
  }
}

/// u = x wᵀ + bias by a linear policy, y = f(u), as meso::linear_activation_forward: for FloatLinear bias and f in one
/// pass. Shapes: x (tokens, in), y (tokens, hidden), u (tokens, hidden or 2·hidden). Error: as gemm and
/// bias_activation_forward. Throws: std::invalid_argument on a shape mismatch.
template <class Linear, class A, class T>
void linear_activation_forward(Context& context, const Linear& linear, const A& activation,
                               const Parameters<T>& parameters, Index weight, Index bias, const ConstView<T>& x,
                               const View<T>& u, const View<T>& y) {
  if constexpr (std::is_same_v<Linear, FloatLinear>) {
    detail::weight_product<T>(context, parameters, weight, x, u);
    bias_activation_forward<A, T>(context, activation, u, detail::bias_data(parameters, bias), y);
  } else {
    linear(context, parameters, weight, Index{A::gated ? 2 : 1}, bias, x, u);
    activation_forward<A, T>(context, activation, u, y);
  }
}

/// Backward of z = f(u) wᵀ + bias, y = f(u), as meso::activation_linear_backward.
/// Shapes: y, dy (tokens, hidden), u, du (tokens, hidden or 2·hidden), w, dw (out, hidden), dz (tokens, out).
/// Error: as linear_backward and activation_backward. Throws: std::invalid_argument on a shape mismatch.
template <class A, class T>
void activation_linear_backward(Context& context, const A& activation, const ConstView<T>& u, const ConstView<T>& y,
                                const ConstView<T>& w, const ConstView<T>& dz, const View<T>& dy, const View<T>& du,
                                const View<Compute<std::type_identity_t<T>>>& dw,
                                Compute<std::type_identity_t<T>>* dbias, Accumulate accumulate) {
  linear_backward<T>(context, y, w, dz, dy, dw, dbias, accumulate);
  activation_backward<A, T>(context, activation, u, dy, du);
}

}  // namespace meso::cuda
