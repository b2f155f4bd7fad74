#pragma once
#include <meso/normalizer/null_logit.hpp>

namespace meso {

/// Learned attention sink: p_i = e^{x_i} / (e^s + Σ_j e^{x_j}), s = theta[0], one learned number a head, initially 0.
/// s is never multiplied by 1/√d.
/// Source: OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card" (2025). At s = 0 it is softmax-1, and StreamingLLM's zero
/// sink (Xiao et al., 2023).
/// Stable form: the null-logit family: m = max(s, max_j x_j); the null term becomes e^{s−m}.
/// Backward: with p as above and Δ = Σ_j p_j dp_j: dx = p ∘ (dp − Δ), ds = −p_∅ Δ, p_∅ = e^s / (e^s + Σ_j e^{x_j}).
/// Shapes: x, p (rows, keys), theta (1). x_i = −∞ gives p_i = 0; a row of −∞, and an empty one, give zeros; so does
/// s = +∞, whose gradients are 0.
/// Error: relative, ≤ (|x_i − m| + log(keys + 1) + keys + 16)·u. ds: with ε_k·u that of p_k and ε_∅·u that of p_∅,
/// ≤ p_∅·(Σ_k (keys + 1 + ε_k)·p_k|dp_k| + (2 + ε_∅)·|Δ|)·u.
struct LearnedSink {
  static constexpr Index parameters_per_head = 1;
  static constexpr bool scaled_scores = true;

  template <class S>
  void initialize(const Row&, Array<S> theta) const {
    theta[0] = S(0);
  }
  template <class S>
  S null_logit(const Row&, ConstArray<S> theta) const {
    return theta[0];
  }
  template <class S>
  void forward(const Row& row, ConstArray<S> theta, ConstArray<S> z, Array<S> p) const {
    null_logit_forward<S>(null_logit(row, theta), z, p);
  }
  template <class S>
  void backward(const Row& row, ConstArray<S> theta, ConstArray<S> z, ConstArray<S> p, ConstArray<S> dp, Array<S> dz,
                Array<S> dtheta) const {
    const S delta = null_logit_backward<S>(p, dp, dz);
    // p = e^z / (e^s + Σ e^z)
    dtheta[0] -= null_logit_mass<S>(null_logit(row, theta), z) * delta;
  }
};

}  // namespace meso
