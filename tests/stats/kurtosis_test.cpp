#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <meso/stats/kurtosis.hpp>

#include "support/random.hpp"
#include "support/tolerance.hpp"

namespace {

using namespace meso;
using namespace meso::test;

constexpr double u = unit_roundoff<double>;
constexpr double infinity = std::numeric_limits<double>::infinity();

/// The documented error: 2(n + 12)·u, relative.
double bound(Index n, double kappa) { return 2 * static_cast<double>(n + 12) * u * kappa; }

/// The definition in long double, of x − x(0, 0).
template <class Derived>
double oracle(const Eigen::DenseBase<Derived>& x) {
  const long double n = static_cast<long double>(x.size());
  const auto value = [&](Index i, Index j) {
    return static_cast<long double>(x.derived()(i, j)) - static_cast<long double>(x.derived()(0, 0));
  };
  long double mean = 0, m2 = 0, m4 = 0;
  for (Index i = 0; i < x.rows(); ++i)
    for (Index j = 0; j < x.cols(); ++j) mean += value(i, j) / n;
  for (Index i = 0; i < x.rows(); ++i)
    for (Index j = 0; j < x.cols(); ++j) {
      const long double d = value(i, j) - mean;
      m2 += d * d;
      m4 += d * d * d * d;
    }
  return static_cast<double>(n * m4 / (m2 * m2));
}

BOOST_AUTO_TEST_SUITE(kurtosis_of_an_expression)

BOOST_AUTO_TEST_CASE(closed_form) {
  Eigen::Vector4d x(1, 2, 3, 4);
  BOOST_TEST(within(kurtosis(x), 1.64, bound(4, 1.64)));
  BOOST_TEST(within(excess_kurtosis(x), -1.36, bound(4, 1.64)));
  // Share q of ones among zeros: κ = (1 − 3q(1−q)) / (q(1−q)); q = 1/8 gives 43/7.
  Eigen::VectorXf ones = Eigen::VectorXf::Zero(64);
  ones.head(8).setOnes();
  BOOST_TEST(within(kurtosis(ones), 43.0 / 7, bound(64, 43.0 / 7)));
}

BOOST_AUTO_TEST_CASE(both_bounds_are_attained) {
  // Upper: d − 2 + 1/(d − 1) for one outlier. Lower: 1 for ±a in equal numbers.
  for (const Index d : {2, 3, 5, 128, 1001}) {
    Eigen::VectorXd x = Eigen::VectorXd::Constant(d, 3.0);
    x[d / 2] = -40.0;
    const double n = static_cast<double>(d), largest = n - 2 + 1 / (n - 1);
    BOOST_TEST(within(kurtosis(x), largest, bound(d, largest)));
  }
  Eigen::VectorXf x = Eigen::VectorXf::Constant(126, 0.7f);
  x.head(63) *= -1.0f;
  BOOST_TEST(within(kurtosis(x), 1.0, bound(126, 1.0)));
}

BOOST_AUTO_TEST_CASE(gaussian_expectation) {
  // E κ = 3(d − 1)/(d + 1), Var κ = 24 d(d−2)(d−3) / ((d+1)²(d+3)(d+5)) for d independent Gaussian numbers; five
  // standard errors of the mean over 2000 rows.
  const Index d = 128, rows = 2000;
  const double n = static_cast<double>(d);
  const Eigen::VectorXd kappa = row_kurtosis(gaussian<float>(rows, d, 11));
  const double variance = 24 * n * (n - 2) * (n - 3) / ((n + 1) * (n + 1) * (n + 3) * (n + 5));
  BOOST_TEST(within(kappa.mean(), 3 * (n - 1) / (n + 1), 5 * std::sqrt(variance / static_cast<double>(rows))));
}

BOOST_AUTO_TEST_CASE(any_expression_and_storage_order) {
  const RowMajorMatrix<float> x = gaussian<float>(13, 17, 3);
  const Eigen::MatrixXf columns = x;
  const double expected = oracle(x), tolerance = bound(13 * 17, expected);
  BOOST_TEST(within(kurtosis(x), expected, tolerance));
  BOOST_TEST(within(kurtosis(columns), expected, tolerance));
  BOOST_TEST(within(kurtosis(columns.array()), expected, tolerance));
  BOOST_TEST(within(kurtosis(columns.transpose()), expected, tolerance));
  BOOST_TEST(within(kurtosis(x.block(1, 2, 5, 7)), oracle(x.block(1, 2, 5, 7)), tolerance));
  BOOST_TEST(within(kurtosis(columns.row(4)), oracle(columns.row(4)), tolerance));
  BOOST_TEST(within(kurtosis(-4.0f * columns), expected, tolerance));  // exact in float
  const Eigen::MatrixXd product = x.cast<double>() * columns.transpose().cast<double>();
  BOOST_TEST(kurtosis(x.cast<double>() * columns.transpose().cast<double>()) == kurtosis(product));
  const Eigen::MatrixXi integers = (columns * 100.0f).cast<int>();
  BOOST_TEST(within(kurtosis(integers), oracle(integers), tolerance));
  BOOST_TEST(kurtosis(integers) == kurtosis(integers.cast<double>()));
  BOOST_TEST(kurtosis(integers) == kurtosis(integers.cast<float>()));  // |integers| < 2²⁴
}

BOOST_AUTO_TEST_CASE(rows) {
  const RowMajorMatrix<float> x = gaussian<float>(9, 33, 5);
  const Eigen::MatrixXf columns = x;
  const Eigen::VectorXd kappa = row_kurtosis(x);
  BOOST_TEST(kappa.size() == 9);
  for (Index i = 0; i < 9; ++i) BOOST_TEST(within(kappa[i], oracle(x.row(i)), bound(33, kappa[i])));
  BOOST_TEST((row_kurtosis(columns) == kappa));
  BOOST_TEST((row_kurtosis(2.0f * columns.array()) == kappa));  // a power of two changes no bit
  BOOST_TEST(row_kurtosis(Eigen::MatrixXf(0, 4)).size() == 0);
  BOOST_TEST(row_kurtosis(Eigen::MatrixXf(2, 0)).array().isNaN().all());
}

// Mean 10⁶, σ 10⁻³: x − μ is exact (Sterbenz), and the rounding error of μ is subtracted again, so that the bound of
// centered data holds.
BOOST_AUTO_TEST_CASE(a_large_mean_costs_no_digits) {
  const Eigen::ArrayXd x = gaussian<double>(1, 1000, 8, 1e-3).row(0).array() + 1e6;
  const double expected = oracle(x);
  BOOST_TEST(within(kurtosis(x), expected, bound(1000, expected)));
}

BOOST_AUTO_TEST_CASE(extreme_magnitudes) {
  const double smallest = std::numeric_limits<double>::denorm_min(), largest = std::numeric_limits<double>::max();
  for (const double scale : {smallest, 1e-310, 1e-100, 1e100, largest}) {
    Eigen::VectorXd x = Eigen::VectorXd::Zero(5);
    x[3] = scale;
    BOOST_TEST(within(kurtosis(x), 3.25, bound(5, 3.25)));
  }
  for (const float scale : {std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::max()}) {
    Eigen::VectorXf x = Eigen::VectorXf::Zero(5);
    x[3] = -scale;
    BOOST_TEST(within(kurtosis(x), 3.25, bound(5, 3.25)));
  }
}

BOOST_AUTO_TEST_CASE(no_variance_gives_nan) {
  for (const Index n : {0, 1, 3, 1000}) {
    BOOST_TEST(std::isnan(kurtosis(Eigen::VectorXf::Constant(n, 0.1f))));
    BOOST_TEST(std::isnan(kurtosis(Eigen::VectorXd::Constant(n, 0.1))));
    BOOST_TEST(std::isnan(kurtosis(Eigen::VectorXd::Zero(n))));
    BOOST_TEST(std::isnan(kurtosis(Eigen::VectorXi::Constant(n, 12345))));
  }
  // One number of 8 off by ε = 2u: max|x − μ| = 7/8·2u ≤ 4u·max|x|. Off by 8u: 7u > 4u.
  Eigen::VectorXf x = Eigen::VectorXf::Ones(8);
  const float epsilon = std::numeric_limits<float>::epsilon();
  x[2] = 1.0f + epsilon;
  BOOST_TEST(std::isnan(kurtosis(x)));
  BOOST_TEST(!std::isnan(kurtosis(x.cast<double>())));
  x[2] = 1.0f + 4 * epsilon;
  BOOST_TEST(within(kurtosis(x), 6 + 1.0 / 7, bound(8, 7)));
}

BOOST_AUTO_TEST_CASE(what_is_not_finite_gives_nan) {
  Eigen::VectorXd x = Eigen::VectorXd::LinSpaced(9, 0, 1);
  for (const double v : {std::numeric_limits<double>::quiet_NaN(), infinity, -infinity}) {
    for (const Index i : {0, 5, 8}) {
      Eigen::VectorXd y = x;
      y[i] = v;
      BOOST_TEST(std::isnan(kurtosis(y)));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(other_estimators)

BOOST_AUTO_TEST_CASE(bondarenko) {
  // ±1 in equal numbers, n = 8: s² = 8/7, mean d⁴ = 1.
  Eigen::MatrixXd x = Eigen::MatrixXd::Ones(2, 4);
  x.row(1) *= -1.0;
  const double expected = 1 / (64.0 / 49 + 1e-6);
  BOOST_TEST(within(bondarenko_kurtosis(x), expected, bound(8, expected)));
  for (const double value : {1e-300, 1.0, 1e300})
    BOOST_TEST(within(bondarenko_kurtosis(Eigen::MatrixXd::Constant(2, 4, value)), 0.0, 0.0));
  BOOST_TEST(std::isnan(bondarenko_kurtosis(Eigen::MatrixXd::Ones(1, 1))));
}

BOOST_AUTO_TEST_CASE(osp) {
  // One-hot of 100 channels: mean x⁴ = 1/100, s² = 1/100, so 100 − 3. ±1: 1/s⁴ = (99/100)² < 3 counts as 0.
  Eigen::MatrixXd x = Eigen::MatrixXd::Zero(2, 100);
  x(0, 7) = 1.0;
  x.row(1).head(50).setOnes();
  x.row(1).tail(50).setConstant(-1.0);
  BOOST_TEST(within(osp_kurtosis(x), 97.0 / 2, bound(100, 100)));
  BOOST_TEST(std::isnan(osp_kurtosis(Eigen::MatrixXd::Zero(2, 3))));
}

BOOST_AUTO_TEST_CASE(he) {
  // Energies 9, 1, 1, 1 of mean 3: κ = (9 + 3/9)/4.
  Eigen::MatrixXf x(2, 4);
  x << 3, -1, -1, -1, -3, 1, 1, 1;
  BOOST_TEST(within(he_kurtosis(x), 7.0 / 3, bound(8, 7.0 / 3)));
  BOOST_TEST(within(he_kurtosis(x.array() + 5.0f), 7.0 / 3, bound(8, 7.0 / 3)));  // a shift of tokens is removed
}

// All estimators scale alike. Numbers of few digits: no product with a power of two rounds.
BOOST_AUTO_TEST_CASE(a_power_of_two_changes_no_bit) {
  const RowMajorMatrix<double> x =
      (gaussian<double>(6, 50, 4).array() * 1024 + 700).unaryExpr([](double v) { return std::round(v); });
  for (const int exponent : {-1020, -1000, -700, -400, -256, -193, -192, -100, 100, 213, 225, 260, 400, 700, 1000}) {
    const RowMajorMatrix<double> y = std::ldexp(1.0, exponent / 2) * x * std::ldexp(1.0, exponent - exponent / 2);
    BOOST_TEST(kurtosis(y) == kurtosis(x));
    BOOST_TEST((row_kurtosis(y) == row_kurtosis(x)));
    BOOST_TEST(osp_kurtosis(y) == osp_kurtosis(x));
    BOOST_TEST(he_kurtosis(y) == he_kurtosis(x));
  }
  for (const double size : {1e-300, 1e-100, 1e-78, 1e76, 1e78, 1e100, 1e290}) {
    const RowMajorMatrix<double> y = size * x;
    BOOST_TEST(within(kurtosis(y), kurtosis(x), 2 * bound(300, kurtosis(x))));
    BOOST_TEST(within(osp_kurtosis(y), osp_kurtosis(x), 2 * 3 * 64 * u * (osp_kurtosis(x) + 3)));
    BOOST_TEST(within(he_kurtosis(y), he_kurtosis(x), 2 * 4 * 116 * u * he_kurtosis(x)));
  }
  const double most = std::numeric_limits<double>::max();
  BOOST_TEST(within(osp_kurtosis(Eigen::RowVector4d(most, -most, most, -most)), 0.0, 0.0));
  BOOST_TEST(within(he_kurtosis(Eigen::RowVector4d(most, -most, most, -most)), 1.0, bound(4, 1)));
}

// A row is scaled by itself.
BOOST_AUTO_TEST_CASE(rows_of_different_magnitudes) {
  Eigen::MatrixXd x = Eigen::MatrixXd::Zero(4, 100);
  for (Index i = 0; i < 4; ++i) x(i, 7 * i) = std::ldexp(1.0, static_cast<int>(600 * i - 900));
  const Eigen::VectorXd kappa = row_kurtosis(x);
  for (Index i = 0; i < 4; ++i) BOOST_TEST(within(kappa[i], 98 + 1.0 / 99, bound(100, 100)));
  BOOST_TEST(within(osp_kurtosis(x), 97.0, bound(100, 100)));
  // The largest token has all the energy.
  BOOST_TEST(within(he_kurtosis(x), he_kurtosis(x.row(3)), bound(100, 100)));
}

// ±a in equal numbers, n = 8: a⁴/((64/49)a⁴ + 10⁻⁶), also where a⁴ is no double.
BOOST_AUTO_TEST_CASE(bondarenko_at_every_magnitude) {
  for (const double a : {1e-300, 1e-100, 1e-81, 1e-79, 1e-76, 1e-58, 1e-50, 1e-20, 0.03, 1.0, 1e20, 1e66, 1e70, 1e76,
                         1e78, 1e100, 1e300}) {
    Eigen::MatrixXd x = Eigen::MatrixXd::Constant(2, 4, a);
    x.row(1) *= -1.0;
    const long double fourth = std::pow(static_cast<long double>(a), 4);
    const double expected = static_cast<double>(fourth / (64 * fourth / 49 + 1e-6L));
    BOOST_TEST(within(bondarenko_kurtosis(x), expected,
                      2 * 22 * u * expected + 2 * std::numeric_limits<double>::denorm_min()));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
