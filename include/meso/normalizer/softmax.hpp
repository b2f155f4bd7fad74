#pragma once
#include <limits>
#include <meso/normalizer/null_logit.hpp>

namespace meso {

/// softmax over each row: p_i = e^{x_i} / Σ_j e^{x_j}; rows sum to 1, so that a head must attend to something.
/// Source: Vaswani et al., "Attention Is All You Need" (2017).
/// Stable form: shifted by m = max_j x_j; the null-logit family at s = −∞.
/// Backward: with p = softmax(x): dx = p ∘ (dp − rowsum(p ∘ dp)).
/// Shapes: x, p (rows, keys). x_i = −∞ gives p_i = 0; a row of −∞, and an empty one, give zeros.
/// Error: relative, ≤ (|x_i − m| + log n + n + 16)·u.
struct Softmax {
  static constexpr Index parameters_per_head = 0;
  static constexpr bool scaled_scores = true;

  template <class S>
  S null_logit(const Row&, ConstArray<S>) const {
    return -std::numeric_limits<S>::infinity();
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
