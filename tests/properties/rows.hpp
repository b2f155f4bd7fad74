#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <meso/normalizer.hpp>

#include "support/oracle.hpp"

/// Of each normalizer: the oracle of one row, and the error bounds of its docstring.
namespace meso::test {

struct RowCase {
  oracle::Vector z, dp;
  double theta = 0;
  Index context = 0;
  double unit = 0;            ///< u of the op
  double score = 0;           ///< what an inexact score adds to the relative error of p, in u
  oracle::Vector slope = {};  ///< error of dp, in u; empty: none
  double n() const { return static_cast<double>(z.size()); }
};

/// Exact results, absolute bounds in units of u, and the size of the terms that make up a gradient.
/// dz_bound is infinite where dz is discontinuous.
struct RowAnswer {
  oracle::Vector p, dz, p_bound, dz_bound, dz_terms;
  double dtheta = 0, dtheta_bound = 0, dtheta_terms = 0;
  bool has_null = false;
  double null = 0, null_bound = 0;
};

namespace detail {

inline double top_of(const oracle::Vector& z, double least) {
  for (const double v : z) least = std::max<double>(least, v);
  return least;
}

/// dz = factor ∘ (direct − Δ), Δ = Σ p dp, when p errs by ε_k·u: Δ errs by Σ_k (n + 1 + ε_k) p_k|dp_k|, and
/// dz_j by factor_j·(error of Δ + (2 + ε_j)|direct_j − Δ|).
inline double error_of_delta(const RowCase& x, const RowAnswer& a) {
  double sum = 0;
  for (std::size_t k = 0; k < x.z.size(); ++k) {
    sum += ((x.n() + 1) * a.p[k] + a.p_bound[k]) * std::abs(x.dp[k]);
    if (!x.slope.empty()) sum += a.p[k] * x.slope[k];
  }
  return sum;
}
inline double delta_of(const RowCase& x, const RowAnswer& a) {
  double sum = 0;
  for (std::size_t k = 0; k < x.z.size(); ++k) sum += a.p[k] * x.dp[k];
  return sum;
}
inline double terms_of_delta(const RowCase& x, const RowAnswer& a) {
  double sum = 0;
  for (std::size_t k = 0; k < x.z.size(); ++k) sum += a.p[k] * std::abs(x.dp[k]);
  return sum;
}
inline void softmax_gradient_bound(const RowCase& x, RowAnswer& a) {
  const double error = error_of_delta(x, a), delta = delta_of(x, a), terms = terms_of_delta(x, a);
  for (std::size_t j = 0; j < x.z.size(); ++j) {
    const double slope = x.slope.empty() ? 0 : x.slope[j];
    a.dz_bound.push_back(a.p[j] * (error + 2 * std::abs(x.dp[j] - delta) + slope) +
                         a.p_bound[j] * std::abs(x.dp[j] - delta));
    a.dz_terms.push_back(a.p[j] * (std::abs(x.dp[j]) + terms));
  }
}

/// p_j = e^{z_j}/(e^s + Σ e^z): relative |z_j − m| + rest, m = max(s, max z).
inline RowAnswer family(const RowCase& x, double s, double rest) {
  RowAnswer a;
  const double null = std::exp(s), m = top_of(x.z, s);
  a.p = oracle::null_logit(x.z, null);
  a.dz = oracle::null_logit_backward(x.z, null, x.dp);
  for (std::size_t j = 0; j < x.z.size(); ++j) a.p_bound.push_back(a.p[j] * (m - x.z[j] + rest + x.score));
  softmax_gradient_bound(x, a);
  double sum = null;
  for (const double v : x.z) sum += std::exp(v);
  a.has_null = std::isfinite(s);
  if (!a.has_null) return a;
  const double own = m - s + std::log(x.n() + 1) + x.n() + 16 + x.score;
  a.null = null / sum;
  a.null_bound = a.null * own;
  a.dtheta = oracle::null_logit_backward_s(x.z, null, x.dp);
  a.dtheta_bound = a.null * (error_of_delta(x, a) + (own + 2) * std::abs(delta_of(x, a)));
  a.dtheta_terms = a.null * terms_of_delta(x, a);
  return a;
}

}  // namespace detail

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

inline RowAnswer answer(const Softmax&, const RowCase& x) {
  return detail::family(x, minus_infinity, std::log(x.n()) + x.n() + 16);
}
inline RowAnswer answer(const Softmax1&, const RowCase& x) {
  return detail::family(x, 0, detail::top_of(x.z, 0) + x.n() + 16);
}
inline RowAnswer answer(const SoftmaxN& n, const RowCase& x) {
  const double s = std::log(n.n);
  return detail::family(x, s, (n.n > 0 ? std::abs(s) : 0.0) + std::log(x.n() + 1) + x.n() + 16);
}
inline RowAnswer answer(const LearnedSink&, const RowCase& x) {
  return detail::family(x, x.theta, std::log(x.n() + 1) + x.n() + 16);
}

inline RowAnswer answer(const SigmoidAttention& sigmoid, const RowCase& x) {
  const double count = sigmoid.bias == SigmoidAttention::Bias::context ? static_cast<double>(x.context) : x.n();
  const double b = -std::log(count);
  RowAnswer a;
  a.p = oracle::sigmoid(x.z, b);
  a.dz = oracle::sigmoid_backward(x.z, b, x.dp);
  for (std::size_t j = 0; j < x.z.size(); ++j) {
    const double relative = std::abs(x.z[j] + b) + std::abs(b) + 8;
    a.p_bound.push_back(a.p[j] * relative);
    a.dz_bound.push_back(a.p[j] * std::abs(x.dp[j]) * (relative + 3));
    a.dz_terms.push_back(a.p[j] * std::abs(x.dp[j]));
  }
  return a;
}

inline RowAnswer answer(const ReluAttention&, const RowCase& x) {
  RowAnswer a;
  a.p = oracle::relu_attention(x.z);
  a.dz = oracle::relu_attention_backward(x.z, x.dp);
  a.p_bound = a.p;
  for (const double v : a.dz) a.dz_bound.push_back(std::abs(v));
  a.dz_terms = a.dz_bound;
  return a;
}

inline RowAnswer answer(const Softpick& softpick, const RowCase& x) {
  RowAnswer a;
  const double m = detail::top_of(x.z, 0), rest = std::log(x.n()) + x.n() + 32;
  a.p = oracle::softpick(x.z, softpick.epsilon);
  a.dz = oracle::softpick_backward(x.z, softpick.epsilon, x.dp);
  double sum = softpick.epsilon;
  for (std::size_t j = 0; j < x.z.size(); ++j) {
    a.p_bound.push_back(a.p[j] * (m - x.z[j] + rest));
    sum += std::abs(std::expm1(x.z[j]));
  }
  const double error = detail::error_of_delta(x, a), delta = detail::delta_of(x, a),
               terms = detail::terms_of_delta(x, a);
  for (std::size_t j = 0; j < x.z.size(); ++j) {
    a.dz_terms.push_back(std::exp(x.z[j]) / sum * (std::abs(x.dp[j]) + terms));
    const double direct = x.z[j] > 0 ? x.dp[j] - delta : x.z[j] < 0 ? delta : 0;
    a.dz_bound.push_back(std::exp(x.z[j]) / sum * (error + (m - x.z[j] + rest + 3) * std::abs(direct)));
  }
  return a;
}

inline RowAnswer answer(const ScalableSoftmax&, const RowCase& x) {
  RowAnswer a;
  const double log_n = std::log(x.n()), c = x.theta * log_n;
  double top = 0;
  for (const double v : x.z) top = std::max<double>(top, std::abs(c * v));
  a.p = oracle::scalable_softmax(x.z, x.theta);
  a.dz = oracle::scalable_softmax_backward(x.z, x.theta, x.dp);
  a.dtheta = oracle::scalable_softmax_backward_s(x.z, x.theta, x.dp);
  for (const double p : a.p) a.p_bound.push_back(p * (8 * top + log_n + x.n() + 16));
  detail::softmax_gradient_bound(x, a);
  const double delta = detail::delta_of(x, a);
  for (std::size_t j = 0; j < x.z.size(); ++j) {
    const double dy = a.p[j] * std::abs(x.dp[j] - delta);
    a.dtheta_bound += log_n * std::abs(x.z[j]) * (a.dz_bound[j] + (x.n() + 3) * dy);
    a.dtheta_terms += log_n * std::abs(x.z[j]) * a.dz_terms[j];
    a.dz_bound[j] = std::abs(c) * (a.dz_bound[j] + 3 * dy);
    a.dz_terms[j] *= std::abs(c);
  }
  return a;
}

inline RowAnswer answer(const Sparsemax&, const RowCase& x) {
  RowAnswer a;
  a.p = oracle::sparsemax(x.z);
  a.dz = oracle::sparsemax_backward(x.z, x.dp);
  double tau = 0, count = 0, mean = 0;
  for (std::size_t j = 0; j < x.z.size(); ++j)
    if (a.p[j] > 0) tau = x.z[j] - a.p[j], ++count, mean += std::abs(x.dp[j]);
  bool tie = false;  // a score so near to τ that rounding decides whether it belongs to the support
  for (const double v : x.z) tie = tie || std::abs(v - tau) <= 4 * (x.n() + 4 + std::abs(tau)) * x.unit;
  for (std::size_t j = 0; j < x.z.size(); ++j) {
    a.p_bound.push_back(x.n() + 4);
    a.dz_bound.push_back(tie          ? std::numeric_limits<double>::infinity()
                         : a.p[j] > 0 ? std::abs(x.dp[j]) + (x.n() + 2) * mean / count
                                      : 0.0);
    a.dz_terms.push_back(std::abs(x.dp[j]) + mean / std::max<double>(1, count));
  }
  return a;
}

}  // namespace meso::test
