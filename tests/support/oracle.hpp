#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <meso/core/random.hpp>
#include <meso/core/view.hpp>
#include <vector>

/// Independent oracles: the defining formula of each op in plain loops and double, with no shift, no Eigen and no code
/// of the library. They overflow where a naive formula does; feed them moderate numbers.
namespace meso::test::oracle {

using Vector = std::vector<double>;

inline std::size_t at(Index i) { return static_cast<std::size_t>(i); }

/// p_i = e^{z_i} / (null + Σ e^{z_j}); null = e^s: 0 for softmax, 1 for softmax-1.
inline Vector null_logit(const Vector& z, double null) {
  double sum = null;
  for (const double v : z) sum += std::exp(v);
  Vector p;
  for (const double v : z) p.push_back(std::exp(v) / sum);
  return p;
}

inline Vector sigmoid(const Vector& z, double bias) {
  Vector p;
  for (const double v : z) p.push_back(1 / (1 + std::exp(-(v + bias))));
  return p;
}

inline Vector relu_attention(const Vector& z) {
  Vector p;
  for (const double v : z) p.push_back(v > 0 ? v / static_cast<double>(z.size()) : 0);
  return p;
}

inline Vector softpick(const Vector& z, double epsilon) {
  double sum = epsilon;
  for (const double v : z) sum += std::abs(std::expm1(v));
  Vector p;
  for (const double v : z) p.push_back(v > 0 ? std::expm1(v) / sum : 0);
  return p;
}

inline Vector scalable_softmax(const Vector& z, double s) {
  Vector y;
  for (const double v : z) y.push_back(s * std::log(static_cast<double>(z.size())) * v);
  return null_logit(y, 0);
}

/// By sorting, as in Martins & Astudillo, Algorithm 1.
inline Vector sparsemax(const Vector& z) {
  Vector sorted = z;
  std::sort(sorted.begin(), sorted.end(), std::greater<double>());
  double sum = 0, tau = 0;
  for (std::size_t k = 1; k <= sorted.size(); ++k) {
    sum += sorted[k - 1];
    if (1 + static_cast<double>(k) * sorted[k - 1] > sum) tau = (sum - 1) / static_cast<double>(k);
  }
  Vector p;
  for (const double v : z) p.push_back(v > tau ? v - tau : 0);
  return p;
}

/// Alternating scaling of K = e^{z/ε}, rows first, rows to sum 1, columns to sum rows/cols; z row-major.
inline Vector sinkhorn(const Vector& z, Index rows, Index cols, double epsilon, Index iterations) {
  Vector p;
  for (const double v : z) p.push_back(std::exp(v / epsilon));
  for (Index t = 1; t <= iterations; ++t) {
    const Index outer = t % 2 == 1 ? rows : cols, inner = t % 2 == 1 ? cols : rows;
    const double target = t % 2 == 1 ? 1.0 : static_cast<double>(rows) / static_cast<double>(cols);
    const auto index = [&](Index a, Index b) { return at(t % 2 == 1 ? a * cols + b : b * cols + a); };
    for (Index a = 0; a < outer; ++a) {
      double sum = 0;
      for (Index b = 0; b < inner; ++b) sum += p[index(a, b)];
      for (Index b = 0; b < inner; ++b) p[index(a, b)] *= target / sum;
    }
  }
  return p;
}

inline double mean(const Vector& x) {
  double sum = 0;
  for (const double v : x) sum += v;
  return sum / static_cast<double>(x.size());
}

inline Vector rms_norm(const Vector& x, const Vector& gain, double epsilon) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  const double root = std::sqrt(sum / static_cast<double>(x.size()) + epsilon);
  Vector y;
  for (std::size_t i = 0; i < x.size(); ++i) y.push_back(gain[gain.size() == 1 ? 0 : i] * x[i] / root);
  return y;
}

inline Vector layer_norm(const Vector& x, const Vector& gain, const Vector& bias, double epsilon) {
  const double m = mean(x);
  double variance = 0;
  for (const double v : x) variance += (v - m) * (v - m);
  const double root = std::sqrt(variance / static_cast<double>(x.size()) + epsilon);
  Vector y;
  for (std::size_t i = 0; i < x.size(); ++i) y.push_back(gain[i] * (x[i] - m) / root + bias[i]);
  return y;
}

inline double gelu(double x) { return x / 2 * std::erfc(-x / std::sqrt(2.0)); }
inline double gelu_tanh(double x) {
  const double pi = 3.14159265358979323846;
  return x / 2 * (1 + std::tanh(std::sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
}
inline double silu(double x) { return x / (1 + std::exp(-x)); }

/// n independent N(0, scale²) numbers, each rounded to S so that a float and a double op see the same ones.
template <class S = double>
Vector normal(std::uint64_t seed, Index n, double scale = 1) {
  Vector x;
  const Random random{seed, 0x0C1E};
  for (Index i = 0; i < n; ++i)
    x.push_back(static_cast<double>(static_cast<S>(scale * random.normal(static_cast<std::uint64_t>(i)))));
  return x;
}

/// The same numbers as an op's scalar.
template <class S>
std::vector<S> as(const Vector& x) {
  std::vector<S> y;
  for (const double v : x) y.push_back(static_cast<S>(v));
  return y;
}

}  // namespace meso::test::oracle
