#pragma once
#include <meso/normalizer/null_logit.hpp>

namespace meso {

/// softmax-1 over each row: p_i = e^{x_i} / (1 + Σ_j e^{x_j}); rows sum to less than 1, so that a head may attend to
/// nothing.
/// Source: E. Miller, "Attention Is Off By One" (2023); Kaul et al., ICLR 2025, eq. 3.
/// Stable form: m = max(0, max_j x_j); the "1" becomes e^{−m}.
/// Backward: dx = p ∘ (dp − rowsum(p ∘ dp)), as for softmax.
/// Shapes: x, p (rows, keys). x_i = −∞ gives p_i = 0; a row of −∞ gives zeros.
/// Error: relative, ≤ (|x_i − m| + m + n + 16)·u.
struct Softmax1 {
  static constexpr Index parameters_per_head = 0;
  static constexpr bool scaled_scores = true;

  template <class S>
  S null_logit(const Row&, ConstArray<S>) const {
    return S(0);
  }
  template <class S>
  void forward(const Row&, ConstArray<S>, ConstArray<S> z, Array<S> p) const {
    null_logit_forward<S>(S(0), z, p);
  }
  template <class S>
  void backward(const Row&, ConstArray<S>, ConstArray<S>, ConstArray<S> p, ConstArray<S> dp, Array<S> dz,
                Array<S>) const {
    null_logit_backward<S>(p, dp, dz);
  }
};

}  // namespace meso
