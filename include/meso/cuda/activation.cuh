#pragma once
#include <meso/cuda/pack.cuh>

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

  /// x with its bias, as rounded: what backward will read.
  template <int n>
  __device__ Pack<T, n> biased(Index i, Index j) const {
    Pack<T, n> in = load_pack<n>(x.row(i) + j);
    if (bias) {
      const Pack<T, n> b = load_pack<n>(bias + j);
      MESO_UNROLL
      for (int e = 0; e < n; ++e) store(in.values[e], load(in.values[e]) + load(b.values[e]));
      store_pack(x.row(i) + j, in);
    }
    return in;
  }
  template <int n>
  __device__ void at(Index i, Index j) const {
    const Pack<T, n> in = biased<n>(i, j);
    Pack<T, n> out;
    if constexpr (A::gated) {
      const Pack<T, n> up = biased<n>(i, y.cols + j);
      MESO_UNROLL
      for (int e = 0; e < n; ++e) store(out.values[e], A::forward(load(in.values[e]), load(up.values[e])));
    } else {
      MESO_UNROLL
      for (int e = 0; e < n; ++e) store(out.values[e], A::forward(load(in.values[e])));
    }
    store_pack(y.row(i) + j, out);
  }
};

template <class A, class T>
struct ActivationBackward {
  View<const T> x, dy;
  View<T> dx;

  template <int n>
  __device__ void at(Index i, Index j) const {
    const Pack<T, n> in = load_pack<n>(x.row(i) + j), slope = load_pack<n>(dy.row(i) + j);
    Pack<T, n> out;
    if constexpr (A::gated) {
      const Pack<T, n> up = load_pack<n>(x.row(i) + dy.cols + j);
      Pack<T, n> out_up;
      MESO_UNROLL
      for (int e = 0; e < n; ++e) {
        Compute<T> dgate, dup;
        A::backward(load(in.values[e]), load(up.values[e]), load(slope.values[e]), dgate, dup);
        store(out.values[e], dgate);
        store(out_up.values[e], dup);
      }
      store_pack(dx.row(i) + dy.cols + j, out_up);
    } else {
      MESO_UNROLL
      for (int e = 0; e < n; ++e) store(out.values[e], A::backward(load(in.values[e]), load(slope.values[e])));
    }
    store_pack(dx.row(i) + j, out);
  }
};

/// Whether the second half of a gated activation begins at a multiple of 16 bytes too.
template <class A, class T>
constexpr bool halves_aligned(Index hidden) {
  return !A::gated || hidden * static_cast<Index>(sizeof(T)) % 16 == 0;
}

}  // namespace detail

/// x += bias (null: none) for every row, then y = f(x), or y = f(gate, up) with x = [gate | up], in one pass.
/// Shapes: x (tokens, hidden or 2·hidden), y (tokens, hidden), bias x.cols values.
/// Error: u·|x| of the sum, and the policy's at the rounded x, and one rounding to T.
/// Throws: std::invalid_argument on a shape mismatch.
template <class A, class T>
void bias_activation_forward(Context& context, const A&, const View<T>& x, const std::type_identity_t<T>* bias,
                             const View<T>& y) {
  check_shape("activation_forward", "x", x, y.rows, preactivation_width<A>(y.cols));
  const bool packs =
      detail::aligned(x) && detail::aligned(y) && detail::aligned(bias) && detail::halves_aligned<A, T>(y.cols);
  detail::for_packs<detail::element_pack<T>>(context, "activation_forward", detail::ActivationForward<A, T>{x, bias, y},
                                             y.rows, y.cols, packs);
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
  const bool packs =
      detail::aligned(x) && detail::aligned(dy) && detail::aligned(dx) && detail::halves_aligned<A, T>(dy.cols);
  detail::for_packs<detail::element_pack<T>>(context, "activation_backward",
                                             detail::ActivationBackward<A, T>{x, dy, dx}, dy.rows, dy.cols, packs);
}

}  // namespace meso::cuda
