#include <boost/test/unit_test.hpp>
#include <cmath>
#include <meso/apply.hpp>
#include <meso/normalizer/softpick.hpp>

#include "support/tolerance.hpp"

BOOST_AUTO_TEST_SUITE(softpick)

using meso::test::within;
constexpr double u = meso::test::unit_roundoff<double>;

BOOST_AUTO_TEST_CASE(scores_below_zero_get_nothing_and_still_count) {
  Eigen::RowVector3d z(std::log(3.0), 0.0, -std::log(2.0));  // e^z − 1 = 2, 0, −1/2
  const Eigen::MatrixXd p = meso::apply(meso::Softpick{.epsilon = 0}, z);
  // log 3 and log 2 are rounded: e^z − 1 is off by z·e^z·u < 4u; the op itself is within 32 + n + 2.
  BOOST_TEST(within(p(0, 0), 0.8, 48 * u));
  BOOST_TEST(p(0, 1) == 0);
  BOOST_TEST(p(0, 2) == 0);
}

BOOST_AUTO_TEST_CASE(epsilon_is_scaled_with_the_shift) {
  // One small score x: p = (e^x − 1)/(e^x − 1 + ε); with x = log(1 + ε) it is 1/2.
  const double epsilon = 1e-3;
  const Eigen::MatrixXd z = Eigen::MatrixXd::Constant(1, 1, std::log1p(epsilon));
  BOOST_TEST(within(meso::apply(meso::Softpick{.epsilon = epsilon}, z)(0, 0), 0.5, 48 * u));
}

BOOST_AUTO_TEST_CASE(no_positive_score_gives_zeros) {
  BOOST_TEST((meso::apply(meso::Softpick{}, Eigen::MatrixXf::Zero(2, 19)).array() == 0.0f).all());
  BOOST_TEST((meso::apply(meso::Softpick{}, Eigen::MatrixXf::Constant(2, 19, -1e4f)).array() == 0.0f).all());
}

BOOST_AUTO_TEST_SUITE_END()
