#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <meso/optim/check_rule.hpp>
#include <meso/optim/gradient_range.hpp>

namespace meso {

/// RMSProp: v = αv + (1−α)g², u = g/(√v + ε); with momentum b = μb + u, u = b; θ −= lr·u. Weight decay is coupled.
/// Centered: ḡ = αḡ + (1−α)g and √max(v − ḡ², κg²) in place of √v.
/// Source: Tieleman & Hinton, lecture 6.5 (2012); centered: Graves, arXiv 1308.0850; in PyTorch's form.
/// Numerics: ε outside the root. g is taken within ±2⁶³ (double: ±2⁵¹¹), and in v g² not below 2r/(1−α), r the smallest
/// normal number, so that v neither overflows nor underflows, for any ε down to 0, and 0/0 is 0. v − ḡ² may round to 0 or
/// below; exactly it is not less than κg², 1/κ = 1/(1−α) + 1/α^t, as a variance of g, of the zeros at the start and of what
/// lies between. An α^t below u counts as u: v − ḡ² is no better known.
/// Bound: for all finite gradients and every ε, |u| ≤ 1/√(1−α), centered 1/√κ; computed, 6 roundings more; with momentum
/// 1/(1−μ) times that. Centered, it presumes the same α in all steps.
/// Shapes: any; state is kept for what is in use.
/// Error: of one step, relative, ≤ 12u in u given v and ḡ (centered: times v/(v − ḡ²), the cancellation); these ≤ 10u
/// of the terms that they are summed from.
struct RmsPropRule {
  double learning_rate = 1e-2;
  double alpha = 0.99;
  double epsilon = 1e-8;
  double momentum = 0.0;
  double weight_decay = 0.0;
  bool centered = false;

  static constexpr int moments = 3;
  static constexpr bool gradients_within_range = true;
  static constexpr bool decoupled_decay = false;

  bool uses(int k) const { return k == 0 || (k == 1 && centered) || (k == 2 && momentum > 0); }
  void validate() const {
    detail::check_rate("RmsProp", "alpha", alpha);
    detail::check_rate("RmsProp", "momentum", momentum);
    detail::check_not_negative("RmsProp", "epsilon", epsilon);
  }

  /// The least that v − ḡ² can be, in times of g².
  template <class S>
  S kappa(Index step) const {
    const double zeros = (std::max)(std::pow(alpha, static_cast<double>(step)),
                                    static_cast<double>(std::numeric_limits<S>::epsilon()) / 2);
    return static_cast<S>(1 / (1 / (1 - alpha) + 1 / zeros));
  }

  template <class ConstRun, class Run>
  void direction(Index step, ConstRun g, Run u, Run v, Run mean, Run b) const {
    using S = typename Run::Scalar;
    const S keep = static_cast<S>(alpha), take = static_cast<S>(1 - alpha), eps = static_cast<S>(epsilon);
    const S least = detail::smallest_square<S>(1 - alpha);
    v = keep * v + take * detail::square_within_range(g, least);
    u = detail::within_range(g);
    if (centered) {
      const S k = kappa<S>(step);
      mean = keep * mean + take * u;
      const auto least_variance = k * detail::square_within_range(g, detail::smallest_square<S>(k));
      u /= ((v - mean.square()).max)(least_variance).sqrt() + eps;
    } else {
      u /= v.sqrt() + eps;
    }
    if (momentum > 0) {
      b = static_cast<S>(momentum) * b + u;
      u = b;
    }
  }
};

}  // namespace meso
