#pragma once
#include <limits>
#include <meso/normalizer/normalizer.hpp>

namespace meso {

/// sparsemax: the Euclidean projection of a row on the simplex: p_i = max(x_i − τ, 0) with τ such that Σ p = 1.
/// Source: Martins & Astudillo, "From Softmax to Sparsemax" (2016), arXiv 1602.02068; the iteration: Michelot (1986).
/// Numerics: exact, by Newton's iteration on Σ max(x − τ, 0) = 1 from τ = max x − 1: τ = (Σ_{x_j > τ} x_j − 1)/k grows
/// until the support of size k stays; no sorting, no scratch. A handful of passes as a rule, at most n.
/// Backward: with p as above and A = {i: p_i > 0}: dx_i = dp_i − mean_A(dp) on A, else 0.
/// Shapes: x, p (rows, keys). x_i = −∞ gives p_i = 0; a row of −∞ gives zeros. A NaN makes the row NaN.
/// Error: absolute, ≤ (n + 4)·u (scores within 1 of the maximum alone count); dx, given A:
/// ≤ (|dp_i| + (n + 2)·mean_A|dp|)·u.
struct Sparsemax {
  static constexpr Index parameters_per_head = 0;
  static constexpr bool scaled_scores = true;

  template <class S>
  void forward(const Row&, ConstArray<S>, ConstArray<S> z, Array<S> p) const {
    if (z.size() == 0) return;
    const S top = z.template maxCoeff<Eigen::PropagateNaN>();
    if (top == -std::numeric_limits<S>::infinity()) {
      p.setZero();
      return;
    }
    p = z - top;
    S tau = S(-1);
    for (Index support = z.size() + 1;;) {
      S sum = 0;
      Index count = 0;
      for (Index j = 0; j < p.size(); ++j) {
        sum += p[j] > tau ? p[j] : S(0);
        count += p[j] > tau ? 1 : 0;
      }
      if (count == 0 || count >= support) break;
      support = count;
      tau = (sum - S(1)) / static_cast<S>(count);
    }
    p = p.unaryExpr([tau](S v) { return v <= tau ? S(0) : v - tau; });
  }
  template <class S>
  void backward(const Row&, ConstArray<S>, ConstArray<S>, ConstArray<S> p, ConstArray<S> dp, Array<S> dz,
                Array<S>) const {
    S sum = 0;
    Index count = 0;
    for (Index j = 0; j < p.size(); ++j) {
      sum += p[j] > S(0) ? dp[j] : p[j];  // 0, or a NaN
      count += p[j] > S(0) ? 1 : 0;
    }
    const S mean = count > 0 ? sum / static_cast<S>(count) : sum;
    // p = max(z − τ, 0), τ = (Σ_A z − 1)/|A|
    for (Index j = 0; j < p.size(); ++j) dz[j] = p[j] == S(0) ? S(0) : dp[j] - mean;
  }
};

}  // namespace meso
