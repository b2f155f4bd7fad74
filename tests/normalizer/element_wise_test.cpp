// Sigmoid and ReLU attention.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <meso/apply.hpp>
#include <meso/normalizer/relu.hpp>
#include <meso/normalizer/sigmoid.hpp>
#include <stdexcept>
#include <string>

#include "support/tolerance.hpp"

BOOST_AUTO_TEST_SUITE(element_wise)

using meso::Index;
using meso::test::within;
constexpr double u = meso::test::unit_roundoff<double>;

// σ(−log c) = 1/(1 + c): the context sets c, whatever the length of the row.
BOOST_AUTO_TEST_CASE(the_sigmoid_bias_is_the_context_or_the_row) {
  const double zeros[5] = {}, *z = zeros;
  for (const auto bias : {meso::SigmoidAttention::Bias::context, meso::SigmoidAttention::Bias::visible}) {
    const double count = bias == meso::SigmoidAttention::Bias::context ? 64 : 5;
    double p[5];
    meso::SigmoidAttention{bias}.forward(meso::Row{0, 4, 5, 64}, meso::array(z, 0), meso::array(z, 5),
                                         meso::array(p, 5));
    for (const double weight : p) BOOST_TEST(within(weight, 1 / (1 + count), (2 * std::log(count) + 8) * u * weight));
  }
}

BOOST_AUTO_TEST_CASE(the_context_of_a_bias_by_context_is_required) {
  const double zeros[5] = {}, *z = zeros;
  double p[5];
  std::string error;
  try {
    meso::SigmoidAttention{}.forward(meso::Row{0, 4, 5, 0}, meso::array(z, 0), meso::array(z, 5), meso::array(p, 5));
  } catch (const std::invalid_argument& e) {
    error = e.what();
  }
  BOOST_TEST(error ==
             "SigmoidAttention: the context is 0, but b = −log(context) needs at least 1; Bias::visible needs none");
  const meso::SigmoidAttention visible{meso::SigmoidAttention::Bias::visible};
  visible.forward(meso::Row{0, 4, 5, 0}, meso::array(z, 0), meso::array(z, 5), meso::array(p, 5));
  for (const double weight : p) BOOST_TEST(within(weight, 1.0 / 6, (2 * std::log(5) + 8) * u * weight));
  BOOST_TEST(meso::apply(meso::SigmoidAttention{}, Eigen::MatrixXf(3, 0)).size() == 0);
}

BOOST_AUTO_TEST_CASE(sigmoid_saturates_without_nan) {
  Eigen::RowVector4f z(-200.0f, -1e30f, 200.0f, 1e30f);
  const Eigen::MatrixXf p = meso::apply(meso::SigmoidAttention{}, z);
  BOOST_TEST(p(0, 0) == 0.0f);
  BOOST_TEST(p(0, 1) == 0.0f);
  BOOST_TEST(p(0, 2) == 1.0f);
  BOOST_TEST(p(0, 3) == 1.0f);
}

BOOST_AUTO_TEST_CASE(relu_divides_by_the_visible_keys) {
  const Eigen::RowVector4d z(-1, 0, 2, 6);
  const Eigen::MatrixXd p = meso::apply(meso::ReluAttention{}, z);
  BOOST_TEST((p.array() == Eigen::RowVector4d(0, 0, 0.5, 1.5).array()).all());
}

BOOST_AUTO_TEST_SUITE_END()
