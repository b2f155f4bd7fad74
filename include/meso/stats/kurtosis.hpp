#pragma once
#include <meso/core/check.hpp>
#include <meso/core/eigen.hpp>
#include <meso/stats/moments.hpp>

namespace meso {

/// Population kurtosis over all coefficients: κ = mean (x − μ)⁴ / (mean (x − μ)²)². A Gaussian has 3.
/// 1 ≤ κ ≤ n − 2 + 1/(n − 1): the upper bound belongs to one outlier among equal values. Of n independent Gaussian
/// numbers the expectation is 3(n − 1)/(n + 1).
/// Source: Kaul et al., "From Attention to Activation", ICLR 2025 (raw kurtosis, over the channels of a token).
/// Numerics: two-pass, centered, in double, scaled by a power of two where fourth powers would overflow or vanish, as
/// all estimators here are: every finite x has its κ, and a power of two as a factor changes no bit. Takes any dense
/// expression of real numbers, in any storage order.
/// No variance, max|x − μ| ≤ 4u·max|x| with u of the expression's scalar, gives NaN; so do NaN and infinities.
/// Error: relative, about 2(n + 12)·u of double.
template <class Derived>
double kurtosis(const Eigen::DenseBase<Derived>& x) {
  const RowMajorMatrix<double> values = x.derived().template cast<double>().matrix();
  return detail::kurtosis_of(detail::central_sums(values.data(), values.size()),
                             detail::roundoff<typename Derived::Scalar>());
}

/// Excess kurtosis κ − 3 over all coefficients: 0 for a Gaussian.
template <class Derived>
double excess_kurtosis(const Eigen::DenseBase<Derived>& x) {
  return kurtosis(x) - 3;
}

/// Kurtosis of every row, for tokens in rows and channels in columns. Shapes: x (tokens, width), result (tokens).
/// Numerics: as kurtosis, each row by itself.
template <class Derived>
Eigen::VectorXd row_kurtosis(const Eigen::DenseBase<Derived>& x) {
  const RowMajorMatrix<double> values = x.derived().template cast<double>().matrix();
  Eigen::VectorXd result(values.rows());
  for (Index i = 0; i < values.rows(); ++i)
    result[i] = detail::kurtosis_of(detail::central_sums(values.row(i).data(), values.cols()),
                                    detail::roundoff<typename Derived::Scalar>());
  return result;
}

/// Kurtosis over all T·d values of a sequence, with the unbiased standard deviation s: mean (x − μ)⁴ / (s⁴ + 10⁻⁶).
/// It tells outlier channels and outlier tokens apart no more, and is biased low where s⁴ is not ≫ 10⁻⁶.
/// Source: Bondarenko et al., "Quantizable Transformers" (2023), as implemented by the authors.
/// Shapes: x (tokens, width) of one sequence. Fewer than two values give NaN. Below 1e−77 it is mean (x − μ)⁴·10⁶, which
/// may underflow to 0; beyond 1e77 the 10⁻⁶ no longer counts.
/// Error: relative, about 2(n + 14)·u of double.
template <class Derived>
double bondarenko_kurtosis(const Eigen::DenseBase<Derived>& x) {
  const Moments m = Moments::of(x);
  if (m.count < 2) return std::numeric_limits<double>::quiet_NaN();
  const double n = static_cast<double>(m.count), s2 = m.m2 / (n - 1), s4 = s2 * s2, fourth = m.m4 / n;
  if (s4 == 0) return fourth;  // all equal: 0, also where the 10⁻⁶ vanishes
  // Moments of x·2^{−e}: s⁴ has lost 2^{4e}. The smaller of the two terms below the line may vanish.
  const int e = 4 * m.exponent;
  return e <= 0 ? std::ldexp(fourth / (std::ldexp(s4, e) + 1e-6), e) : fourth / (s4 + std::ldexp(1e-6, -e));
}

/// Mean over tokens of ReLU(mean_d x⁴ / s⁴ − 3): an excess with an uncentered numerator and the centered, unbiased s.
/// Source: OSP, "Outlier-Safe Pre-Training" (2025), which averages it over hidden states, embedding and final norm
/// included; that average is the caller's.
/// Shapes: x (tokens, width). A token without variance, as in kurtosis, gives NaN.
/// Error: about 3(width + 14)·u of double times mean (excess + 3).
template <class Derived>
double osp_kurtosis(const Eigen::DenseBase<Derived>& x) {
  RowMajorMatrix<double> values = x.derived().template cast<double>().matrix();
  RunningMean mean;
  for (Index i = 0; i < values.rows(); ++i) {
    detail::scale_by_largest(values.row(i).data(), values.cols());
    const detail::CentralSums s = detail::central_sums(values.row(i).data(), values.cols());
    const double n = static_cast<double>(s.count), s2 = s.m2 / (n - 1);
    const bool varies = s.deviation > 4 * detail::roundoff<typename Derived::Scalar>() * s.top;
    const double excess = values.row(i).array().square().square().mean() / (s2 * s2) - 3;
    mean.add(!varies ? std::numeric_limits<double>::quiet_NaN() : excess < 0 ? 0.0 : excess);
  }
  return mean.value();
}

/// Kurtosis of the channel energies: x̃ = x − mean_d x per token, s_j = mean over tokens of x̃²_j / mean of all x̃²,
/// κ = mean_j s_j². 1 when all channels carry the same energy, width when one carries all.
/// Source: He et al., "Understanding and Minimising Outlier Features in Neural Network Training" (2024).
/// Shapes: x (tokens, width). No variance in any token, max|x̃| ≤ 4u·max|x| with u of the expression's scalar: NaN.
/// Error: relative, about 4(tokens + 2·width + 10)·u of double while the means of tokens are no larger than their σ.
template <class Derived>
double he_kurtosis(const Eigen::DenseBase<Derived>& x) {
  RowMajorMatrix<double> values = x.derived().template cast<double>().matrix();
  if (values.size() == 0) return std::numeric_limits<double>::quiet_NaN();
  detail::scale_by_largest(values.data(), values.size());
  const double limit = 4 * detail::roundoff<typename Derived::Scalar>() * values.cwiseAbs().maxCoeff();
  values.colwise() -= values.rowwise().mean().eval();
  if (values.cwiseAbs().maxCoeff() <= limit) return std::numeric_limits<double>::quiet_NaN();
  const Eigen::RowVectorXd energy = values.cwiseAbs2().colwise().mean();
  return energy.cwiseAbs2().mean() / (energy.mean() * energy.mean());
}

}  // namespace meso
