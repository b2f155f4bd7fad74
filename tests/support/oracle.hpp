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

/// Row-major.
struct Matrix {
  Index rows = 0, cols = 0;
  Vector data;

  Matrix() = default;
  Matrix(Index r, Index c) : rows(r), cols(c), data(at(r * c), 0.0) {}
  double& operator()(Index i, Index j) { return data[at(i * cols + j)]; }
  double operator()(Index i, Index j) const { return data[at(i * cols + j)]; }
  Vector row(Index i) const { return Vector(data.begin() + i * cols, data.begin() + (i + 1) * cols); }
};

template <class T>
Matrix matrix(const View<T>& x) {
  Matrix m(x.rows, x.cols);
  for (Index i = 0; i < x.rows; ++i)
    for (Index j = 0; j < x.cols; ++j) m(i, j) = static_cast<double>(x(i, j));
  return m;
}

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

// --- gradients, by the whole Jacobian J_ij = ∂p_i/∂z_j: dz_j = Σ_i dp_i J_ij

template <class J>
Vector through(const Vector& dp, Index n, J&& jacobian) {
  Vector dz(at(n), 0.0);
  for (Index j = 0; j < n; ++j)
    for (std::size_t i = 0; i < dp.size(); ++i) dz[at(j)] += dp[i] * jacobian(static_cast<Index>(i), j);
  return dz;
}
inline double delta(Index i, Index j) { return i == j ? 1 : 0; }

/// p = e^z/(null + Σ e^z): J_ij = p_i (δ_ij − p_j).
inline Vector null_logit_backward(const Vector& z, double null, const Vector& dp) {
  const Vector p = null_logit(z, null);
  return through(dp, static_cast<Index>(z.size()),
                 [&](Index i, Index j) { return p[at(i)] * (delta(i, j) - p[at(j)]); });
}
/// The same with respect to s, null = e^s: ∂p_i/∂s = −p_i p_∅.
inline double null_logit_backward_s(const Vector& z, double null, const Vector& dp) {
  const Vector p = null_logit(z, null);
  double sum = null, ds = 0;
  for (const double v : z) sum += std::exp(v);
  for (std::size_t i = 0; i < z.size(); ++i) ds -= dp[i] * p[i] * null / sum;
  return ds;
}

inline Vector sigmoid_backward(const Vector& z, double bias, const Vector& dp) {
  Vector dz;
  for (std::size_t i = 0; i < z.size(); ++i)
    dz.push_back(dp[i] / ((1 + std::exp(-(z[i] + bias))) * (1 + std::exp(z[i] + bias))));
  return dz;
}

inline Vector relu_attention_backward(const Vector& z, const Vector& dp) {
  Vector dz;
  for (std::size_t i = 0; i < z.size(); ++i) dz.push_back(z[i] > 0 ? dp[i] / static_cast<double>(z.size()) : 0);
  return dz;
}

/// p_i = ReLU(a_i)/D, a = e^z − 1, D = Σ|a| + ε.
inline Vector softpick_backward(const Vector& z, double epsilon, const Vector& dp) {
  double sum = epsilon;
  for (const double v : z) sum += std::abs(std::expm1(v));
  const Vector p = softpick(z, epsilon);
  return through(dp, static_cast<Index>(z.size()), [&](Index i, Index j) {
    const double e = std::exp(z[at(j)]), sign = z[at(j)] > 0 ? 1 : z[at(j)] < 0 ? -1 : 0;
    return (z[at(i)] > 0 ? delta(i, j) * e / sum : 0.0) - p[at(i)] * sign * e / sum;
  });
}

/// p = softmax(c·z), c = s·log n.
inline Vector scalable_softmax_backward(const Vector& z, double s, const Vector& dp) {
  const Vector p = scalable_softmax(z, s);
  const double c = s * std::log(static_cast<double>(z.size()));
  return through(dp, static_cast<Index>(z.size()),
                 [&](Index i, Index j) { return c * p[at(i)] * (delta(i, j) - p[at(j)]); });
}
/// ∂p_i/∂s = log n·Σ_j p_i (δ_ij − p_j) z_j.
inline double scalable_softmax_backward_s(const Vector& z, double s, const Vector& dp) {
  const Vector p = scalable_softmax(z, s);
  double ds = 0;
  for (Index i = 0; i < static_cast<Index>(z.size()); ++i)
    for (Index j = 0; j < static_cast<Index>(z.size()); ++j)
      ds += dp[at(i)] * std::log(static_cast<double>(z.size())) * p[at(i)] * (delta(i, j) - p[at(j)]) * z[at(j)];
  return ds;
}

