#pragma once
#include <cmath>
#include <meso/norm/norm.hpp>

namespace meso {

/// LayerNorm: y = γ ∘ (x − mean) / √(var + ε) + β, with the population variance and ε inside the root; γ, β (width).
/// Source: Ba, Kiros & Hinton, "Layer Normalization" (2016), arXiv 1607.06450; ε = 1e-5 as in GPT-2.
/// Numerics: two passes, the variance from centered values; no E x² − (E x)².
/// Backward: with r = 1/√(var + ε), x̂ = r·(x − mean), g = γ ∘ dy:
/// dx = r·(g − mean(g) − x̂·mean(g ∘ x̂)), dγ = dy ∘ x̂, dβ = dy.
/// Shapes: theta = [γ, β], 2·width values; saved = [mean, r].
/// Error: |y − exact| ≤ |γ|·((n + 2)·r·max|x| + (n/2 + 7)·|x̂|)·u + u·|y|, n = width, while n·u·r·max|x| ≪ 1.
/// dx, with G = max|g|, X = max|x̂|: ≤ r·G·(2n + 20 + (5n/2 + 25)·X + (n + 1)·(1 + X)·r·max|x|)·u; dγ of one row:
/// ≤ |dy|·((n + 1)·r·max|x| + (n/2 + 8)·|x̂|)·u.
/// Range: (x − mean)² must not overflow, |x| < 10¹⁹ in float; beyond, r = 0 and y = β.
struct LayerNorm {
  double epsilon = 1e-5;

  static constexpr Index saved_per_row = 2;
  Index parameter_count(Index width) const { return 2 * width; }
  Index declare(ParameterLayout& layout, const std::string& prefix, Index width) const {
    const Index first = layout.add(prefix + ".gain", 1, width, ParameterKind::gain);
    layout.add(prefix + ".bias", 1, width, ParameterKind::bias, ParameterLayout::Placement::packed);
    return first;
  }
  template <class S>
  void initialize(Index width, Array<S> theta) const {
    theta.head(width).setOnes();
    theta.tail(width).setZero();
  }

  template <class S>
  void forward(ConstArray<S> theta, ConstArray<S> x, Array<S> y, Array<S> saved) const {
    const Index n = x.size();
    const S mean = x.mean();
    const S r = S(1) / std::sqrt((x - mean).square().mean() + static_cast<S>(epsilon));
    saved[0] = mean;
    saved[1] = r;
    y = (x - mean) * r * theta.head(n) + theta.tail(n);
  }
  template <class S>
  void backward(ConstArray<S> theta, ConstArray<S> x, ConstArray<S> saved, ConstArray<S> dy, Array<S> dx,
                Array<S> dtheta) const {
    const Index n = x.size();
    const S mean = saved[0], r = saved[1];
    // y = γ ∘ r·(x − mean) + β
    dtheta.head(n) += dy * (x - mean) * r;
    dtheta.tail(n) += dy;
    dx = theta.head(n) * dy;
    const S g = dx.mean(), dot = (dx * (x - mean)).mean();
    dx = r * (dx - g - (x - mean) * (r * r * dot));
  }
};

}  // namespace meso
