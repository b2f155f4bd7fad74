#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <meso/stats/kurtosis.hpp>
#include <meso/stats/outliers.hpp>
#include <stdexcept>
#include <vector>

#include "support/random.hpp"
#include "support/tolerance.hpp"

namespace {

using namespace meso;
using namespace meso::test;

constexpr double u = unit_roundoff<double>;
constexpr PositionClass first = PositionClass::first, rest = PositionClass::rest;
constexpr Index width = 32;

/// κ of k equal outliers among 32 channels: (1 − 3q(1−q)) / (q(1−q)), q = k/32.
double planted_kurtosis(Index k) {
  const double q = static_cast<double>(k) / static_cast<double>(width), v = q * (1 - q);
  return (1 - 3 * v) / v;
}
/// Relative error of one κ, 2(n + 12)·u, and of a handful of exact-to-u averages of it.
double bound(double kappa) { return (2 * (width + 12) + 8) * u * kappa; }

/// A batch of `batch` sequences of `time` tokens: the first token has k outliers of the given size, the others ±1.
RowMajorMatrix<float> planted(Index batch, Index time, Index k, float size) {
  RowMajorMatrix<float> x(batch * time, width);
  for (Index i = 0; i < x.rows(); ++i) {
    if (i % time == 0) {
      x.row(i).setZero();
      x.row(i).segment(i % 7, k).setConstant(i % 2 ? -size : size);
    } else {
      x.row(i).setOnes();
      x.row(i).head(width / 2) *= -1.0f;
    }
  }
  return x;
}

template <class F>
void for_each_getter(const HiddenStateStatistics& a, const HiddenStateStatistics& b, F&& same) {
  BOOST_TEST(a.layers() == b.layers());
  for (const PositionClass c : {first, rest}) {
    same(a.kurtosis(c), b.kurtosis(c));
    same(a.max_abs(c), b.max_abs(c));
    for (Index l = 0; l <= a.layers(); ++l) {
      same(a.kurtosis(l, c), b.kurtosis(l, c));
      same(a.max_abs(l, c), b.max_abs(l, c));
      same(a.largest_kurtosis(l, c), b.largest_kurtosis(l, c));
      same(a.largest_abs(l, c), b.largest_abs(l, c));
      BOOST_TEST(a.tokens(l, c) == b.tokens(l, c));
      BOOST_TEST(a.undefined(l, c) == b.undefined(l, c));
    }
  }
}

BOOST_AUTO_TEST_SUITE(hidden_states)

BOOST_AUTO_TEST_CASE(planted_outliers) {
  HiddenStateStatistics s;
  for (const Index layer : {1, 2, 4}) {  // layer 3 is never added, and not averaged in
    const RowMajorMatrix<float> x = planted(3, 5, layer, 10.0f * static_cast<float>(layer));
    s.add(layer, cview(x), 5);
  }
  const RowMajorMatrix<float> embedding = planted(3, 5, 8, 1e4f);
  s.add(0, cview(embedding), 5);

  const double expected = (planted_kurtosis(1) + planted_kurtosis(2) + planted_kurtosis(4)) / 3;
  BOOST_TEST(s.layers() == 4);
  BOOST_TEST(within(s.kurtosis(first), expected, bound(expected)));
  BOOST_TEST(within(s.excess_kurtosis(first), expected - 3, bound(expected)));
  BOOST_TEST(within(s.kurtosis(rest), 1.0, bound(1.0)));
  BOOST_TEST(within(s.max_abs(first), 70.0 / 3, 8 * u * 24));
  BOOST_TEST(s.max_abs(rest) == 1.0);
  for (const Index layer : {1, 2, 4}) {
    BOOST_TEST(within(s.kurtosis(layer, first), planted_kurtosis(layer), bound(planted_kurtosis(layer))));
    BOOST_TEST(within(s.largest_kurtosis(layer, first), planted_kurtosis(layer), bound(planted_kurtosis(layer))));
    BOOST_TEST(within(s.kurtosis_at(layer, 3), 1.0, bound(1.0)));
    BOOST_TEST(s.max_abs_at(layer, 0) == 10.0 * static_cast<double>(layer));
    BOOST_TEST(s.largest_abs(layer, rest) == 1.0);
    BOOST_TEST(s.tokens(layer, first) == 3);
    BOOST_TEST(s.tokens(layer, rest) == 12);
  }
  BOOST_TEST(within(s.kurtosis(0, first), planted_kurtosis(8), bound(planted_kurtosis(8))));
  BOOST_TEST(s.largest_abs(0, first) == 1e4);
}

BOOST_AUTO_TEST_CASE(agrees_with_row_kurtosis) {
  const RowMajorMatrix<float> x = gaussian<float>(24, 19, 21);
  const Eigen::VectorXd kappa = row_kurtosis(x);
  HiddenStateStatistics s;
  s.add(1, x, 24);
  // The same central sums, but row_kurtosis scales by a power of two, which changes no bit.
  for (Index i = 0; i < 24; ++i) BOOST_TEST(s.kurtosis_at(1, i) == kappa[i]);
  BOOST_TEST(within(s.kurtosis(rest), kappa.tail(23).mean(), 24 * u * kappa.maxCoeff()));
  BOOST_TEST(within(s.max_abs(rest), x.cast<double>().bottomRows(23).cwiseAbs().rowwise().maxCoeff().mean(), 1e-14));
}

BOOST_AUTO_TEST_CASE(sequences_first_then_positions) {
  // Position 2 in two sequences (maxima 2, 4), position 3 in one (9): the mean over positions is (3 + 9)/2, not 5.
  Eigen::MatrixXf two = Eigen::MatrixXf::Zero(2, 3), three = Eigen::MatrixXf::Zero(3, 3);
  two(1, 0) = 2, three(1, 0) = 4, three(2, 0) = 9;
  HiddenStateStatistics s;
  s.add(1, two, 2);
  s.add(1, three, 3);
  BOOST_TEST(s.max_abs(rest) == 6.0);
  BOOST_TEST(s.tokens(1, rest) == 3);
  BOOST_TEST(s.positions(1) == 3);
}

BOOST_AUTO_TEST_CASE(tokens_without_kurtosis_are_counted_apart) {
  RowMajorMatrix<float> x = planted(2, 4, 1, 5.0f);
  x.row(2).setConstant(0.1f);  // no variance
  x.row(4).setZero();
  HiddenStateStatistics s;
  s.add(1, x, 4);
  BOOST_TEST(s.undefined(1, first) == 1);
  BOOST_TEST(s.undefined(1, rest) == 1);
  BOOST_TEST(s.tokens(1, rest) == 6);
  BOOST_TEST(within(s.kurtosis(first), planted_kurtosis(1), bound(planted_kurtosis(1))));
  BOOST_TEST(within(s.kurtosis(rest), 1.0, bound(1.0)));
  BOOST_TEST(s.max_abs(first) == 2.5);

  x(5, 3) = std::numeric_limits<float>::quiet_NaN();
  x(6, 3) = -std::numeric_limits<float>::infinity();
  HiddenStateStatistics bad;
  bad.add(1, x, 4);
  BOOST_TEST(bad.undefined(1, rest) == 3);
  BOOST_TEST(within(bad.kurtosis(rest), 1.0, bound(1.0)));
  BOOST_TEST(std::isnan(bad.max_abs(rest)));
  BOOST_TEST(std::isnan(bad.max_abs_at(1, 1)));
  BOOST_TEST(std::isinf(bad.max_abs_at(1, 2)));
  BOOST_TEST(!std::isnan(bad.max_abs(first)));
}

BOOST_AUTO_TEST_CASE(views_with_a_stride_and_every_storage_order) {
  const RowMajorMatrix<double> wide = gaussian<double>(12, 30, 4);
  const View<const double> window = view(wide).block(2, 3, 8, 21);
  const Eigen::MatrixXd columns = map(window);
  HiddenStateStatistics a, b;
  a.add(2, window, 4);
  b.add(2, columns, 4);
  for_each_getter(a, b, [](double x, double y) { BOOST_TEST((x == y || (std::isnan(x) && std::isnan(y)))); });
}

BOOST_AUTO_TEST_CASE(a_merge_equals_one_pass) {
  const RowMajorMatrix<float> x = gaussian<float>(40, 23, 6), y = gaussian<float>(14, 23, 7, 4.0);
  HiddenStateStatistics whole, left, right, empty;
  for (const Index layer : {0, 1, 3}) {
    whole.add(layer, x, 8);
    left.add(layer, x.topRows(16), 8);
    right.add(layer, x.bottomRows(24), 8);
  }
  whole.add(2, y, 7);
  right.add(2, y, 7);
  left.merge(empty);
  left.merge(right);
  empty.merge(left);
  const auto same = [](double a, double b) {
    BOOST_TEST((std::isnan(a) ? std::isnan(b) : std::abs(a - b) <= 1e-12 * b));
  };
  for_each_getter(left, whole, same);
  for_each_getter(empty, whole, same);
}

BOOST_AUTO_TEST_CASE(no_data_and_bad_arguments) {
  HiddenStateStatistics s;
  BOOST_TEST(std::isnan(s.kurtosis(first)));
  BOOST_TEST(std::isnan(s.max_abs(3, rest)));
  BOOST_TEST(std::isnan(s.largest_abs(1, rest)));
  BOOST_TEST(std::isnan(s.kurtosis_at(1, 0)));
  BOOST_TEST(s.layers() == 0);
  const Eigen::MatrixXf x = Eigen::MatrixXf::Random(6, 4);
  BOOST_CHECK_THROW(s.add(1, x, 4), std::invalid_argument);
  BOOST_CHECK_THROW(s.add(1, x, 0), std::invalid_argument);
  BOOST_CHECK_THROW(s.add(-1, x, 3), std::invalid_argument);
  s.add(1, Eigen::MatrixXf(0, 4), 3);
  BOOST_TEST(s.layers() == 0);
  s.add(1, x, 1);  // first tokens alone
  BOOST_TEST(!std::isnan(s.kurtosis(first)));
  BOOST_TEST(std::isnan(s.kurtosis(rest)));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(massive)

BOOST_AUTO_TEST_CASE(planted_massive_activations) {
  Eigen::MatrixXf x = Eigen::MatrixXf::Constant(10, 8, 0.125f);
  x(0, 3) = -2000.0f;
  x(4, 1) = 126.0f;  // 1008 × the median
  x(5, 1) = 125.0f;  // exactly 1000 ×: not more
  x(6, 1) = 100.0f;
  const std::vector<MassiveActivation> found = massive_activations(x);
  BOOST_TEST(found.size() == 2u);
  BOOST_TEST((found[0].row == 0 && found[0].col == 3 && found[0].value == -2000.0));
  BOOST_TEST((found[1].row == 4 && found[1].col == 1 && found[1].value == 126.0));
  BOOST_TEST(massive_activations(x * 0.01f).empty());  // 20 is not massive
  BOOST_TEST(massive_activations(Eigen::MatrixXf(0, 3)).empty());
  // Even count: the median of 1, 2, 4, 4000 is 3, so that 4000 > 1000·3 counts but not at a ratio of 1500.
  const Eigen::Vector4d v(4, 4000, 1, 2);
  BOOST_TEST(massive_activations(v).size() == 1u);
  BOOST_TEST(massive_activations(v, 100, 1500).empty());
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(outlier_channels)

BOOST_AUTO_TEST_CASE(planted_channels) {
  // 4 layers of 25 tokens. Channel 0: 3 tokens in each of 2 layers, 6 % of 100. Channel 1: all tokens of one layer, in
  // exactly 25 % of the layers. Channel 2: 5 tokens only. Channel 3: everywhere, just below 6.
  OutlierChannels channels, left, right;
  for (Index layer = 0; layer < 4; ++layer) {
    Eigen::MatrixXf x = Eigen::MatrixXf::Ones(25, 5);
    if (layer < 2) x.col(0).head(3).setConstant(-6.0f);
    if (layer == 3) x.col(1).setConstant(7.0f);
    if (layer > 0) x.col(2).head(layer == 3 ? 1 : 2).setConstant(100.0f);
    x.col(3).setConstant(5.999f);
    channels.add(layer, x);
    left.add(layer, x.topRows(10));
    right.add(layer, x.bottomRows(15));
  }
  const std::vector<Index> expected{0, 1};
  BOOST_TEST(channels.channels() == expected);
  BOOST_TEST(channels.layer_share(0) == 0.5);
  BOOST_TEST(channels.position_share(0) == 0.06);
  BOOST_TEST(channels.layer_share(1) == 0.25);
  BOOST_TEST(channels.position_share(2) == 0.05);
  left.merge(right);
  BOOST_TEST(left.channels() == expected);
  BOOST_TEST(left.position_share(1) == 0.25);
  BOOST_CHECK_THROW(channels.add(0, Eigen::MatrixXf::Ones(2, 4)), std::invalid_argument);
  BOOST_TEST(OutlierChannels().channels().empty());

  OutlierChannels looser({.position_share = 0.05});
  looser.merge(channels);
  BOOST_TEST(looser.channels().size() == 3u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
