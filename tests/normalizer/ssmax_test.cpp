#include <boost/test/unit_test.hpp>
#include <cmath>
#include <meso/apply.hpp>
#include <meso/normalizer/softmax.hpp>
#include <meso/normalizer/ssmax.hpp>

#include "support/tolerance.hpp"

BOOST_AUTO_TEST_SUITE(ssmax)

using meso::Index;
using meso::test::within;
constexpr double u = meso::test::unit_roundoff<double>;

double initial(Index context) {
  double s = -1;
  meso::ScalableSoftmax{}.initialize(meso::Row{0, 0, 0, context}, meso::array(&s, 1));
  return s;
}

// Initially the mean of s·log n over the rows n = 1 … T of a causal context is 1.
BOOST_AUTO_TEST_CASE(the_mean_multiplier_is_one) {
  for (const Index context : {2, 3, 16, 1024}) {
    double sum = 0;
    for (Index n = 1; n <= context; ++n) sum += initial(context) * std::log(static_cast<double>(n));
    // T additions of positive terms; lgamma to 4 ulp.
    BOOST_TEST(within(sum / static_cast<double>(context), 1, (static_cast<double>(context) + 16) * u));
  }
  BOOST_TEST(initial(1) == 1);
  BOOST_TEST(initial(0) == 1);
}

// softmax(s·log n·z) with z = [1/s, 0, …]: the first weight is n/(n + n − 1).
BOOST_AUTO_TEST_CASE(closed_form) {
  for (const Index n : {2, 5, 17}) {
    Eigen::MatrixXd z = Eigen::MatrixXd::Zero(1, n);
    z(0, 0) = 1 / initial(n);
    const double count = static_cast<double>(n), p = meso::apply(meso::ScalableSoftmax{}, z)(0, 0);
    BOOST_TEST(within(p, count / (2 * count - 1), (9 * std::log(count) + count + 16) * u));
  }
}

BOOST_AUTO_TEST_CASE(one_key_gets_everything) {
  BOOST_TEST(meso::apply(meso::ScalableSoftmax{}, Eigen::MatrixXf::Constant(3, 1, -5.0f)).isConstant(1.0f, 0.0f));
}

BOOST_AUTO_TEST_SUITE_END()
