#pragma once
#include <cmath>
#include <meso/optim/check_rule.hpp>
#include <meso/optim/gradient_range.hpp>

namespace meso {

/// Adam: m = β1·m + (1−β1)g, v = β2·v + (1−β2)g², θ −= lr·m̂/(√v̂ + ε) with m̂ = m/(1−β1^t), v̂ = v/(1−β2^t).
/// `Variant` says how weight decay enters and its default: use AdamRule, AdamWRule or OrthoAdamRule.
/// Source: Kingma & Ba, "Adam", ICLR 2015; Loshchilov & Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
/// Numerics: ε outside the root, after the correction, as in PyTorch. t counts the steps of the parameter. The bias
/// corrections are computed in double. g is taken within ±2⁶³ (double: ±2⁵¹¹), and in v g² not below 2r/(1−β2), r the
/// smallest normal number (that is |g| not below 4.8e-18 for β2 = 0.999 in float), so that v neither overflows nor
/// underflows, for any ε down to 0: smaller gradients make smaller steps, as under an ε of that size, and 0/0 is 0.
/// Bound: for all finite gradients and every ε, |m̂/(√v̂ + ε)| ≤ c(t) = (1−β1)/(1−β1^t) · √((1−β2^t)/(1−β2) · Σ_k ρ^k),
/// ρ = β1²/β2, k = 0 … t−1, by Cauchy–Schwarz over the gradients' weights in m and v; computed, no more than c(t)·(1 +
/// (4.5t + 8)u). c(1) = 1; by default c grows to 7.27. Kingma & Ba's (1−β1)/√(1−β2), §2.1, is that of one gradient after
/// zeros. β2 = 0 has no bound but at t = 1. It presumes the same β in all steps.
/// Shapes: any; element-wise, two moments.
/// Error: of one step, relative, ≤ 12u in u given m and v; these ≤ 10u of the terms that they are summed from.
template <class Variant>
struct BasicAdamRule {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = Variant::weight_decay;

  static constexpr int moments = 2;
  static constexpr bool gradients_within_range = true;
  static constexpr bool decoupled_decay = Variant::decoupled_decay;

  void validate() const {
    detail::check_rate(Variant::name, "beta1", beta1);
    detail::check_rate(Variant::name, "beta2", beta2);
    detail::check_not_negative(Variant::name, "epsilon", epsilon);
  }

  /// m̂ = m_correction·m, √v̂ = root_v_correction·√v.
  double m_correction(Index step) const { return 1 / (1 - std::pow(beta1, static_cast<double>(step))); }
  double root_v_correction(Index step) const { return 1 / std::sqrt(1 - std::pow(beta2, static_cast<double>(step))); }

  template <class ConstRun, class Run>
  void direction(Index step, ConstRun g, Run u, Run m, Run v) const {
    using S = typename Run::Scalar;
    const S to_m_hat = static_cast<S>(m_correction(step)), to_root_v_hat = static_cast<S>(root_v_correction(step));
    const S least = detail::smallest_square<S>(1 - beta2);
    m = static_cast<S>(beta1) * m + static_cast<S>(1 - beta1) * detail::within_range(g);
    v = static_cast<S>(beta2) * v + static_cast<S>(1 - beta2) * detail::square_within_range(g, least);
    u = (to_m_hat * m) / (to_root_v_hat * v.sqrt() + static_cast<S>(epsilon));
  }
};

/// Decay as part of the gradient, 0 by default.
struct AdamVariant {
  static constexpr const char* name = "Adam";
  static constexpr bool decoupled_decay = false;
  static constexpr double weight_decay = 0.0;
};
/// Decoupled decay, 0.01 by default.
struct AdamWVariant {
  static constexpr const char* name = "AdamW";
  static constexpr bool decoupled_decay = true;
  static constexpr double weight_decay = 0.01;
};
/// Decoupled decay, 0 by default.
struct OrthoAdamVariant {
  static constexpr const char* name = "OrthoAdam";
  static constexpr bool decoupled_decay = true;
  static constexpr double weight_decay = 0.0;
};

/// Coupled decay (L2): g += λθ; λ = 0 by default.
using AdamRule = BasicAdamRule<AdamVariant>;
/// Decoupled decay: θ *= 1 − lr·λ before the step; λ = 0.01 by default.
using AdamWRule = BasicAdamRule<AdamWVariant>;
/// Decoupled decay; λ = 0 by default: the rule of OrthoAdam.
using OrthoAdamRule = BasicAdamRule<OrthoAdamVariant>;

}  // namespace meso
