#pragma once
#include <cmath>
#include <meso/normalizer/null_logit.hpp>

namespace meso {

/// softmax-n over each row: p_i = e^{x_i} / (n + Σ_j e^{x_j}), n ≥ 0 real. n = 0 is softmax, n = 1 softmax-1.
/// Source: E. Miller, "Attention Is Off By One" (2023), generalized.
/// Stable form: the null-logit family at s = log n: m = max(log n, max_j x_j); the "n" becomes e^{log n − m}.
/// Backward: with p = softmax-n(x): dx = p ∘ (dp − rowsum(p ∘ dp)), as for softmax.
/// Shapes: x, p (rows, keys). x_i = −∞ gives p_i = 0; a row of −∞, and an empty one, give zeros; so does
/// n = ∞.
/// Error: relative, ≤ (|x_i − m| + |log n| + log(keys + 1) + keys + 16)·u.
/// Throws: std::invalid_argument if n is negative or NaN.
struct SoftmaxN {
  double n = 1;

  static constexpr Index parameters_per_head = 0;
  static constexpr bool scaled_scores = true;

  template <class S>
  S null_logit(const Row&, ConstArray<S>) const {
    check(n >= 0, "SoftmaxN: n is ", n, ", but it must be at least 0");
    return static_cast<S>(std::log(n));
  }
  template <class S>
  void forward(const Row& row, ConstArray<S> theta, ConstArray<S> z, Array<S> p) const {
    null_logit_forward<S>(null_logit(row, theta), z, p);
  }
  template <class S>
  void backward(const Row&, ConstArray<S>, ConstArray<S>, ConstArray<S> p, ConstArray<S> dp, Array<S> dz,
                Array<S>) const {
    null_logit_backward<S>(p, dp, dz);
  }
};

}  // namespace meso
