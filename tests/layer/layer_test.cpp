#include <boost/test/unit_test.hpp>
#include <meso/layer/cross_entropy.hpp>
#include <meso/layer/embedding.hpp>
#include <meso/layer/linear.hpp>
#include <meso/layer/mlp.hpp>
#include <meso/layer/relu.hpp>
#include <meso/layer/swiglu.hpp>

#include "tests/support/gradient_check.hpp"
#include "tests/support/random.hpp"
#include "tests/support/tolerance.hpp"

using namespace meso;
using namespace meso::test;

BOOST_AUTO_TEST_SUITE(layers)

BOOST_AUTO_TEST_CASE(linear_gradients) {
  for (const Index tokens : {1, 5, 300}) {
    RowMajorMatrix<double> x = gaussian<double>(tokens, 3, 1), w = gaussian<double>(4, 3, 2),
                           b = gaussian<double>(1, 4, 3);
    const RowMajorMatrix<double> dy = gaussian<double>(tokens, 4, 4);
    RowMajorMatrix<double> dx = x, dw = w, db = b;
    CpuContext<> context(2);
    linear_backward<PackedProducts, double>(context, cview(x), cview(w), cview(dy), view(dx), view(dw), db.data(),
                                           Accumulate::no);
    const auto f = [&](const double*) {
      RowMajorMatrix<double> y(tokens, 4);
      linear_forward<PackedProducts, double>(context, cview(x), cview(w), b.data(), view(y));
      return (y.array() * dy.array()).sum();
    };
    const GradientCheck options{.magnitude = 20.0 * static_cast<double>(tokens)};
    BOOST_TEST(gradient_agrees("dx", f, x.data(), x.size(), dx.data(), options));
    BOOST_TEST(gradient_agrees("dw", f, w.data(), w.size(), dw.data(), options));
    BOOST_TEST(gradient_agrees("dbias", f, b.data(), b.size(), db.data(), options));

    RowMajorMatrix<double> dw2 = dw, db2 = db;
    linear_backward<PackedProducts, double>(context, cview(x), cview(w), cview(dy), {}, view(dw2), db2.data(),
                                           Accumulate::yes);
    const double tolerance = static_cast<double>(tokens + 4) * unit_roundoff<double> * 50 * static_cast<double>(tokens);
    BOOST_TEST((dw2 - 2 * dw).cwiseAbs().maxCoeff() <= tolerance);
    BOOST_TEST((db2 - 2 * db).cwiseAbs().maxCoeff() <= tolerance);
  }
}

BOOST_AUTO_TEST_CASE(embedding_adds_positions_and_sums_by_token) {
  RowMajorMatrix<double> table(3, 2), positions(2, 2), y(4, 2);
  table << 1, 2, 3, 4, 5, 6;
  positions << 10, 20, 30, 40;
  const std::vector<Token> tokens{2, 0, 2, 2};
  CpuContext<> context(2);
  embedding_forward<PackedProducts, double>(context, tokens, 2, cview(table), cview(positions), view(y));
  RowMajorMatrix<double> expected(4, 2);
  expected << 15, 26, 31, 42, 15, 26, 35, 46;
  BOOST_TEST((y.array() == expected.array()).all());

  RowMajorMatrix<double> dy(4, 2), dtable = RowMajorMatrix<double>::Constant(3, 2, 7), dpositions = positions;
  dy << 1, 2, 4, 8, 16, 32, 64, 128;
  embedding_backward<PackedProducts, double>(context, tokens, cview(dy), view(dtable), Accumulate::no);
  expected.resize(3, 2);
  expected << 4, 8, 0, 0, 81, 162;
  BOOST_TEST((dtable.array() == expected.array()).all());
  embedding_backward<PackedProducts, double>(context, tokens, cview(dy), view(dtable), Accumulate::yes);
  BOOST_TEST((dtable.array() == 2 * expected.array()).all());
  position_backward<PackedProducts, double>(context, 2, cview(dy), view(dpositions), Accumulate::no);
  expected.resize(2, 2);
  expected << 17, 34, 68, 136;
  BOOST_TEST((dpositions.array() == expected.array()).all());

  const std::vector<Token> wrong{0, 3, 0, 0};
  BOOST_CHECK_EXCEPTION(
      (embedding_forward<PackedProducts, double>(context, wrong, 2, cview(table), cview(positions), view(y))),
      std::invalid_argument, [](const std::exception& e) {
        return std::string(e.what()) == "embedding_forward: token 3 at index 1 is outside the vocabulary of 3";
      });
}

