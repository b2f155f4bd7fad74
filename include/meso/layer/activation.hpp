#pragma once
#include <concepts>

#include <meso/core/eigen.hpp>

namespace meso {

/// An element-wise nonlinearity of the MLP, y = f(x).
///   static constexpr bool gated = false;
///   forward (x, y);            arrays of equal length
///   backward(x, dy, dx);       dx = dy ∘ f'(x)
template <class A, class S>
concept ElementwiseActivation = requires(const A a, ConstArray<S> in, Array<S> out) {
  requires !A::gated;
  a.forward(in, out);
  a.backward(in, in, out);
};

/// A gated one, y = f(gate, up).
///   static constexpr bool gated = true;
///   forward (gate, up, y);
///   backward(gate, up, dy, dgate, dup);
template <class A, class S>
concept GatedActivation = requires(const A a, ConstArray<S> in, Array<S> out) {
  requires A::gated;
  a.forward(in, in, out);
  a.backward(in, in, in, out, out);
};

template <class A, class S>
concept Activation = ElementwiseActivation<A, S> || GatedActivation<A, S>;

}  // namespace meso
