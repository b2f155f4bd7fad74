#pragma once
#include <cmath>

#include <meso/norm/norm.hpp>

namespace meso {

/// RMSNorm with one gain for all channels ("RMSNorm-S"): y = γ·x / √(mean(x²) + ε), γ a scalar.
/// It commutes with every rotation of the channels, ε included.
/// Source: Kaul et al., "From Attention to Activation", ICLR 2025, §4; Zhang & Sennrich, 2019.
/// Backward: with r = 1/√(mean(x²)+ε), x̂ = r·x: dx = γ·r·(dy − x̂·mean(dy ∘ x̂)), dγ = Σ dy ∘ x̂.
/// Error: |y − exact| ≤ (n/2 + 5)·u·|y|, n = width; dx, with G = max|γ·dy|, X = max|x̂|:
/// ≤ r·G·(n/2 + 8 + (5n/2 + 20)·X)·u; dγ of one row: ≤ (3n/2 + 6)·Σ|dy ∘ x̂|·u.
/// Range: x² must not overflow, |x| < 10¹⁹ in float; beyond, r = 0 and y = 0.
struct RmsNormSingle {
  double epsilon = 1e-5;

  static constexpr Index saved_per_row = 1;
  Index parameter_count(Index) const { return 1; }
  Index declare(ParameterLayout& layout, const std::string& prefix, Index) const {
    return layout.add(prefix + ".gain", 1, 1, ParameterKind::gain);
  }
  template <class S>
  void initialize(Index, Array<S> theta) const {
    theta[0] = S(1);
  }

  template <class S>
  void forward(ConstArray<S> theta, ConstArray<S> x, Array<S> y, Array<S> saved) const {
    const S r = S(1) / std::sqrt(x.square().mean() + static_cast<S>(epsilon));
    saved[0] = r;
    y = x * (r * theta[0]);
  }
  template <class S>
  void backward(ConstArray<S> theta, ConstArray<S> x, ConstArray<S> saved, ConstArray<S> dy, Array<S> dx,
                Array<S> dtheta) const {
    const S r = saved[0];
    const S dot = (dy * x).sum();
    // y = γ·r·x
    dtheta[0] += r * dot;
    dx = (theta[0] * r) * (dy - x * (r * r * dot / static_cast<S>(x.size())));
  }
};

/// RMSNorm with a gain a channel ("RMSNorm-M", as in Llama): y = γ ∘ x / √(mean(x²) + ε), γ (width).
/// Source: Zhang & Sennrich, "Root Mean Square Layer Normalization", 2019.
/// Backward: with g = γ ∘ dy and x̂ = r·x: dx = r·(g − x̂·mean(g ∘ x̂)), dγ = dy ∘ x̂.
/// Error: |y − exact| ≤ (n/2 + 5)·u·|y|, n = width; dx, with G = max|g|, X = max|x̂|:
/// ≤ r·G·(n/2 + 8 + (5n/2 + 20)·X)·u; dγ of one row: ≤ (n/2 + 6)·|dy ∘ x̂|·u.
/// Range: x² must not overflow, |x| < 10¹⁹ in float; beyond, r = 0 and y = 0.
struct RmsNorm {
  double epsilon = 1e-5;

  static constexpr Index saved_per_row = 1;
  Index parameter_count(Index width) const { return width; }
  Index declare(ParameterLayout& layout, const std::string& prefix, Index width) const {
    return layout.add(prefix + ".gain", 1, width, ParameterKind::gain);
  }
  template <class S>
  void initialize(Index, Array<S> theta) const {
    theta.setOnes();
  }

  template <class S>
  void forward(ConstArray<S> theta, ConstArray<S> x, Array<S> y, Array<S> saved) const {
    const S r = S(1) / std::sqrt(x.square().mean() + static_cast<S>(epsilon));
    saved[0] = r;
    y = theta * x * r;
  }
  template <class S>
  void backward(ConstArray<S> theta, ConstArray<S> x, ConstArray<S> saved, ConstArray<S> dy, Array<S> dx,
                Array<S> dtheta) const {
    const S r = saved[0];
    // y = γ ∘ r·x
    dtheta += dy * x * r;
    dx = theta * dy;
    const S dot = (dx * x).sum();
    dx = r * (dx - x * (r * r * dot / static_cast<S>(x.size())));
  }
};

}  // namespace meso