/// J_ij = δ_ij − 1/|A| on the support A.
inline Vector sparsemax_backward(const Vector& z, const Vector& dp) {
  const Vector p = sparsemax(z);
  double count = 0;
  for (const double v : p) count += v > 0 ? 1 : 0;
  return through(dp, static_cast<Index>(z.size()),
                 [&](Index i, Index j) { return p[at(i)] > 0 && p[at(j)] > 0 ? delta(i, j) - 1 / count : 0.0; });
}

/// Forward mode: the tangent of every coordinate of z, pushed through the plain scaling.
inline Vector sinkhorn_backward(const Vector& z, Index rows, Index cols, double epsilon, Index iterations,
                                const Vector& dp) {
  Vector dz;
  for (std::size_t direction = 0; direction < z.size(); ++direction) {
    Vector p, t(z.size(), 0.0);
    for (const double v : z) p.push_back(std::exp(v / epsilon));
    t[direction] = p[direction] / epsilon;
    for (Index k = 1; k <= iterations; ++k) {
      const Index outer = k % 2 == 1 ? rows : cols, inner = k % 2 == 1 ? cols : rows;
      const double target = k % 2 == 1 ? 1.0 : static_cast<double>(rows) / static_cast<double>(cols);
      const auto index = [&](Index a, Index b) { return at(k % 2 == 1 ? a * cols + b : b * cols + a); };
      for (Index a = 0; a < outer; ++a) {
        double sum = 0, tangent = 0;
        for (Index b = 0; b < inner; ++b) sum += p[index(a, b)], tangent += t[index(a, b)];
        for (Index b = 0; b < inner; ++b) {
          // p ← target·p/sum
          t[index(a, b)] = target * (t[index(a, b)] - p[index(a, b)] * tangent / sum) / sum;
          p[index(a, b)] *= target / sum;
        }
      }
    }
    double sum = 0;
    for (std::size_t i = 0; i < z.size(); ++i) sum += dp[i] * t[i];
    dz.push_back(sum);
  }
  return dz;
}

/// x̂ = (x − mean)/√(var + ε): ∂x̂_i/∂x_j = (δ_ij − 1/n − x̂_i x̂_j/n)/√(var + ε).
inline Vector layer_norm_backward(const Vector& x, const Vector& gain, double epsilon, const Vector& dy) {
  const double n = static_cast<double>(x.size()), m = mean(x);
  double variance = 0;
  for (const double v : x) variance += (v - m) * (v - m);
  const double root = std::sqrt(variance / n + epsilon);
  return through(dy, static_cast<Index>(x.size()), [&](Index i, Index j) {
    return gain[at(i)] * (delta(i, j) - 1 / n - (x[at(i)] - m) / root * (x[at(j)] - m) / root / n) / root;
  });
}
/// x̂ = x/√(mean x² + ε): ∂x̂_i/∂x_j = (δ_ij − x̂_i x̂_j/n)/√(mean x² + ε). One gain, or one a channel.
inline Vector rms_norm_backward(const Vector& x, const Vector& gain, double epsilon, const Vector& dy) {
  const double n = static_cast<double>(x.size());
  double sum = 0;
  for (const double v : x) sum += v * v;
  const double root = std::sqrt(sum / n + epsilon);
  return through(dy, static_cast<Index>(x.size()), [&](Index i, Index j) {
    return gain[gain.size() == 1 ? 0 : at(i)] * (delta(i, j) - x[at(i)] / root * x[at(j)] / root / n) / root;
  });
}

inline double gelu_derivative(double x) {
  return std::erfc(-x / std::sqrt(2.0)) / 2 + x * std::exp(-x * x / 2) / std::sqrt(2 * 3.14159265358979323846);
}
inline double gelu_tanh_derivative(double x) {
  const double c = std::sqrt(2 / 3.14159265358979323846), v = c * (x + 0.044715 * x * x * x), sech = 1 / std::cosh(v);
  return (1 + std::tanh(v)) / 2 + x / 2 * sech * sech * c * (1 + 3 * 0.044715 * x * x);
}
inline double silu_derivative(double x) {
  return 1 / (1 + std::exp(-x)) + x / ((1 + std::exp(-x)) * (1 + std::exp(x)));
}

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
