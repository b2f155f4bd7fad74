#include <algorithm>
#include <meso/attention/position.hpp>
#include <meso/layer.hpp>

#include "golden.hpp"

using namespace meso;
using namespace meso::test;

namespace {

double magnitude(auto x) { return std::abs(static_cast<double>(x)); }

/// `forward` and `backward` give the bounds, in roundings, at the input x, the factor of the gradient being dy;
/// of a gated activation x and up are the two inputs.
template <class S, class A, class Forward, class Backward>
void check_activation(const std::string& name, const A& activation, Forward&& forward, Backward&& backward) {
  const RowMajorMatrix<S> x = golden::load<S>(name + "/x"), dy = golden::load<S>(name + "/dy");
  CpuContext<> context(2);
  RowMajorMatrix<S> y(dy.rows(), dy.cols()), dx(x.rows(), x.cols());
  activation_forward(context, activation, cview(x), view(y));
  activation_backward(context, activation, cview(x), cview(dy), view(dx));
  const Index hidden = dy.cols(), up = A::gated ? hidden : 0;
  BOOST_TEST(golden::agrees<S>(name + "/y", y, [&](Index i, Index j) {
    return forward(static_cast<double>(x(i, j)), static_cast<double>(x(i, j + up)));
  }));
  BOOST_TEST(golden::agrees<S>(name + "/dx", dx, [&](Index i, Index j) {
    const Index k = j % hidden;
    return magnitude(dy(i, k)) * backward(static_cast<double>(x(i, k)), static_cast<double>(x(i, k + up)), j >= hidden);
  }));
}

template <class S>
void check_linear(const std::string& name, bool bias) {
  const RowMajorMatrix<S> x = golden::load<S>(name + "/x"), w = golden::load<S>(name + "/w"),
                          dy = golden::load<S>(name + "/dy");
  const RowMajorMatrix<S> b = bias ? golden::load<S>(name + "/bias") : RowMajorMatrix<S>();
  CpuContext<> context(2);
  RowMajorMatrix<S> y(x.rows(), w.rows()), dx(x.rows(), x.cols()), dw(w.rows(), w.cols()), db(1, w.rows());
  linear_forward(context, cview(x), cview(w), bias ? b.data() : nullptr, view(y));
  linear_backward(context, cview(x), cview(w), cview(dy), view(dx), view(dw), bias ? db.data() : nullptr,
                  Accumulate::no);
  // A sum of k products, in any order: k roundings of Σ|a||b|.
  const auto absolute = [](const RowMajorMatrix<S>& m) {
    return Eigen::MatrixXd(m.template cast<double>().cwiseAbs());
  };
  const Eigen::MatrixXd ax = absolute(x), aw = absolute(w), ady = absolute(dy);
  const auto products = [](const Eigen::MatrixXd& sum, Index terms) {
    return [&sum, k = static_cast<double>(terms + 3)](Index i, Index j) { return k * sum(i, j); };
  };
  Eigen::MatrixXd terms = ax * aw.transpose();
  if (bias) terms.rowwise() += absolute(b).row(0);
  BOOST_TEST(golden::agrees<S>(name + "/y", y, products(terms, x.cols())));
  terms = ady * aw;
  BOOST_TEST(golden::agrees<S>(name + "/dx", dx, products(terms, w.rows())));
  terms = ady.transpose() * ax;
  BOOST_TEST(golden::agrees<S>(name + "/dw", dw, products(terms, x.rows())));
  terms = ady.colwise().sum();
  if (bias) BOOST_TEST(golden::agrees<S>(name + "/dbias", db, products(terms, x.rows())));
}

template <class S>
void check_cross_entropy(const std::string& name) {
  const RowMajorMatrix<S> x = golden::load<S>(name + "/logits");
  const std::vector<Token> targets = golden::load_integers(name + "/targets");
  CpuContext<> context(2);
  RowMajorMatrix<S> dx(x.rows(), x.cols()), loss(1, 1);
  const LossSum sum = cross_entropy(context, cview(x), targets, view(dx));
  // The loss is compared in double, as it is returned.
  const RowMajorMatrix<double> mean = RowMajorMatrix<double>::Constant(1, 1, sum.mean());
  const double n = static_cast<double>(x.cols()), spread = 2 * golden::largest(x);
  const double expected = golden::load<double>(name + "/loss")(0, 0);
  BOOST_TEST(within(mean(0, 0), expected, (n + 10) * (1 + spread) * golden::roundings<S>));
  // dx = (p − onehot)/count: p errs by spread + n + 12 roundings of itself at most.
  BOOST_TEST(golden::agrees<S>(name + "/dlogits", dx,
                               [&](Index, Index) { return (spread + n + 12) / static_cast<double>(sum.count); }));
}

BOOST_AUTO_TEST_SUITE(golden_layer)

BOOST_AUTO_TEST_CASE_TEMPLATE(relu, S, golden::Scalars) {
  check_activation<S>(
      "layer/relu", Relu{}, [](double, double) { return 0; }, [](double, double, bool) { return 0; });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(gelu, S, golden::Scalars) {
  // Φ + xφ: 6 of Φ; xφ ≤ 1/4 with its 8 roundings, and x²/2 roundings of the exponent, x³φ ≤ 1/2.
  check_activation<S>(
      "layer/gelu", Gelu{}, [](double x, double) { return 8 * std::abs(x); }, [](double, double, bool) { return 10; });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(gelu_tanh, S, golden::Scalars) {
  // s·(1 + x(1 − s)·v'): 20 of moderate terms, and one rounding of 1 − s times x·v', v' = 1.6·(1 + 0.134x²), until
  // s rounds to 1, before x = 8.
  check_activation<S>(
      "layer/gelu_tanh", GeluTanh{}, [](double x, double) { return 11 * std::abs(x); },
      [](double x, double, bool) {
        const double t = std::min<double>(std::abs(x), 8);
        return 20 + t * 1.6 * (1 + 0.134 * t * t);
      });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(swiglu, S, golden::Scalars) {
  // dgate = dy·up·σ·(1 + g(1 − σ)): 12 roundings of each term, g·σ of the difference; dup = dy·g·σ: 10 of itself.
  check_activation<S>(
      "layer/swiglu", SwiGlu{}, [](double g, double up) { return 10 * std::abs(g * up); },
      [](double g, double up, bool is_up) { return is_up ? 10 * std::abs(g) : std::abs(up) * (12 + 4 * std::abs(g)); });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(linear, S, golden::Scalars) {
  check_linear<S>("layer/linear_7_3", true);
  check_linear<S>("layer/linear_7_3_no_bias", false);
  check_linear<S>("layer/linear_1_4", true);
  check_linear<S>("layer/linear_40_33", true);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(embedding, S, golden::Scalars) {
  const std::string name = "layer/embedding";
  const std::vector<Token> tokens = golden::load_integers(name + "/tokens");
  const RowMajorMatrix<S> table = golden::load<S>(name + "/table"), positions = golden::load<S>(name + "/positions"),
                          dy = golden::load<S>(name + "/dy");
  CpuContext<> context(2);
  RowMajorMatrix<S> y(dy.rows(), dy.cols()), dtable(table.rows(), table.cols()), dp(positions.rows(), positions.cols());
  embedding_forward(context, tokens, 5, cview(table), cview(positions), view(y));
  embedding_backward(context, tokens, cview(dy), view(dtable), Accumulate::no);
  position_backward(context, 5, cview(dy), view(dp), Accumulate::no);
  // Sums of at most 10 rows.
  const double sum = 10 * 10 * golden::largest(dy);
  BOOST_TEST(golden::agrees<S>(name + "/y", y, [&](Index i, Index j) { return magnitude(y(i, j)); }));
  BOOST_TEST(golden::agrees<S>(name + "/dtable", dtable, [&](Index, Index) { return sum; }));
  BOOST_TEST(golden::agrees<S>(name + "/dpositions", dp, [&](Index, Index) { return sum; }));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(cross_entropy_of_counted_targets, S, golden::Scalars) {
  for (const std::string name : {"cross_entropy", "cross_entropy_ignored", "cross_entropy_large"})
    check_cross_entropy<S>("layer/" + name);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(rotary, S, golden::Scalars) {
  for (const std::string base : {"10000", "500000"}) {
    const std::string name = "layer/rotary_" + base;
    const Rotary position{.base = std::stod(base)};
    RowMajorMatrix<S> y = golden::load<S>(name + "/x"), dx = golden::load<S>(name + "/dy");
    const Index head_size = 6;
    Buffer<S> table(position.table_size(head_size));
    for (Index t = 0; t < y.rows(); ++t) {
      position.fill(t, head_size, array(table.data(), table.size()));
      const ConstArray<S> row = array(static_cast<const S*>(table.data()), table.size());
      for (Index h = 0; h < 3; ++h) {
        position.rotate(row, array(y.row(t).data() + h * head_size, head_size));
        position.rotate_back(row, array(dx.row(t).data() + h * head_size, head_size));
      }
    }
    // a·cos − b·sin: 4 roundings of |a| + |b|, and 4 of the angle, below 12, in double on both sides.
    const double top = 2 * golden::largest(y);
    BOOST_TEST(golden::agrees<S>(name + "/y", y, [&](Index, Index) { return (4 + 4 * 12) * top; }));
    BOOST_TEST(
        golden::agrees<S>(name + "/dx", dx, [&](Index, Index) { return (4 + 4 * 12) * 2 * golden::largest(dx); }));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
