#pragma once
#include <cmath>
#include <meso/core/exp.hpp>
#include <meso/normalizer/normalizer.hpp>

namespace meso {

/// Sigmoid attention, element-wise: p_i = σ(x_i + b) = 1 / (1 + e^{−(x_i + b)}).
/// b = −log T, T the model's context (a constant), or b = −log n, n the row's visible keys. Either keeps the row sum
/// near 1 at the start of training; rows may sum to anything in (0, n).
/// Source: Ramapuram et al., "Theory, Analysis, and Best Practices for Sigmoid Self-Attention" (2024), arXiv 2409.04431.
/// Stable form: e^{−(x + b)} overflows to ∞ where the weight underflows, and 1/∞ = 0.
/// Backward of p = σ(x + b): dx = p ∘ (1 − p) ∘ dp.
/// Shapes: x, p (rows, keys). x_i = −∞ gives p_i = 0.
/// Error: relative, ≤ (|x_i + b| + |b| + 8)·u; dx ≤ p_i|dp_i|·(|x_i + b| + |b| + 11)·u.
/// Throws: std::invalid_argument if b = −log T and T < 1.
struct SigmoidAttention {
  enum class Bias { context, visible };  ///< −log T, −log n

  Bias bias = Bias::context;

  static constexpr Index parameters_per_head = 0;
  static constexpr bool scaled_scores = true;

  void check_context(Index context) const {
    check(bias != Bias::context || context > 0, "SigmoidAttention: the context is ", context,
          ", but b = −log(context) needs at least 1; Bias::visible needs none");
  }
  template <class S>
  void forward(const Row& row, ConstArray<S>, ConstArray<S> z, Array<S> p) const {
    if (z.size() == 0) return;
    check_context(row.context);
    const Index count = bias == Bias::context ? row.context : z.size();
    const S b = static_cast<S>(-std::log(static_cast<double>(count)));
    p = S(1) / (S(1) + flushed_exp(-(z + b)));
  }
  template <class S>
  void backward(const Row&, ConstArray<S>, ConstArray<S>, ConstArray<S> p, ConstArray<S> dp, Array<S> dz,
                Array<S>) const {
    // p = σ(z + b)
    dz = p * (S(1) - p) * dp;
  }
};

}  // namespace meso