BOOST_AUTO_TEST_CASE(cross_entropy_in_closed_form) {
  RowMajorMatrix<double> x = RowMajorMatrix<double>::Constant(3, 4, 2.5), dx = x;
  const std::vector<Token> targets{1, ignored_target, 3};
  CpuContext<> context(2);
  const LossSum loss = cross_entropy<PackedProducts, double>(context, cview(x), targets, view(dx));
  BOOST_TEST(loss.count == 2);
  BOOST_TEST(within(loss.mean(), std::log(4.0), 8 * unit_roundoff<double>));
  RowMajorMatrix<double> expected(3, 4);
  expected << 0.125, -0.375, 0.125, 0.125, 0, 0, 0, 0, 0.125, 0.125, 0.125, -0.375;
  BOOST_TEST((dx.array() == expected.array()).all());
  // In place, and with a scale.
  cross_entropy<PackedProducts, double>(context, cview(x), targets, view(x), 0.5);
  BOOST_TEST((x.array() == 0.5 * expected.array()).all());

  const std::vector<Token> none(3, ignored_target);
  const LossSum empty = cross_entropy<PackedProducts, double>(context, cview(x), none, view(dx));
  BOOST_TEST(empty.count == 0);
  BOOST_TEST(empty.mean() == 0.0);
  BOOST_TEST((dx.array() == 0).all());
  BOOST_CHECK_THROW((cross_entropy<PackedProducts, double>(context, cview(x), std::vector<Token>{0, 4, 0}, view(dx))),
                    std::invalid_argument);
  BOOST_CHECK_THROW((cross_entropy<PackedProducts, double>(context, cview(x), std::vector<Token>{0, -2, 0}, view(dx))),
                    std::invalid_argument);
  BOOST_CHECK_THROW((cross_entropy<PackedProducts, double>(context, cview(x), std::vector<Token>{0, 0}, view(dx))),
                    std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(cross_entropy_gradient_and_extremes) {
  RowMajorMatrix<double> x = gaussian<double>(5, 7, 1, 3.0), dx = x;
  const std::vector<Token> targets{0, 6, ignored_target, 3, 3};
  CpuContext<> context(2);
  cross_entropy<PackedProducts, double>(context, cview(x), targets, view(dx));
  const auto f = [&](const double*) {
    return cross_entropy<PackedProducts, double>(context, cview(x), targets, {}).mean();
  };
  BOOST_TEST(gradient_agrees("dlogits", f, x.data(), x.size(), dx.data(), {.magnitude = 30}));

  RowMajorMatrix<float> huge(2, 3);
  huge << 1e30f, -1e30f, 0, 1e4f, 1e4f, -1e4f;
  RowMajorMatrix<float> dhuge = huge;
  const LossSum loss = cross_entropy<PackedProducts, float>(context, cview(huge), std::vector<Token>{0, 1}, view(dhuge));
  BOOST_TEST(within(loss.sum, std::log(2.0), 8 * unit_roundoff<float>));
  BOOST_TEST(dhuge.allFinite());
  huge(1, 0) = std::numeric_limits<float>::quiet_NaN();
  BOOST_TEST(std::isnan(cross_entropy<PackedProducts, float>(context, cview(huge), std::vector<Token>{0, 1}, {}).sum));
}

template <class A>
void mlp_gradient(const A& activation, Index hidden) {
  RowMajorMatrix<double> x = gaussian<double>(3, preactivation_width<A>(hidden), 1), dx = x;
  const RowMajorMatrix<double> dy = gaussian<double>(3, hidden, 2);
  CpuContext<> context(2);
  activation_backward<PackedProducts, A, double>(context, activation, cview(x), cview(dy), view(dx));
  const auto f = [&](const double*) {
    RowMajorMatrix<double> y(3, hidden);
    activation_forward<PackedProducts, A, double>(context, activation, cview(x), view(y));
    return (y.array() * dy.array()).sum();
  };
  BOOST_TEST(gradient_agrees("dx", f, x.data(), x.size(), dx.data(), {.magnitude = 30}));
}

BOOST_AUTO_TEST_CASE(mlp_gradients) {
  mlp_gradient(Relu{}, 5);
  mlp_gradient(SwiGlu{}, 5);
}

BOOST_AUTO_TEST_SUITE_END()
