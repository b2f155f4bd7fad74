#pragma once
#include <meso/cuda/math.cuh>

namespace meso::cuda {

/// GELU, the exact one: y = x·Φ(x); dx = dy·(Φ(x) + x·φ(x)). Error: as meso::Gelu.
struct Gelu {
  static constexpr bool on_device = true, gated = false;

  template <class C>
  static __device__ C forward(C x) {
    return C(0.5) * x * (C(1) + detail::error_function(x * C(0.70710678118654752440)));
  }
  template <class C>
  static __device__ C backward(C x, C dy) {
    // y = x·Φ(x)
    return dy * (C(0.5) * (C(1) + detail::error_function(x * C(0.70710678118654752440))) +
                 x * C(0.39894228040143267794) * detail::exponential(C(-0.5) * x * x));
  }
};

/// GELU by tanh, as x·σ(2v): see meso::GeluTanh for equation and error.
struct GeluTanh {
  static constexpr bool on_device = true, gated = false;

  template <class C>
  static __device__ C forward(C x) {
    return x * gate(x);
  }
  template <class C>
  static __device__ C backward(C x, C dy) {
    const C s = gate(x);
    // y = x·s, s = σ(2v)
    return dy * (s - s * (C(1) - s) * x * (linear<C>() + C(3) * cubic<C>() * x * x));
  }

 private:
  template <class C>
  static __device__ C linear() {
    return C(-2 * 0.79788456080286535588);
  }
  template <class C>
  static __device__ C cubic() {
    return C(-2 * 0.79788456080286535588 * 0.044715);
  }
  template <class C>
  static __device__ C gate(C x) {
    return C(1) / (C(1) + detail::exponential(x * (linear<C>() + cubic<C>() * x * x)));
  }
};

/// ReLU: y = max(x, 0); dx = 1[x > 0]·dy. NaN comes out as NaN. Error: none.
struct Relu {
  static constexpr bool on_device = true, gated = false;

  template <class C>
  static __device__ C forward(C x) {
    return x < C(0) ? C(0) : x;
  }
  template <class C>
  static __device__ C backward(C x, C dy) {
    // y = max(x, 0)
    return x > C(0) ? dy : x <= C(0) ? C(0) : x;
  }
};

/// SwiGLU: y = g·σ(g)·up. Error: as meso::SwiGlu.
struct SwiGlu {
  static constexpr bool on_device = true, gated = true;

  template <class C>
  static __device__ C forward(C gate, C up) {
    return gate / (C(1) + detail::exponential(-gate)) * up;
  }
  template <class C>
  static __device__ void backward(C gate, C up, C dy, C& dgate, C& dup) {
    const C s = C(1) / (C(1) + detail::exponential(-gate));
    // y = g·σ(g)·up
    dup = dy * gate * s;
    dgate = dy * up * s * (C(1) + gate * (C(1) - s));
  }
};

/// Columns of the pre-activation for `hidden` outputs: twice as many for a gated activation, gate then up.
template <class A>
constexpr Index preactivation_width(Index hidden) {
  return A::gated ? 2 * hidden : hidden;
}

namespace detail {

template <class A, class T>
struct ActivationForward {
  View<T> x;
  const T* bias;
  View<T> y;

  __device__ Compute<T> biased(Index i, Index j) const {
    if (!bias) return load(x(i, j));
    store(x(i, j), load(x(i, j)) + load(bias[j]));
    return load(x(i, j));  // as rounded: what backward will read
  }
  __device__ void operator()(Index i, Index j) const {
    if constexpr (A::gated)
      store(y(i, j), A::forward(biased(i, j), biased(i, y.cols + j)));
    else
      store(y(i, j), A::forward(biased(i, j)));
  }
};

template <class A, class T>
struct ActivationBackward {
  View<const T> x, dy;
  View<T> dx;

  __device__ void operator()(Index i, Index j) const {
    if constexpr (A::gated) {
      Compute<T> dgate, dup;
      A::backward(load(x(i, j)), load(x(i, dy.cols + j)), load(dy(i, j)), dgate, dup);
      store(dx(i, j), dgate);
      store(dx(i, dy.cols + j), dup);
    } else {
      store(dx(i, j), A::backward(load(x(i, j)), load(dy(i, j))));
    }
  }
};

}  // namespace detail

/// x += bias (null: none) for every row, then y = f(x), or y = f(gate, up) with x = [gate | up], in one pass.
/// Shapes: x (tokens, hidden or 2·hidden), y (tokens, hidden), bias x.cols values.
/// Error: u·|x| of the sum, and the policy's at the rounded x, and one rounding to T.
/// Throws: std::invalid_argument on a shape mismatch.
template <class A, class T>
void bias_activation_forward(Context& context, const A&, const View<T>& x, const std::type_identity_t<T>* bias,
                             const View<T>& y) {
  check_shape("activation_forward", "x", x, y.rows, preactivation_width<A>(y.cols));
  detail::for_elements(context, "activation_forward", detail::ActivationForward<A, T>{x, bias, y}, y.rows, y.cols);
}

/// y = f(x), as meso::activation_forward.
template <class A, class T>
void activation_forward(Context& context, const A& activation, const ConstView<T>& x, const View<T>& y) {
  bias_activation_forward(context, activation, View<T>{const_cast<T*>(x.data), x.rows, x.cols, x.stride}, nullptr, y);
}

/// dx = the gradient at x of y = f(x), as meso::activation_backward. Error: the policy's and one rounding to T.
/// Throws: std::invalid_argument on a shape mismatch.
template <class A, class T>
void activation_backward(Context& context, const A&, const ConstView<T>& x, const ConstView<T>& dy, const View<T>& dx) {
  check_shape("activation_backward", "x", x, dy.rows, preactivation_width<A>(dy.cols));
  check_same_shape<const T, T>("activation_backward", "x", x, "dx", dx);
  detail::for_elements(context, "activation_backward", detail::ActivationBackward<A, T>{x, dy, dx}, dy.rows, dy.cols);
}

}  // namespace meso::cuda
