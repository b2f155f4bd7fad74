#pragma once
#include <meso/normalizer/normalizer.hpp>

namespace meso {

/// ReLU attention: p_i = max(x_i, 0) / n, n the row's visible keys. Element-wise but for n; rows sum to any number ≥ 0.
/// Source: Guo et al., "Active-Dormant Attention Heads" (2024), arXiv 2410.13835; Wortsman et al. (2023).
/// Numerics: one rounded division; nothing to stabilize. ReLU'(0) = 0.
/// Backward of p = max(x, 0) / n: dx = 1[x > 0] ∘ dp / n.
/// Shapes: x, p (rows, keys). x_i = −∞ gives p_i = 0. NaN comes out as NaN, of p and dx.
/// Error: relative, ≤ u; dx too.
struct ReluAttention {
  static constexpr Index parameters_per_head = 0;
  static constexpr bool scaled_scores = true;

  template <class S>
  void forward(const Row&, ConstArray<S>, ConstArray<S> z, Array<S> p) const {
    p = z.unaryExpr([](S v) { return v < S(0) ? S(0) : v; }) / static_cast<S>(z.size());
  }
  template <class S>
  void backward(const Row&, ConstArray<S>, ConstArray<S> z, ConstArray<S>, ConstArray<S> dp, Array<S> dz,
                Array<S>) const {
    // p = max(z, 0) / n
    const S n = static_cast<S>(z.size());
    dz = z.binaryExpr(dp, [n](S v, S d) { return v > S(0) ? d / n : v <= S(0) ? S(0) : v; });
  }
};

}  // namespace meso
