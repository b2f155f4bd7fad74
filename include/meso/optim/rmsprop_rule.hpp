#pragma once
#include <meso/optim/check_rule.hpp>

namespace meso {

/// RMSProp: v = αv + (1−α)g², u = g/(√v + ε); with momentum b = μb + u, u = b; θ −= lr·u. Weight decay is coupled.
/// Centered: ḡ = αḡ + (1−α)g and √max(v − ḡ², 0) in place of √v.
/// Source: Tieleman & Hinton, lecture 6.5 (2012); centered: Graves, arXiv 1308.0850; in PyTorch's form.
/// Numerics: ε outside the root. v − ḡ² may round below 0, hence the max.
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
  static constexpr bool decoupled_decay = false;

  bool uses(int k) const { return k == 0 || (k == 1 && centered) || (k == 2 && momentum > 0); }
  void validate() const {
    detail::check_rate("RmsProp", "alpha", alpha);
    detail::check_rate("RmsProp", "momentum", momentum);
    detail::check_not_negative("RmsProp", "epsilon", epsilon);
  }

  template <class ConstRun, class Run>
  void direction(Index, ConstRun g, Run u, Run v, Run mean, Run b) const {
    using S = typename Run::Scalar;
    const S keep = static_cast<S>(alpha), take = static_cast<S>(1 - alpha), eps = static_cast<S>(epsilon);
    v = keep * v + take * g.square();
    if (centered) {
      mean = keep * mean + take * g;
      u = g / (((v - mean.square()).max)(S(0)).sqrt() + eps);
    } else {
      u = g / (v.sqrt() + eps);
    }
    if (momentum > 0) {
      b = static_cast<S>(momentum) * b + u;
      u = b;
    }
  }
};

}  // namespace meso
