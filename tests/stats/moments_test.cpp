#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <meso/core/random.hpp>
#include <meso/stats/moments.hpp>
#include <vector>

#include "support/tolerance.hpp"

namespace {

using namespace meso;
using namespace meso::test;

constexpr double u = unit_roundoff<double>;

/// The definition in long double, of x − x_0, which is exact: mean first, then central sums. Its own roundoff, n·2⁻⁶⁴
/// of numbers of the size of σ, does not count.
Moments oracle(const std::vector<double>& x) {
  const long double n = static_cast<long double>(x.size());
  const long double origin = static_cast<long double>(x.front());
  long double mean = 0, m2 = 0, m3 = 0, m4 = 0;
  for (const double v : x) mean += (static_cast<long double>(v) - origin) / n;
  for (const double v : x) {
    const long double d = (static_cast<long double>(v) - origin) - mean;
    m2 += d * d;
    m3 += d * d * d;
    m4 += d * d * d * d;
  }
  return {static_cast<Index>(x.size()), static_cast<double>(origin + mean), static_cast<double>(m2),
          static_cast<double>(m3), static_cast<double>(m4)};
}

std::vector<double> gaussian(Index n, double mean, double scale) {
  const Random random{7, stream_of("moments")};
  std::vector<double> x;
  for (Index i = 0; i < n; ++i) x.push_back(mean + scale * random.normal(static_cast<std::uint64_t>(i)));
  return x;
}

Moments one_pass(const std::vector<double>& x, std::size_t first, std::size_t last) {
  Moments m;
  for (std::size_t i = first; i < last; ++i) m.add(x[i]);
  return m;
}

/// The mean is rounded on output, and as exact as the moments in units of σ. m3 changes sign: its error is measured
/// against √(m2·m4) ≥ |m3| (Cauchy–Schwarz).
void check_moments(const Moments& actual, const Moments& expected, double relative) {
  BOOST_TEST(actual.count == expected.count);
  BOOST_TEST(
      within(actual.mean, expected.mean, u * std::abs(expected.mean) + relative * std::sqrt(expected.variance())));
  BOOST_TEST(within(actual.m2, expected.m2, relative * expected.m2));
  BOOST_TEST(within(actual.m3, expected.m3, relative * std::sqrt(expected.m2 * expected.m4)));
  BOOST_TEST(within(actual.m4, expected.m4, relative * expected.m4));
}

BOOST_AUTO_TEST_SUITE(moments)

BOOST_AUTO_TEST_CASE(closed_form) {
  // 1, 2, 3, 4: deviations ±1/2, ±3/2.
  Moments m;
  for (const double x : {1.0, 2.0, 3.0, 4.0}) m.add(x);
  check_moments(m, {4, 2.5, 5.0, 0.0, 2 * (81.0 + 1.0) / 16}, 32 * u);
  BOOST_TEST(within(m.variance(), 1.25, 32 * u));
  BOOST_TEST(within(m.kurtosis(), 1.64, 1.64 * 96 * u));
  BOOST_TEST(within(m.excess(), -1.36, 1.64 * 96 * u));
  // 0, 0, 1: mean 1/3, m3 = 2·(−1/27) + 8/27.
  Moments skewed;
  for (const double x : {0.0, 0.0, 1.0}) skewed.add(x);
  check_moments(skewed, {3, 1.0 / 3, 2.0 / 3, 6.0 / 27, 18.0 / 81}, 24 * u);
}

BOOST_AUTO_TEST_CASE(one_pass_and_two_pass_agree_with_the_definition) {
  for (const double mean : {0.0, -3.0, 1e6}) {
    const std::vector<double> x = gaussian(999, mean, 1.5);
    const double relative = 8 * 999 * u;
    check_moments(one_pass(x, 0, x.size()), oracle(x), relative);
    check_moments(Moments::of(Eigen::Map<const Eigen::VectorXd>(x.data(), 999)), oracle(x), relative);
  }
}

// Mean 10⁶, σ 10⁻³: nine of the sixteen digits are the mean's. x − mean is exact, by Sterbenz, and the mean is kept in
// two parts, so that the bound 8n·u of centered data holds unchanged.
BOOST_AUTO_TEST_CASE(a_large_mean_costs_no_digits) {
  const std::vector<double> x = gaussian(1000, 1e6, 1e-3);
  const double relative = 8 * 1000 * u;
  check_moments(one_pass(x, 0, x.size()), oracle(x), relative);
  check_moments(Moments::of(Eigen::Map<const Eigen::VectorXd>(x.data(), 1000)), oracle(x), relative);
  Moments merged = one_pass(x, 0, 311);
  merged.merge(one_pass(x, 311, x.size()));
  check_moments(merged, oracle(x), relative);
}

BOOST_AUTO_TEST_CASE(a_merge_equals_one_pass) {
  const std::vector<double> x = gaussian(500, 2.0, 3.0);
  const Moments whole = one_pass(x, 0, x.size());
  for (const std::size_t cut : {0u, 1u, 2u, 250u, 499u, 500u}) {
    Moments merged = one_pass(x, 0, cut);
    merged.merge(one_pass(x, cut, x.size()));
    check_moments(merged, whole, 1e-12);
  }
  Moments pieces;
  for (std::size_t i = 0; i < x.size(); i += 7) pieces.merge(one_pass(x, i, std::min<std::size_t>(i + 7, x.size())));
  check_moments(pieces, whole, 1e-12);
}

// One pass, two passes and merges, of numbers whose fourth powers are no doubles. Few digits: no product with a power of
// two rounds.
BOOST_AUTO_TEST_CASE(a_power_of_two_changes_no_bit_of_the_kurtosis) {
  std::vector<double> x = gaussian(300, 700, 1024);
  for (double& v : x) v = std::round(v);
  const auto of = [](const std::vector<double>& y) {
    return Moments::of(Eigen::Map<const Eigen::VectorXd>(y.data(), static_cast<Index>(y.size())));
  };
  const auto merged = [](const std::vector<double>& y) {
    Moments m;
    for (std::size_t i = 0; i < y.size(); i += 7) m.merge(one_pass(y, i, std::min<std::size_t>(i + 7, y.size())));
    return m;
  };
  BOOST_TEST(one_pass(x, 0, 300).exponent == 0);
  for (const int exponent : {-1020, -700, -256, -200, -100, 100, 213, 225, 260, 700, 1000}) {
    std::vector<double> y = x;
    for (double& v : y) v = std::ldexp(v, exponent);
    BOOST_TEST(of(y).kurtosis() == of(x).kurtosis());
    BOOST_TEST(one_pass(y, 0, 300).kurtosis() == one_pass(x, 0, 300).kurtosis());
    BOOST_TEST(merged(y).kurtosis() == merged(x).kurtosis());
    const Moments m = one_pass(y, 0, 300);
    BOOST_TEST(std::ldexp(m.mean, m.exponent) == std::ldexp(one_pass(x, 0, 300).mean, exponent));
    BOOST_TEST(m.variance() == std::ldexp(one_pass(x, 0, 300).variance(), 2 * exponent));
  }
}

// One huge number among tiny ones, early or late, in one pass or merged: n − 2 + 1/(n − 1).
BOOST_AUTO_TEST_CASE(magnitudes_that_grow_and_shrink) {
  const double largest = 98 + 1.0 / 99, relative = 32 * 100 * u;
  for (const double huge : {1e-150, 1.0, 1e200, std::numeric_limits<double>::max()})
    for (const std::size_t at : {0u, 50u, 99u}) {
      std::vector<double> x(100, std::ldexp(huge, -600));
      x[3] = 0;
      x[at] = -huge;
      BOOST_TEST(within(one_pass(x, 0, 100).kurtosis(), largest, relative * largest));
      for (const std::size_t cut : {1u, 40u, 99u}) {
        Moments left = one_pass(x, 0, cut), right = one_pass(x, cut, 100);
        Moments other = right;
        other.merge(left);
        left.merge(right);
        BOOST_TEST(within(left.kurtosis(), largest, relative * largest));
        BOOST_TEST(within(other.kurtosis(), largest, relative * largest));
      }
    }
  // All magnitudes from 2^−900 up: the largest, alternating in sign, decide. Against the last 40 alone, all others 0.
  std::vector<double> x, y;
  for (int e = -900; e <= 900; ++e) {
    x.push_back(std::ldexp(e % 2 == 0 ? 1.0 : -1.0, e));
    y.push_back(e > 800 ? std::ldexp(x.back(), -860) : 0.0);
  }
  const double kappa = one_pass(y, 0, y.size()).kurtosis();
  BOOST_TEST(within(one_pass(x, 0, x.size()).kurtosis(), kappa, 32 * 1801 * u * kappa));
}

BOOST_AUTO_TEST_CASE(a_number_that_is_not_finite_stays) {
  for (const double size : {1e-200, 1.0, 1e200}) {
    Moments m;
    for (const double x : {size, -size, std::numeric_limits<double>::infinity(), size}) m.add(x);
    BOOST_TEST(std::isnan(m.kurtosis()));
    Moments other;
    other.add(1e300), other.add(-1e300);
    other.merge(m);
    BOOST_TEST(std::isnan(other.kurtosis()));
  }
}

BOOST_AUTO_TEST_CASE(without_data_or_variance_there_is_no_kurtosis) {
  Moments m;
  BOOST_TEST(std::isnan(m.variance()));
  BOOST_TEST(std::isnan(m.kurtosis()));
  m.merge(Moments{});
  BOOST_TEST(m.count == 0);
  for (int i = 0; i < 100; ++i) m.add(0.1);
  BOOST_TEST(std::isnan(m.kurtosis()));
  BOOST_TEST(m.variance() <= 0.1 * 0.1 * 16 * u * u);
  m.add(std::numeric_limits<double>::infinity());
  BOOST_TEST(std::isnan(m.kurtosis()));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(running_mean)

BOOST_AUTO_TEST_CASE(compensates_what_a_plain_sum_loses) {
  RunningMean m;
  for (const double x : {1.0, 1e100, 1.0, -1e100}) m.add(x);
  BOOST_TEST(m.value() == 0.5);
  RunningMean left, right;
  left.add(1.0), left.add(1e100), right.add(1.0), right.add(-1e100);
  left.merge(right);
  BOOST_TEST(left.value() == 0.5);
  BOOST_TEST(left.count == 4);
}

BOOST_AUTO_TEST_CASE(passes_on_what_is_not_finite) {
  RunningMean m;
  BOOST_TEST(std::isnan(m.value()));
  m.add(1);
  m.add(std::numeric_limits<double>::infinity());
  BOOST_TEST(std::isinf(m.value()));
  m.add(std::numeric_limits<double>::quiet_NaN());
  BOOST_TEST(std::isnan(m.value()));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
