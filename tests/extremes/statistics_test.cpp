// Statistics and quantizers where kurtosis_test.cpp, moments_test.cpp and quantize_test.cpp stop.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <meso/optim.hpp>
#include <meso/quant/absmax.hpp>
#include <meso/quant/zeropoint.hpp>
#include <meso/stats.hpp>
#include <stdexcept>
#include <vector>

#include "support/oracle_stats.hpp"
#include "support/random.hpp"
#include "support/tolerance.hpp"

namespace {

using namespace meso;
using namespace meso::test;

constexpr double u = unit_roundoff<double>;
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

BOOST_AUTO_TEST_SUITE(extreme_statistics)

// A kurtosis needs a variance: of one channel, and of equal ones, there is none, by whatever estimator.
BOOST_AUTO_TEST_CASE(one_channel_and_constant_rows) {
  for (const Eigen::MatrixXd& x :
       {Eigen::MatrixXd(Eigen::MatrixXd::Random(3, 1)), Eigen::MatrixXd(Eigen::MatrixXd::Constant(3, 5, 0.1))}) {
    BOOST_TEST(row_kurtosis(x).array().isNaN().all());
    BOOST_TEST(std::isnan(osp_kurtosis(x)));
    HiddenStateStatistics s;
    const RowMajorMatrix<float> rows = x.cast<float>();
    s.add(1, view(rows), 3);
    BOOST_TEST(s.undefined(1, PositionClass::first) == 1);
    BOOST_TEST(s.undefined(1, PositionClass::rest) == 2);
    BOOST_TEST(std::isnan(s.kurtosis(PositionClass::rest)));
    BOOST_TEST(std::isfinite(s.max_abs(PositionClass::rest)));
  }
  BOOST_TEST(std::isnan(he_kurtosis(Eigen::MatrixXd(Eigen::MatrixXd::Random(3, 1)))));
  BOOST_TEST(std::isnan(he_kurtosis(Eigen::MatrixXf(Eigen::MatrixXf::Constant(3, 5, 0.1f)))));
  BOOST_TEST(std::isnan(he_kurtosis(Eigen::MatrixXd(0, 5))));
  BOOST_TEST(std::isnan(he_kurtosis(Eigen::MatrixXd(3, 0))));
  BOOST_TEST(bondarenko_kurtosis(Eigen::MatrixXd(Eigen::MatrixXd::Constant(3, 5, 0.5))) == 0.0);
}

// Mean 10⁶, σ 10⁻³, in windows of rows: every token's κ to the bound of centered data.
BOOST_AUTO_TEST_CASE(a_large_mean_in_every_estimator_that_centers) {
  const RowMajorMatrix<double> x = gaussian<double>(6, 200, 8, 1e-3).array() + 1e6;
  const Eigen::VectorXd kappa = row_kurtosis(x);
  HiddenStateStatistics s;
  s.add(1, view(x), 3);
  double first = 0;
  for (Index i = 0; i < 6; ++i) {
    const double exact = oracle::kurtosis(oracle::matrix(view(x)).row(i));
    BOOST_TEST(within(kappa[i], exact, 2 * 212 * u * exact));
    if (i % 3 == 0) first += exact / 2;
  }
  BOOST_TEST(within(s.kurtosis(PositionClass::first), first, (2 * 212 + 8) * u * first));
  const double exact = oracle::bondarenko_kurtosis(oracle::matrix(view(x)).data);
  BOOST_TEST(within(bondarenko_kurtosis(x), exact, 2 * 1214 * u * exact));
  // In float these numbers are equal, and have none.
  BOOST_TEST(row_kurtosis(x.cast<float>()).array().isNaN().all());
}

// The bound d − 2 + 1/(d − 1) of one outlier, by the streaming statistics, at 10⁻³⁰ to 10¹⁸.
BOOST_AUTO_TEST_CASE(the_upper_bound_at_every_magnitude) {
  const Index d = 64;
  const double largest = 62 + 1.0 / 63;
  for (const float size : {1e-30f, 1.0f, 1e15f, 1e18f}) {
    RowMajorMatrix<float> x = RowMajorMatrix<float>::Zero(2, d);
    x(0, 5) = size, x(1, 60) = -size;
    HiddenStateStatistics s;
    s.add(1, view(x), 2);
    BOOST_TEST(within(s.largest_kurtosis(1, PositionClass::first), largest, 2 * 76 * u * largest));
    BOOST_TEST(within(s.largest_kurtosis(1, PositionClass::rest), largest, 2 * 76 * u * largest));
    BOOST_TEST(s.largest_abs(1, PositionClass::rest) == static_cast<double>(size));
  }
}

// Double rows beyond the range of fourth powers, each scaled by itself.
BOOST_AUTO_TEST_CASE(tokens_of_doubles_at_every_magnitude) {
  const double largest = 62 + 1.0 / 63, sizes[] = {1e-320, 1e-300, 1e-78, 1.0, 1e78, 1e300, 1.7e308};
  RowMajorMatrix<double> x = RowMajorMatrix<double>::Zero(7, 64);
  for (Index i = 0; i < 7; ++i) x(i, 9 * i) = -sizes[i];
  std::vector<TokenStatistics> tokens;
  token_statistics(x, tokens);
  for (std::size_t i = 0; i < 7; ++i) {
    BOOST_TEST(within(tokens[i].kurtosis, largest, 2 * 76 * u * largest));
    BOOST_TEST(tokens[i].top == sizes[i]);
  }
}

BOOST_AUTO_TEST_CASE(nan_weights_come_out_of_the_sink_statistics) {
  for (const Index at : {0, 3, 7}) {
    SinkStatistics s;
    Eigen::ArrayXf p = Eigen::ArrayXf::Constant(8, 0.125f);
    p[at] = std::numeric_limits<float>::quiet_NaN();
    s.add_row(0, 0, 7, p, 0.0);
    BOOST_TEST(std::isnan(s.entropy()));
    if (at == 0) BOOST_TEST(std::isnan(s.first_token_mass()));
  }
  SinkStatistics s;
  s.add_row(0, 0, 7, Eigen::ArrayXf::Constant(8, 0.125f), nan);
  BOOST_TEST(std::isnan(s.null_mass()));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(extreme_quantizers)

// ±max/2 and ±max: the extremes hit the last level, at any number of bits.
BOOST_AUTO_TEST_CASE(the_largest_numbers) {
  const float largest = std::numeric_limits<float>::max();
  for (int bits = 2; bits <= 8; ++bits) {
    const Eigen::Vector3f x(largest / 2, -largest / 2, 0);
    for (const Eigen::VectorXf& back :
         {Eigen::VectorXf(fake_quantize(x, Absmax{bits})), Eigen::VectorXf(fake_quantize(x, Zeropoint{bits}))}) {
      BOOST_TEST(back.allFinite());
      BOOST_TEST(back[2] == 0.0f);
    }
    const auto q = quantize(Eigen::Vector2f(largest, -largest), Absmax{bits});
    BOOST_TEST(static_cast<int>(q.values(0, 0)) == (1 << (bits - 1)) - 1);
    BOOST_TEST(static_cast<int>(q.values(1, 0)) == -((1 << (bits - 1)) - 1));
  }
}

// x/s = k + 1/2 exactly, for every k: to even, or away from zero, as the policy says, and symmetric in sign.
BOOST_AUTO_TEST_CASE(every_tie_of_eight_bits) {
  RowMajorMatrix<double> x(2, 127);
  for (Index k = 0; k < 127; ++k) x(0, k) = static_cast<double>(k) + 0.5, x(1, k) = -x(0, k);
  x(0, 126) = 127, x(1, 126) = -127;  // s = 1
  const auto even = quantize(x, Absmax{8}), away = quantize(x, Absmax{8}, per_tensor, HalfAway{});
  BOOST_TEST(even.scales(0, 0) == 1.0);
  for (Index k = 0; k < 126; ++k) {
    const int nearest = static_cast<int>(k + k % 2);
    BOOST_TEST(static_cast<int>(even.values(0, k)) == nearest);
    BOOST_TEST(static_cast<int>(even.values(1, k)) == -nearest);
    BOOST_TEST(static_cast<int>(away.values(0, k)) == static_cast<int>(k) + 1);
    BOOST_TEST(static_cast<int>(away.values(1, k)) == -static_cast<int>(k) - 1);
  }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(extreme_gradients)

// Whatever is not finite in a gradient ends up in the parameter as NaN, and the norm tells before the step.
template <class Rule>
void not_finite(Rule rule) {
  for (const double bad : {nan, infinity, -infinity}) {
    Optimizer<Rule> optimizer(rule);
    Eigen::VectorXd theta = Eigen::VectorXd::Ones(5), g = Eigen::VectorXd::Ones(5);
    g[3] = bad;
    for (int step = 0; step < 3; ++step) optimizer.step(theta, g);
    BOOST_TEST(!std::isfinite(theta[3]));
    BOOST_TEST(theta.head(3).allFinite());
    g.setOnes();
    optimizer.step(theta, g);
    BOOST_TEST(!std::isfinite(theta[3]));
  }
}
BOOST_AUTO_TEST_CASE(what_is_not_finite_comes_out) {
  not_finite(SgdRule{.momentum = 0.9});
  not_finite(RmsPropRule{});
  not_finite(RmsPropRule{.momentum = 0.9, .centered = true});
  not_finite(AdamRule{});
  not_finite(AdamWRule{});
  ParameterLayout layout;
  layout.add("g", 1, 5, ParameterKind::matrix);
  CpuContext<> context(1);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Parameters<float> g(layout);
    g[0](0, 2) = bad;
    BOOST_TEST(!std::isfinite(global_norm(context, g)));
    // ∞: the factor 0 turns the gradient into NaN, which the step does not hide.
    const double scale = clip_scale(global_norm(context, g), 1.0);
    BOOST_TEST(std::isnan(scale * static_cast<double>(bad)));
  }
}

// Squares that underflow: the step is m̂/ε, finite and of the gradient's sign. Squares that overflow in float: the step is
// that of every first gradient, lr, within 12u.
BOOST_AUTO_TEST_CASE(tiny_and_huge_gradients_of_adam) {
  Eigen::VectorXf theta = Eigen::VectorXf::Zero(3);
  Adam(AdamRule{.learning_rate = 1}).step(theta, Eigen::Vector3f(1e-30f, -1e-30f, 1e-44f));
  BOOST_TEST(within(theta[0], -1e-22, 1e-22 * 24 * unit_roundoff<float>));
  BOOST_TEST(within(theta[1], 1e-22, 1e-22 * 24 * unit_roundoff<float>));
  BOOST_TEST(std::isfinite(theta[2]));
  Eigen::VectorXf huge = Eigen::VectorXf::Ones(1);
  Adam(AdamRule{.learning_rate = 1}).step(huge, Eigen::VectorXf::Constant(1, 1e30f));
  BOOST_TEST(within(huge[0], 0.0, 12 * unit_roundoff<float>));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
