#pragma once
#include <cmath>
#include <meso/core/exp.hpp>
#include <meso/normalizer/normalizer.hpp>
#include <unsupported/Eigen/SpecialFunctions>

namespace meso {

/// Softpick: p_i = ReLU(e^{x_i} − 1) / (Σ_j |e^{x_j} − 1| + ε). Keys with x ≤ 0 get no weight but count below the line,
/// so rows sum to at most 1, and to 0 where no score is positive.
/// Source: Zuhri et al., "Softpick: No Attention Sink, No Massive Activations with Rectified Softmax" (2025),
/// arXiv 2504.20966.
/// Stable form: m = max(0, max_j x_j); |r_i| = |e^{x_i} − 1|·e^{−m} = e^{max(x_i, 0) − m}·(−expm1(−|x_i|));
/// D = Σ|r| + ε·e^{−m}. (Shifting by max x with an unscaled ε overflows on rows of very negative scores.)
/// Backward: p = ReLU(r)/D, Δ = Σ_j p_j dp_j: dx_i = e^{x_i − m}/D·(1[x_i > 0]·dp_i − sign(x_i)·Δ), sign(0) = 0.
/// Shapes: x, p (rows, keys). x_i = −∞ gives p_i = 0 (its limit, 1, counts below the line); a row of −∞ gives zeros.
/// Error: relative, ≤ ε_i·u, ε_i = |x_i − m| + log n + n + 32; dx ≤ e^{x_i − m}/D·(Σ_k (n + 1 + ε_k)·p_k|dp_k| +
/// (3 + ε_i)·|1[x_i > 0]·dp_i − sign(x_i)·Δ|)·u.
struct Softpick {
  double epsilon = 1e-8;

  static constexpr Index parameters_per_head = 0;
  static constexpr bool scaled_scores = true;

  template <class S>
  void forward(const Row&, ConstArray<S>, ConstArray<S> z, Array<S> p) const {
    if (z.size() == 0) return;
    const S top = shift(z);
    p = flushed_exp((z.max)(S(0)) - top) * -(-z.abs()).expm1();
    const S scale = S(1) / (p.sum() + static_cast<S>(epsilon) * std::exp(-top));
    p *= (z > S(0)).template cast<S>() * scale;
  }
  template <class S>
  void backward(const Row&, ConstArray<S>, ConstArray<S> z, ConstArray<S> p, ConstArray<S> dp, Array<S> dz,
                Array<S>) const {
    if (z.size() == 0) return;
    const S top = shift(z);
    const S sum = (flushed_exp((z.max)(S(0)) - top) * -(-z.abs()).expm1()).sum();
    const S scale = S(1) / (sum + static_cast<S>(epsilon) * std::exp(-top));
    const S delta = (p * dp).sum();
    // p = ReLU(r) / D, r = (e^z − 1)·e^{−m}
    dz = flushed_exp(z - top);
    for (Index j = 0; j < z.size(); ++j)
      dz[j] *= scale * (z[j] > S(0) ? dp[j] - delta : z[j] < S(0) ? delta : S(0) * z[j]);
  }

 private:
  // m = max(0, max z); NaN if there is one
  template <class S>
  static S shift(const ConstArray<S>& z) {
    const S top = z.template maxCoeff<Eigen::PropagateNaN>();
    return top < S(0) ? S(0) : top;
  }
};

}  // namespace meso
