#pragma once
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <meso/core/view.hpp>
#include <meso/stats/power_of_two.hpp>
#include <meso/stats/running_mean.hpp>
#include <type_traits>

namespace meso {

namespace detail {

/// x ← x·2^{−exponent} by the power of two of the largest; returns the exponent.
inline int scale_by_largest(double* x, Index n) {
  Eigen::Map<Eigen::ArrayXd> values(x, n);
  const PowerOfTwo scale = PowerOfTwo::of(n > 0 ? values.abs().maxCoeff() : 0.0);
  if (scale.exponent != 0) values = values * scale.half * scale.rest;
  return scale.exponent;
}

/// Central sums m_k = Σ (x − mean)^k of one run, with top = max|x| and deviation = max|x − mean|; all of them of
/// x·2^{−exponent}.
struct CentralSums {
  Index count = 0;
  int exponent = 0;
  double mean = 0, residual = 0;  // mean + residual is the mean before rounding
  double m2 = 0, m3 = 0, m4 = 0;
  double top = 0, deviation = 0;
};

/// Two passes in double: μ̂ = Σx/n, then d = x − μ̂, whose sums are shifted by δ = Σd/n, the rounding error of μ̂.
/// Four lanes, added in a fixed order: the same bits for every vector width. No finite x overflows; see PowerOfTwo.
/// Error: relative, of m2 and m4 about (n + 12)·u as long as σ ≫ u·top.
template <class T>
CentralSums central_sums(const T* x, Index n) {
  if constexpr (std::is_same_v<T, double>) {  // the fourth powers of all floats are in range
    const Eigen::Map<const Eigen::ArrayXd> values(x, n);
    if (n > 0 && PowerOfTwo::of(values.abs().maxCoeff()).exponent != 0) {
      Eigen::ArrayXd scaled = values;
      const int exponent = scale_by_largest(scaled.data(), n);
      CentralSums sums = central_sums<double>(scaled.data(), n);
      sums.exponent = exponent;
      return sums;
    }
  }
  using Lanes = Eigen::Array<double, 4, 1>;
  using Load = Eigen::Map<const Eigen::Array<T, 4, 1>>;
  CentralSums out;
  out.count = n;
  if (n == 0) return out;
  const Index whole = n / 4 * 4;
  const double count = static_cast<double>(n);

  Lanes sum = Lanes::Zero(), top = Lanes::Zero();
  for (Index i = 0; i < whole; i += 4) {
    const Lanes v = Load(x + i).template cast<double>();
    sum += v;
    top = (top.max)(v.abs());
  }
  for (Index i = whole; i < n; ++i) {
    const double v = static_cast<double>(x[i]);
    sum[i - whole] += v;
    top[i - whole] = std::fmax(top[i - whole], std::abs(v));
  }
  const double center = sum.sum() / count;
  out.top = top.maxCoeff();

  Lanes s1 = Lanes::Zero(), s2 = Lanes::Zero(), s3 = Lanes::Zero(), s4 = Lanes::Zero();
  Lanes low = Lanes::Constant(static_cast<double>(x[0]) - center), high = low;
  for (Index i = 0; i < whole; i += 4) {
    const Lanes d = Load(x + i).template cast<double>() - center;
    const Lanes d2 = d * d;
    s1 += d;
    s2 += d2;
    s3 += d2 * d;
    s4 += d2 * d2;
    low = (low.min)(d);
    high = (high.max)(d);
  }
  for (Index i = whole; i < n; ++i) {
    const double d = static_cast<double>(x[i]) - center, d2 = d * d;
    const Index lane = i - whole;
    s1[lane] += d;
    s2[lane] += d2;
    s3[lane] += d2 * d;
    s4[lane] += d2 * d2;
    low[lane] = std::fmin(low[lane], d);
    high[lane] = std::fmax(high[lane], d);
  }
  const double shift = s1.sum() / count, shift2 = shift * shift;
  const double square = s2.sum(), cube = s3.sum();
  out.mean = center + shift;
  out.residual = (center - out.mean) + shift;
  out.m2 = square - count * shift2;
  out.m3 = cube - 3 * shift * square + 2 * count * shift2 * shift;
  out.m4 = s4.sum() - 4 * shift * cube + 6 * shift2 * square - 3 * count * shift2 * shift2;
  out.deviation = std::fmax(high.maxCoeff() - shift, shift - low.minCoeff());
  if (!std::isfinite(out.m2)) {  // a NaN or an infinity, which the vector maximum may lose
    out.top = 0;
    for (Index i = 0; i < n && !std::isnan(out.top); ++i) {
      const double v = std::abs(static_cast<double>(x[i]));
      if (!(v <= out.top)) out.top = v;
    }
  }
  return out;
}

/// Unit roundoff of a scalar type, but at least that of double: integers have none.
template <class S>
double roundoff() {
  return std::fmax(static_cast<double>(Eigen::NumTraits<S>::epsilon()), std::numeric_limits<double>::epsilon()) / 2;
}

/// n·m4/m2², NaN without variance: max|x − μ| ≤ 4u·max|x|.
inline double kurtosis_of(const CentralSums& s, double u) {
  if (s.count == 0 || s.deviation <= 4 * u * s.top) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(s.count) * s.m4 / (s.m2 * s.m2);
}

}  // namespace detail

/// Streaming central moments m_k = Σ (x − mean)^k, k = 2, 3, 4, in double, mergeable: merging the moments of two parts
/// gives those of the union.
/// Source: P. Pébay, "Formulas for Robust, One-Pass Parallel Computation of Covariances and Arbitrary-Order Statistical
/// Moments" (SAND2008-6212).
/// Numerics: the mean is held in two parts, mean + residual, so that a mean ≫ σ costs no digits of the moments. All
/// members are of x·2^{−exponent}; the exponent is 0 while numbers lie between 1e−57 and 1e67, and any finite numbers
/// have a kurtosis.
/// Error: relative, of m2 and m4 about 8n·u, of m3 as much of √(m2·m4).
struct Moments {
  Index count = 0;
  double mean = 0;
  double m2 = 0, m3 = 0, m4 = 0;
  double residual = 0;  ///< what is lost when the mean is rounded
  int exponent = 0;  ///< (mean + residual)·2^exponent is the mean of x, m_k·2^{k·exponent} the sum of (x − mean)^k

