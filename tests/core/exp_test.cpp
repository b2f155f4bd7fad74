#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <meso/core/exp.hpp>
#include <tuple>
#include <unsupported/Eigen/SpecialFunctions>

#include "support/tolerance.hpp"

BOOST_AUTO_TEST_SUITE(core_exp)

using Scalars = std::tuple<float, double>;

// The largest relative error of f against `exact` over a grid of [low, high], in units of u. The grid has an odd number
// of points, so that both the vectorized body and the scalar ends run.
template <class S, class F, class Exact>
double error_in_u(double low, double high, F&& f, Exact&& exact) {
  constexpr meso::Index n = 40003;
  Eigen::Array<S, Eigen::Dynamic, 1> x(n), y(n);
  for (meso::Index i = 0; i < n; ++i) x[i] = static_cast<S>(low + (high - low) * static_cast<double>(i) / (n - 1));
  f(x, y);
  double worst = 0;
  for (meso::Index i = 0; i < n; ++i) {
    const auto expected = exact(static_cast<long double>(x[i]));
    if (expected == 0) continue;
    worst =
        std::max<double>(worst, static_cast<double>(std::abs((static_cast<long double>(y[i]) - expected) / expected)));
  }
  return worst / meso::test::unit_roundoff<S>;
}

// What the error bounds of the normalizers and activations take from Eigen: exp to 5u, expm1 and erf to 8u.
BOOST_AUTO_TEST_CASE_TEMPLATE(elementary_functions_meet_the_errors_that_the_docstrings_assume, S, Scalars) {
  const double low = meso::detail::FlushedExp<S>::lowest, high = -low;
  const auto exp = [](long double x) { return std::exp(x); };
  BOOST_TEST(error_in_u<S>(
                 low, high, [](const auto& x, auto& y) { y = meso::flushed_exp(x); }, exp) <= 5);
  BOOST_TEST(error_in_u<S>(
                 -20, 0, [](const auto& x, auto& y) { y = x.expm1(); }, [](long double x) { return std::expm1(x); }) <=
             8);
  BOOST_TEST(error_in_u<S>(
                 -6, 6, [](const auto& x, auto& y) { y = x.erf(); }, [](long double x) { return std::erf(x); }) <= 8);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(minus_infinity_gives_zero_in_every_lane, S, Scalars) {
  constexpr S infinity = std::numeric_limits<S>::infinity();
  for (meso::Index n = 1; n <= 35; ++n) {
    Eigen::Array<S, Eigen::Dynamic, 1> x = Eigen::Array<S, Eigen::Dynamic, 1>::Constant(n, -infinity);
    Eigen::Array<S, Eigen::Dynamic, 1> y = meso::flushed_exp(x);
    BOOST_TEST((y == S(0)).all());
    x.setConstant(std::numeric_limits<S>::quiet_NaN());
    y = meso::flushed_exp(x);
    BOOST_TEST(y.isNaN().all());
    x.setConstant(infinity);
    y = meso::flushed_exp(x);
    BOOST_TEST((y == infinity).all());
    x.setZero();
    y = meso::flushed_exp(x);
    BOOST_TEST((y == S(1)).all());
  }
}

// No result is subnormal: those below the smallest normal number are 0. At the threshold itself the result may round
// to either side of the smallest normal number by exp's own 5u.
BOOST_AUTO_TEST_CASE_TEMPLATE(results_are_normal_or_zero, S, Scalars) {
  const S lowest = meso::detail::FlushedExp<S>::lowest;
  Eigen::Array<S, Eigen::Dynamic, 1> x(33), y(33);
  for (meso::Index i = 0; i < 33; ++i) x[i] = lowest * (S(1) + S(0.01) * static_cast<S>(i - 16));
  y = meso::flushed_exp(x);
  const double smallest = static_cast<double>((std::numeric_limits<S>::min)()) * (1 - 5 * meso::test::unit_roundoff<S>);
  for (meso::Index i = 0; i < 33; ++i) BOOST_TEST((i > 16 ? y[i] == S(0) : static_cast<double>(y[i]) >= smallest));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(an_element_has_the_same_bits_in_every_lane, S, Scalars) {
  alignas(64) S in[80], out[80];
  for (meso::Index offset = 0; offset < 16; ++offset) {
    for (S& v : in) v = S(-1.2345);
    meso::array(out + offset, 60) = meso::flushed_exp(meso::array(static_cast<const S*>(in), 60));
    for (meso::Index i = 1; i < 60; ++i) BOOST_TEST(out[offset + i] == out[offset]);
  }
}

BOOST_AUTO_TEST_SUITE_END()
