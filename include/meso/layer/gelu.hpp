#pragma once
#include <meso/core/exp.hpp>
#include <meso/layer/activation.hpp>
#include <unsupported/Eigen/SpecialFunctions>

namespace meso {

/// GELU, the exact one: y = x·Φ(x) = x/2·(1 + erf(x/√2)), Φ the Gaussian distribution function.
/// Source: Hendrycks & Gimpel, "Gaussian Error Linear Units" (2016), arXiv 1606.08415.
/// Numerics: erf is Eigen's; vectorized for float, std::erf for double.
/// Backward: y = x·Φ(x): dx = dy ∘ (Φ(x) + x·φ(x)), φ(x) = e^{−x²/2}/√(2π).
/// Error: absolute, ≤ 8·u·|x| (Φ itself to 6u, so that the far negative tail keeps no relative accuracy);
/// dx: ≤ 10·u·|dy|. x = −∞ gives NaN, as −∞·0 does.
struct Gelu {
  static constexpr bool gated = false;

  template <class S>
  void forward(ConstArray<S> x, Array<S> y) const {
    y = S(0.5) * x * (S(1) + (x * S(0.70710678118654752440)).erf());
  }
  template <class S>
  void backward(ConstArray<S> x, ConstArray<S> dy, Array<S> dx) const {
    // y = x·Φ(x)
    dx = flushed_exp(S(-0.5) * x.square());
    dx = dy * (S(0.5) * (S(1) + (x * S(0.70710678118654752440)).erf()) + x * S(0.39894228040143267794) * dx);
  }
};

/// GELU by tanh, as in GPT-2: y = x/2·(1 + tanh v) = x·σ(2v), v = √(2/π)·(x + 0.044715·x³).
/// Source: Hendrycks & Gimpel, "Gaussian Error Linear Units" (2016), arXiv 1606.08415; within 5·10⁻⁴ of the exact one.
/// Stable form: σ(2v) = 1/(1 + e^{−2v}), which unlike 1 + tanh v does not cancel for negative x.
/// Backward: y = x·s, s = σ(2v): dx = dy ∘ (s + x·s·(1 − s)·2·√(2/π)·(1 + 3·0.044715·x²)); finite for |x| < 10¹⁸.
/// Error: absolute, ≤ 11·u·|x|; dx: ≤ (18 + 2s·|x|·(1.6 + 0.22·x²))·u·|dy|, the second term a rounding of 1 − s, until
/// s rounds to 1: x = 5 in float, 7 in double. x = −∞ gives NaN, as −∞·0 does.
struct GeluTanh {
  static constexpr bool gated = false;

  template <class S>
  void forward(ConstArray<S> x, Array<S> y) const {
    y = x / (S(1) + flushed_exp(x * (linear<S> + cubic<S> * x.square())));
  }
  template <class S>
  void backward(ConstArray<S> x, ConstArray<S> dy, Array<S> dx) const {
    dx = S(1) / (S(1) + flushed_exp(x * (linear<S> + cubic<S> * x.square())));
    // y = x·s, s = σ(2v)
    dx = dy * (dx - dx * (S(1) - dx) * x * (linear<S> + S(3) * cubic<S> * x.square()));
  }

 private:
  // −2v = linear·x + cubic·x³
  template <class S>
  static constexpr S linear = S(-2 * 0.79788456080286535588);  // −2·√(2/π)
  template <class S>
  static constexpr S cubic = S(-2 * 0.79788456080286535588 * 0.044715);
};

}  // namespace meso
