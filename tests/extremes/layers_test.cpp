// Norms, activations, cross-entropy and rotary positions on rows at the ends of the range, forward and backward.
#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <meso/attention/position.hpp>
#include <meso/layer/cross_entropy.hpp>
#include <meso/layer/gelu.hpp>
#include <meso/layer/relu.hpp>
#include <meso/layer/swiglu.hpp>
#include <meso/norm.hpp>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/oracle.hpp"
#include "support/random.hpp"
#include "support/tolerance.hpp"

namespace {

using namespace meso;
using namespace meso::test;

using Scalars = std::tuple<float, double>;
using Norms = std::tuple<LayerNorm, RmsNorm, RmsNormSingle>;
using Elementwise = std::tuple<Gelu, GeluTanh, Relu>;

template <class S>
using Column = Eigen::Array<S, Eigen::Dynamic, 1>;

template <class S>
struct Normed {
  Column<S> y, saved, dx, dtheta;
};

/// One row with gain 1 and bias 0.
template <class S, class N>
Normed<S> normed(const N& norm, const Column<S>& x, const Column<S>& dy) {
  const Index n = x.size();
  Column<S> theta(norm.parameter_count(n));
  norm.initialize(n, array(theta.data(), theta.size()));
  Normed<S> r{Column<S>(n), Column<S>(N::saved_per_row), Column<S>(n), Column<S>::Zero(theta.size())};
  const auto in = [](const Column<S>& v) { return array(v.data(), v.size()); };
  norm.forward(in(theta), in(x), array(r.y.data(), n), array(r.saved.data(), r.saved.size()));
  norm.backward(in(theta), in(x), in(r.saved), in(dy), array(r.dx.data(), n), array(r.dtheta.data(), theta.size()));
  return r;
}

template <class S>
Column<S> slopes(Index n) {
  return Column<S>::LinSpaced(n, S(-1), S(2)) + S(0.25);
}

BOOST_AUTO_TEST_SUITE(extreme_norms)

// Squares of denormals are 0, so that the root is √ε and y = x/√ε.
template <class N, class S>
void denormal_rows() {
  constexpr S tiny = 1000 * std::numeric_limits<S>::denorm_min();
  Column<S> x(6);
  x << tiny, -tiny, 2 * tiny, -2 * tiny, S(0), S(0);  // mean 0
  const Normed<S> r = normed(N{}, x, slopes<S>(6));
  const double root = std::sqrt(static_cast<double>(static_cast<S>(1e-5)));
  for (Index i = 0; i < 6; ++i)
    BOOST_TEST(within(r.y[i], static_cast<double>(x[i]) / root,
                      8 * unit_roundoff<S> * std::abs(static_cast<double>(x[i])) / root +
                          static_cast<double>(std::numeric_limits<S>::denorm_min())));
  BOOST_TEST(r.dx.isFinite().all());
  BOOST_TEST(r.dtheta.isFinite().all());
}
BOOST_AUTO_TEST_CASE_TEMPLATE(denormal_rows_in_float, N, Norms) { denormal_rows<N, float>(); }
BOOST_AUTO_TEST_CASE_TEMPLATE(denormal_rows_in_double, N, Norms) { denormal_rows<N, double>(); }

// One channel: LayerNorm gives β and no gradient; RMSNorm ±1 less ε.
BOOST_AUTO_TEST_CASE_TEMPLATE(one_channel, S, Scalars) {
  const Column<S> x = Column<S>::Constant(1, S(-3)), dy = Column<S>::Constant(1, S(2));
  const Normed<S> layer = normed(LayerNorm{}, x, dy);
  BOOST_TEST(layer.y[0] == S(0));
  BOOST_TEST(layer.dx[0] == S(0));
  BOOST_TEST(layer.dtheta[0] == S(0));
  BOOST_TEST(layer.dtheta[1] == S(2));
  const auto rms = [&](const auto& norm) {
    const Normed<S> r = normed(norm, x, dy);
    const double e = 1e-5, y = -3 / std::sqrt(9 + e);
    BOOST_TEST(within(r.y[0], y, 6 * unit_roundoff<S>));
    // d/dx x/√(x² + ε) = ε/(x² + ε)^{3/2}: 10⁻⁷, the difference of terms of size 2/3.
    BOOST_TEST(within(r.dx[0], 2 * e / std::pow(9 + e, 1.5), (8 + 23) * unit_roundoff<S> * 2 / 3));
  };
  rms(RmsNorm{});
  rms(RmsNormSingle{});
}

// A row of ±10³⁰ is past the range in float: the mean square overflows, the scale becomes 0, and so does y. In double it
// is an ordinary row. This is documented, and finite.
BOOST_AUTO_TEST_CASE_TEMPLATE(squares_that_overflow, N, Norms) {
  const Column<float> x = 1e30f * slopes<float>(7);
  const Normed<float> r = normed(N{}, x, slopes<float>(7));
  BOOST_TEST((r.y == 0.0f).all());
  BOOST_TEST(r.dx.allFinite());
  const Column<double> same = x.cast<double>(), small = same / 1e30;
  const Normed<double> d = normed(N{}, same, slopes<double>(7)),
                       unit = normed(N{.epsilon = 0}, small, slopes<double>(7));
  for (Index i = 0; i < 7; ++i) BOOST_TEST(within(d.y[i], unit.y[i], 40 * unit_roundoff<double>));
}

template <class N, class S>
void not_finite() {
  for (const S bad :
       {std::numeric_limits<S>::infinity(), -std::numeric_limits<S>::infinity(), std::numeric_limits<S>::quiet_NaN()}) {
    for (const Index n : {1, 5, 19}) {
      Column<S> x = slopes<S>(n), dy = slopes<S>(n);
      x[n / 2] = bad;
      const Normed<S> r = normed(N{}, x, dy);
      BOOST_TEST(std::isnan(r.y[n / 2]));
      BOOST_TEST(std::isnan(r.dx[n / 2]));
      x = slopes<S>(n);
      dy[n / 2] = bad;
      const Normed<S> back = normed(N{}, x, dy);
      // The means carry it to every channel; ∞ − ∞ where the channel has it itself.
      BOOST_TEST(!back.dx.isFinite().any());
    }
  }
}
BOOST_AUTO_TEST_CASE_TEMPLATE(what_is_not_finite_comes_out_in_float, N, Norms) { not_finite<N, float>(); }
BOOST_AUTO_TEST_CASE_TEMPLATE(what_is_not_finite_comes_out_in_double, N, Norms) { not_finite<N, double>(); }

// Mean 10⁶, σ 10⁻³: LayerNorm of x is that of x − x_0, an exact difference, on which the oracle loses nothing. The bound
// has r·max|x| = 10⁹: six digits are left of sixteen, as stated, and no more are lost.
BOOST_AUTO_TEST_CASE(cancellation_stays_within_the_stated_bound) {
  const Index n = 64;
  const Column<double> x = gaussian<double>(1, n, 5, 1e-3).row(0).transpose().array() + 1e6, dy = slopes<double>(n);
  oracle::Vector shifted, slope, gain(static_cast<std::size_t>(n), 1.0), bias(static_cast<std::size_t>(n), 0.0);
  for (Index i = 0; i < n; ++i) shifted.push_back(x[i] - x[0]), slope.push_back(dy[i]);
  const LayerNorm norm{.epsilon = 1e-12};
  const Normed<double> r = normed(norm, x, dy);
  const oracle::Vector y = oracle::layer_norm(shifted, gain, bias, norm.epsilon);
  const oracle::Vector dx = oracle::layer_norm_backward(shifted, gain, norm.epsilon, slope);
  const double root = r.saved[1], k = static_cast<double>(n), u = unit_roundoff<double>;
  double top = 0;
  for (const double v : y) top = std::max<double>(top, std::abs(v));
  const double g = dy.abs().maxCoeff(), share = root * x.abs().maxCoeff();
  BOOST_TEST(share > 1e8);
  BOOST_TEST(all_within(r.y.data(), y.data(), n, [&](Index i) {
    return ((k + 2) * share + (k / 2 + 7) * top + std::abs(y[static_cast<std::size_t>(i)])) * u;
  }));
  BOOST_TEST(all_within(r.dx.data(), dx.data(), n, [&](Index) {
    return root * g * (2 * k + 20 + (2.5 * k + 25) * top + (k + 1) * (1 + top) * share) * u;
  }));
  // In float such a row is constant: 10⁶ has a spacing of 1/16.
  const Normed<float> rounded = normed(LayerNorm{}, x.cast<float>().eval(), dy.cast<float>().eval());
  BOOST_TEST((rounded.y == 0.0f).all());
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(extreme_activations)

template <class A, class S>
std::pair<S, S> at(S x, S dy = S(1)) {
  S y[19], dx[19], in[19], slope[19];
  std::fill_n(in, 19, x), std::fill_n(slope, 19, dy);
  A{}.forward(array(static_cast<const S*>(in), 19), array(y, 19));
  A{}.backward(array(static_cast<const S*>(in), 19), array(static_cast<const S*>(slope), 19), array(dx, 19));
  for (int i = 1; i < 19; ++i) {  // every lane alike
    BOOST_TEST((y[i] == y[0] || (std::isnan(y[i]) && std::isnan(y[0]))));
    BOOST_TEST((dx[i] == dx[0] || (std::isnan(dx[i]) && std::isnan(dx[0]))));
  }
  return {y[0], dx[0]};
}

template <class A, class S>
void ends_of_the_range() {
  constexpr S infinity = std::numeric_limits<S>::infinity(), nan = std::numeric_limits<S>::quiet_NaN();
  constexpr S tiny = std::numeric_limits<S>::denorm_min();
  const auto f = [](S x, S dy = S(1)) { return at<A, S>(x, dy); };
  // Up to 10¹⁷, the stated range of GeluTanh's gradient.
  BOOST_TEST((f(S(1e17)) == std::pair<S, S>(S(1e17), S(1))));
  BOOST_TEST((f(S(-1e17)) == std::pair<S, S>(S(0), S(0))));
  BOOST_TEST((f(S(1e30)).first == S(1e30)));
  BOOST_TEST((f(S(-1e30)).first == S(0)));
  // f(x) = x/2 or x near 0; half a denormal is rounded.
  BOOST_TEST(std::abs(f(100 * tiny).first) <= 100 * tiny);
  BOOST_TEST(within(f(100 * tiny).second, std::is_same_v<A, Relu> ? 1 : 0.5, 4 * unit_roundoff<S>));
  BOOST_TEST(f(infinity).first == infinity);
  // The limit 0, or −∞·0.
  BOOST_TEST((f(-infinity).first == S(0) || std::isnan(f(-infinity).first)));
  BOOST_TEST(std::isnan(f(nan).first));
  BOOST_TEST(std::isnan(f(nan).second));
  BOOST_TEST(std::isnan(f(S(1), nan).second));
}
BOOST_AUTO_TEST_CASE_TEMPLATE(ends_of_the_range_in_float, A, Elementwise) { ends_of_the_range<A, float>(); }
BOOST_AUTO_TEST_CASE_TEMPLATE(ends_of_the_range_in_double, A, Elementwise) { ends_of_the_range<A, double>(); }

BOOST_AUTO_TEST_CASE_TEMPLATE(swiglu_keeps_nan, S, Scalars) {
  constexpr S nan = std::numeric_limits<S>::quiet_NaN();
  const auto run = [](S gate, S up, S dy) {
    S y, dgate, dup;
    const auto in = [](const S& v) { return array(&v, 1); };
    SwiGlu{}.forward(in(gate), in(up), array(&y, 1));
    SwiGlu{}.backward(in(gate), in(up), in(dy), array(&dgate, 1), array(&dup, 1));
    return std::array<S, 3>{y, dgate, dup};
  };
  for (const S v : run(nan, S(1), S(1))) BOOST_TEST(std::isnan(v));
  BOOST_TEST(std::isnan(run(S(1), nan, S(1))[0]));
  BOOST_TEST(std::isnan(run(S(1), nan, S(1))[1]));
  BOOST_TEST(std::isnan(run(S(1), S(1), nan)[1]));
  BOOST_TEST(std::isnan(run(S(1), S(1), nan)[2]));
  for (const S size : {S(-1e30), S(1e30)})
    for (const S v : run(size, S(1), S(1))) BOOST_TEST(std::isfinite(v));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(extreme_cross_entropy)

template <class S>
struct Loss {
  double sum;
  RowMajorMatrix<S> dx;
};
template <class S>
Loss<S> loss(const RowMajorMatrix<S>& x, const std::vector<Token>& targets) {
  Loss<S> r{0, RowMajorMatrix<S>::Constant(x.rows(), x.cols(), S(-7))};
  CpuContext<> context(1);
  r.sum = cross_entropy(context, cview(x), targets, view(r.dx)).sum;
  return r;
}

BOOST_AUTO_TEST_CASE_TEMPLATE(infinities_and_nan, S, Scalars) {
  constexpr S infinity = std::numeric_limits<S>::infinity(), nan = std::numeric_limits<S>::quiet_NaN();
  // −∞ beside the target: probability 0, gradient 0.
  RowMajorMatrix<S> x = RowMajorMatrix<S>::Zero(1, 5);
  x(0, 3) = -infinity;
  Loss<S> r = loss(x, {1});
  BOOST_TEST(within(r.sum, std::log(4.0), 15 * unit_roundoff<S>));
  BOOST_TEST(r.dx(0, 3) == S(0));
  BOOST_TEST(r.dx.allFinite());
  // −∞ at the target: an infinite loss, and the finite gradient of p = 0.
  r = loss(x, {3});
  BOOST_TEST(r.sum == std::numeric_limits<double>::infinity());
  BOOST_TEST(r.dx(0, 3) == S(-1));
  BOOST_TEST(r.dx(0, 0) == S(0.25));
  // Nothing but −∞, a +∞, a NaN: NaN in loss and gradient, of this row alone.
  for (const S bad : {-infinity, infinity, nan})
    for (const Index n : {1, 2, 19}) {
      RowMajorMatrix<S> two = RowMajorMatrix<S>::Zero(2, n);
      if (bad == -infinity)
        two.row(0).setConstant(bad);
      else
        two(0, n / 2) = bad;
      r = loss(two, {0, 0});
      BOOST_TEST(std::isnan(r.sum));
      BOOST_TEST(std::isnan(r.dx(0, n / 2)));
      BOOST_TEST(r.dx.row(1).allFinite());
      // An ignored row is not read.
      r = loss(two, {ignored_target, 0});
      BOOST_TEST(std::isfinite(r.sum));
      BOOST_TEST(r.dx.allFinite());
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(huge_and_denormal_logits, S, Scalars) {
  for (const S size : {S(1e4), S(1e30)}) {
    RowMajorMatrix<S> x(2, 3);
    x << size, -size, 0, -size, -size, -size;
    const Loss<S> r = loss(x, {1, 2});
    // The loss 2·size of a rounded difference, and log 3.
    BOOST_TEST(within(r.sum, 2 * static_cast<double>(size) + std::log(3.0),
                      13 * unit_roundoff<S> * 2 * static_cast<double>(size)));
    BOOST_TEST(r.dx(0, 0) == S(0.5));
    BOOST_TEST(r.dx(0, 1) == S(-0.5));
    BOOST_TEST(r.dx(0, 2) == S(0));
    BOOST_TEST(within(r.dx(1, 0), 1.0 / 6, 2 * unit_roundoff<S>));
  }
  RowMajorMatrix<S> x = RowMajorMatrix<S>::Constant(1, 7, 3 * std::numeric_limits<S>::denorm_min());
  x(0, 2) = -std::numeric_limits<S>::denorm_min();
  const Loss<S> r = loss(x, {2});
  BOOST_TEST(within(r.sum, std::log(7.0), 18 * unit_roundoff<S>));
  BOOST_TEST(within(r.dx(0, 2), -6.0 / 7, 20 * unit_roundoff<S>));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(extreme_positions)

BOOST_AUTO_TEST_CASE_TEMPLATE(rotary_keeps_nan_and_large_values, S, Scalars) {
  S row[4];
  Rotary{}.fill(3, 4, array(row, 4));
  const ConstArray<S> table = array(static_cast<const S*>(row), 4);
  S x[4] = {std::numeric_limits<S>::quiet_NaN(), S(1e30), S(1), S(-1e30)};
  Rotary{}.rotate(table, array(x, 4));
  BOOST_TEST(std::isnan(x[0]));
  BOOST_TEST(std::isnan(x[2]));
  BOOST_TEST(std::isfinite(x[1]));
  BOOST_TEST(std::isfinite(x[3]));
  Rotary{}.rotate_back(table, array(x, 4));
  BOOST_TEST(within(x[1], 1e30, 1e30 * 12 * unit_roundoff<S>));
  BOOST_TEST(within(x[3], -1e30, 1e30 * 12 * unit_roundoff<S>));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
