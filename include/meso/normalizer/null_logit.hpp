#pragma once
#include <cmath>
#include <limits>
#include <type_traits>

#include <meso/core/exp.hpp>
#include <meso/normalizer/normalizer.hpp>

namespace meso {

namespace detail {
// max(s, max_j z_j), NaN if any of them is; std::max(s, NaN) is s, which would lose the NaN at s = −∞.
template <class S>
S null_logit_shift(S s, ConstArray<S> z) {
  if (z.size() == 0) return s;
  const S top = shift_of<S>(z);
  return top > s || top != top ? top : s;
}
// e^{s − M}; 1 at s = M, also where that is ∞ and the difference NaN.
template <class S>
S null_term(S s, S top) {
  return s == top ? S(1) : std::exp(s - top);
}
}  // namespace detail

/// p_j = e^{z_j − M} / D, D = e^{s−M} + Σ e^{z_j−M}, M = max(s, max_j z_j); returns lse = M + log D (natural log).
/// With s = −∞ this is softmax, with s = 0 softmax-1, with s = log n softmax-n. The null term is shifted with the maximum.
/// z_j = −∞ gives p_j = 0. No visible key, or only −∞: p = 0 and lse = s. s = +∞ is its limit: p = 0 and lse = +∞, and
/// with these weights the gradients are 0. A NaN or +∞ among z comes out as NaN weights, for every s.
/// Shapes: z, p (keys). Error: p relative, ≤ (|z_j − M| + |s − M| + n + 16)·u; lse absolute, ≤ (2n + 16 + |lse|)·u.
/// Exponentials below 1.7·10⁻³⁸ in float, the smallest normal number in double, are flushed to 0 (see flushed_exp).
template <class S>
S null_logit_forward(std::type_identity_t<S> s, ConstArray<S> z, Array<S> p) {
  const S top = detail::null_logit_shift<S>(s, z);
  if (top == -std::numeric_limits<S>::infinity()) {
    p.setZero();
    return top;
  }
  const S sum = detail::null_term<S>(s, top) + exp_and_sum<S>(z, top, p);
  p *= S(1) / sum;
  return top + std::log(sum);
}

/// Backward of the whole family: dz_j = p_j (dp_j − Δ), Δ = Σ_j p_j dp_j. Returns Δ; ds = −p_∅ Δ is the caller's.
/// The row of dz sums to p_∅ Δ.
/// Shapes: p, dp, dz (keys). Error, with ε_k·u the relative error of p_k, 0 given p:
/// ≤ p_j·(Σ_k (n + 1 + ε_k)·p_k|dp_k| + (2 + ε_j)·|dp_j − Δ|)·u.
template <class S>
S null_logit_backward(ConstArray<S> p, ConstArray<S> dp, Array<S> dz) {
  const S delta = (p * dp).sum();
  dz = p * (dp - delta);
  return delta;
}

/// Null mass p_∅ = e^{s − lse}, computed so and never as 1 − Σp, which cancels. s = −∞ gives 0, s = +∞ gives 1.
/// Error: relative, ≤ (|s − M| + max_j |z_j − M| + n + 16)·u.
template <class S>
S null_logit_mass(std::type_identity_t<S> s, ConstArray<S> z) {
  if (s == -std::numeric_limits<S>::infinity()) return S(0);
  const S top = detail::null_logit_shift<S>(s, z);
  const S null = detail::null_term<S>(s, top);
  return null / (null + exp_and_sum<S>(z, top, {nullptr, z.size()}));
}

}  // namespace meso