  /// Moments of all coefficients of a dense expression, two-pass.
  template <class Derived>
  static Moments of(const Eigen::DenseBase<Derived>& x) {
    const Eigen::ArrayXXd values = x.derived().template cast<double>().array();
    const detail::CentralSums s = detail::central_sums(values.data(), values.size());
    return {s.count, s.mean, s.m2, s.m3, s.m4, s.residual, s.exponent};
  }

  void add(double x) {
    make_room(std::abs(x));
    if (exponent != 0) x = std::ldexp(x, -exponent);
    const double before = static_cast<double>(count), n = before + 1;
    const double delta = (x - mean) - residual, step = delta / n, step2 = step * step, term = delta * step * before;
    ++count;
    m4 += term * step2 * (n * n - 3 * n + 3) + 6 * step2 * m2 - 4 * step * m3;
    m3 += term * step * (n - 2) - 3 * step * m2;
    m2 += term;
    move(step);
  }

  void merge(Moments other) {
    if (other.count == 0) return;
    if (count == 0) {
      *this = other;
      return;
    }
    const int common = all_zero() ? other.exponent : other.all_zero() ? exponent : (std::max)(exponent, other.exponent);
    rescale(common);
    other.rescale(common);
    const double a = static_cast<double>(count), b = static_cast<double>(other.count), n = a + b;
    const double delta = (other.mean - mean) + (other.residual - residual), step = delta / n,
                 square = delta * step * a * b;  // δ²·ab/n
    m4 += other.m4 + square * step * step * (a * a - a * b + b * b) +
          6 * step * step * (a * a * other.m2 + b * b * m2) + 4 * step * (a * other.m3 - b * m3);
    m3 += other.m3 + square * step * (a - b) + 3 * step * (a * other.m2 - b * m2);
    m2 += other.m2 + square;
    count += other.count;
    move(step * b);
  }

  /// Population variance m2/n; NaN without data.
  double variance() const { return std::ldexp(m2 / static_cast<double>(count), 2 * exponent); }
  /// Population kurtosis n·m4/m2², 3 for a Gaussian. NaN without data, and where the standard deviation is within
  /// rounding of the mean, σ ≤ 4u·|mean|.
  double kurtosis() const {
    const double limit = 4 * detail::roundoff<double>() * mean;
    if (!(m2 / static_cast<double>(count) > limit * limit)) return std::numeric_limits<double>::quiet_NaN();
    return static_cast<double>(count) * m4 / (m2 * m2);
  }
  /// κ − 3.
  double excess() const { return kurtosis() - 3; }

 private:
  bool all_zero() const { return mean == 0 && m2 == 0; }
  // Before a number of this size comes.
  void make_room(double size) {
    if (all_zero())
      exponent = detail::PowerOfTwo::of(size).exponent;
    else if (std::isfinite(size) && size > (exponent == 0 ? 0x1p224 : std::ldexp(0x1p224, exponent)))
      rescale(std::ilogb(size));
  }
  void rescale(int to) {
    const int by = exponent - to;
    if (by == 0) return;
    mean = std::ldexp(mean, by);
    residual = std::ldexp(residual, by);
    m2 = std::ldexp(m2, 2 * by);
    m3 = std::ldexp(m3, 3 * by);
    m4 = std::ldexp(m4, 4 * by);
    exponent = to;
  }
  void move(double step) {
    const double next = mean + step;
    residual += std::abs(mean) >= std::abs(step) ? (mean - next) + step : (step - next) + mean;
    mean = next + residual;
    residual += next - mean;
  }
};

}  // namespace meso
