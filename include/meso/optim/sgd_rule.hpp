#pragma once
#include <meso/optim/check_rule.hpp>

namespace meso {

/// Stochastic gradient descent with momentum: b = μb + (1−damp)·g, on the first step b = g; θ −= lr·b, or with Nesterov
/// θ −= lr·(g + μb). Weight decay is coupled: g += λθ.
/// Source: Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML 2013, in
/// PyTorch's form.
/// Shapes: any; momentum 0 keeps no state.
/// Error: of one step, ≤ 3u·|θ| + 9u·lr·(|g| + λ|θ| + |b|), |g| the terms of the scaled and decayed gradient, |b| those of
/// b, which is itself ≤ 9u of them.
struct SgdRule {
  double learning_rate = 1e-3;
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;

  static constexpr int moments = 1;
  static constexpr bool decoupled_decay = false;

  bool uses(int) const { return momentum > 0; }
  void validate() const {
    detail::check_rate("Sgd", "momentum", momentum);
    detail::check_not_negative("Sgd", "dampening", dampening);
    check(dampening <= 1, "Sgd: dampening is ", dampening, ", expected a number in [0, 1]");
    check(!nesterov || (momentum > 0 && dampening == 0),
          "Sgd: nesterov expects momentum > 0 and dampening 0, but they are ", momentum, " and ", dampening);
  }

  template <class ConstRun, class Run>
  void direction(Index step, ConstRun g, Run u, Run b) const {
    using S = typename Run::Scalar;
    if (momentum == 0) {
      u = g;
      return;
    }
    const S mu = static_cast<S>(momentum);
    if (step == 1)
      b = g;
    else
      b = mu * b + static_cast<S>(1 - dampening) * g;
    if (nesterov)
      u = g + mu * b;
    else
      u = b;
  }
};

}  // namespace meso
