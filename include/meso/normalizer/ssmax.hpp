#pragma once
#include <cmath>
#include <limits>
#include <meso/normalizer/null_logit.hpp>

namespace meso {

/// Scalable softmax (SSMax): p = softmax(s·log n·x), n the row's visible keys, s = theta[0], one learned number a head.
/// Initially s = T / log(T!), T the model's context: then the mean of s·log n over n = 1 … T is 1, as in softmax.
/// Source: Nakanishi, "Scalable-Softmax Is Superior for Attention" (2025), arXiv 2501.19399; the initial value is ours.
/// Stable form: softmax of y = s·log n·x, shifted by max y.
/// Backward: with p = softmax(y), y = c·x, c = s·log n: dy = p ∘ (dp − rowsum(p ∘ dp)), dx = c·dy, ds = log n·Σ x ∘ dy.
/// Shapes: x, p (rows, keys), theta (1). x_i = −∞ gives p_i = 0, also for n = 1 and s ≤ 0; a row of −∞ gives zeros.
/// A product s·log n·x_i that overflows to +∞ is a score of +∞: NaN.
/// Error: relative, ≤ (8·max|y| + log n + n + 16)·u. dy as for softmax (see null_logit_backward), ≤ e_i·u;
/// dx ≤ |c|·(e_i + 3|dy_i|)·u, ds ≤ log n·Σ_i |x_i|·(e_i + (n + 3)·|dy_i|)·u.
struct ScalableSoftmax {
  static constexpr Index parameters_per_head = 1;
  static constexpr bool scaled_scores = true;

  template <class S>
  void initialize(const Row& row, Array<S> theta) const {
    const double context = static_cast<double>(row.context);
    theta[0] = row.context > 1 ? static_cast<S>(context / std::lgamma(context + 1)) : S(1);
  }
  template <class S>
  void forward(const Row&, ConstArray<S> theta, ConstArray<S> z, Array<S> p) const {
    constexpr S infinity = std::numeric_limits<S>::infinity();
    const S c = theta[0] * log_count<S>(z.size());
    for (Index j = 0; j < z.size(); ++j) p[j] = z[j] == -infinity ? -infinity : c * z[j];
    null_logit_forward<S>(-infinity, array(static_cast<const S*>(p.data()), p.size()), p);
  }
  template <class S>
  void backward(const Row&, ConstArray<S> theta, ConstArray<S> z, ConstArray<S> p, ConstArray<S> dp, Array<S> dz,
                Array<S> dtheta) const {
    constexpr S infinity = std::numeric_limits<S>::infinity();
    const S log_n = log_count<S>(z.size());
    null_logit_backward<S>(p, dp, dz);
    // p = softmax(y), y = s·log n·z
    S sum = 0;
    for (Index j = 0; j < z.size(); ++j) sum += z[j] == -infinity ? S(0) : z[j] * dz[j];
    dtheta[0] += log_n * sum;
    dz *= theta[0] * log_n;
  }

 private:
  template <class S>
  static S log_count(Index n) {
    return n > 0 ? static_cast<S>(std::log(static_cast<double>(n))) : S(0);
  }
};

}  // namespace meso
