#pragma once
#include <meso/layer/activation.hpp>

namespace meso {

/// ReLU: y = max(x, 0), element-wise. NaN comes out as NaN.
/// Source: Nair & Hinton (2010).
/// Backward: y = max(x, 0): dx = 1[x > 0] ∘ dy; ReLU'(0) = 0. A NaN in x comes out of dx.
/// Error: none.
struct Relu {
  static constexpr bool gated = false;

  template <class S>
  void forward(ConstArray<S> x, Array<S> y) const {
    y = x.unaryExpr([](S v) { return v < S(0) ? S(0) : v; });
  }
  template <class S>
  void backward(ConstArray<S> x, ConstArray<S> dy, Array<S> dx) const {
    // y = max(x, 0)
    dx = x.binaryExpr(dy, [](S v, S d) { return v > S(0) ? d : v <= S(0) ? S(0) : v; });
  }
};

}  // namespace meso
