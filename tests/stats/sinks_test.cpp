#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <meso/core/eigen.hpp>
#include <meso/stats/sinks.hpp>
#include <stdexcept>

#include "support/random.hpp"
#include "support/tolerance.hpp"

namespace {

using namespace meso;
using namespace meso::test;

constexpr double u = unit_roundoff<double>;
constexpr Index T = 12;

/// Causal weights 1/(i + extra) in row i (1-based): softmax of zero logits for extra = 0, softmax-1 for extra = 1.
Eigen::MatrixXd uniform(Index extra) {
  Eigen::MatrixXd p = Eigen::MatrixXd::Constant(T, T, 1e9);  // above the diagonal: never read
  for (Index i = 0; i < T; ++i) p.row(i).head(i + 1).setConstant(1.0 / static_cast<double>(i + 1 + extra));
  return p;
}
/// Mean of f(i) over i = from … T.
template <class F>
double mean(Index from, F&& f) {
  double sum = 0;
  for (Index i = from; i <= T; ++i) sum += f(static_cast<double>(i));
  return sum / static_cast<double>(T - from + 1);
}
/// Means of T terms below 4, each exact to a few u; entropies add T products: (T + 8)·u·4.
constexpr double tolerance = static_cast<double>(T + 8) * u * 4;

BOOST_AUTO_TEST_SUITE(sinks)

BOOST_AUTO_TEST_CASE(uniform_softmax) {
  SinkStatistics s;
  s.add_causal(0, 0, uniform(0));
  BOOST_TEST(s.rows() == T - 1);
  BOOST_TEST(s.first_token_proportion() == 0.0);  // equal weights: none is strictly largest
  BOOST_TEST(s.nowhere_proportion() == 0.0);
  BOOST_TEST(within(s.first_token_mass(), mean(2, [](double i) { return 1 / i; }), tolerance));
  BOOST_TEST(s.null_mass() == 0.0);
  BOOST_TEST(within(s.entropy(), mean(2, [](double i) { return std::log(i); }), tolerance));
}

BOOST_AUTO_TEST_CASE(uniform_softmax_with_query_1) {
  SinkStatistics s({.count_first_query = true});
  s.add_causal(0, 0, uniform(0));
  BOOST_TEST(s.rows() == T);
  BOOST_TEST(within(s.first_token_proportion(), 1.0 / T, u));  // query 1 has no other weight
  BOOST_TEST(within(s.first_token_mass(), mean(1, [](double i) { return 1 / i; }), tolerance));
  BOOST_TEST(within(s.entropy(), mean(1, [](double i) { return std::log(i); }), tolerance));
}

BOOST_AUTO_TEST_CASE(uniform_softmax1) {
  SinkStatistics s;
  const Eigen::MatrixXd p = uniform(1);
  s.add_causal(3, 1, p, p.col(0));
  BOOST_TEST(s.first_token_proportion() == 0.0);
  BOOST_TEST(s.nowhere_proportion() == 0.0);
  BOOST_TEST(within(s.null_mass(), mean(2, [](double i) { return 1 / (i + 1); }), tolerance));
  BOOST_TEST(within(s.first_token_mass(), mean(2, [](double i) { return 1 / (i + 1); }), tolerance));
  BOOST_TEST(within(s.entropy(), mean(2, [](double i) { return std::log(i + 1); }), tolerance));
  BOOST_TEST(s.layers() == 4);
  BOOST_TEST(s.heads() == 2);
  BOOST_TEST(s.rows(3, 1) == T - 1);
  BOOST_TEST(s.rows(3, 0) == 0);
  BOOST_TEST(std::isnan(s.entropy(0)));
}

BOOST_AUTO_TEST_CASE(planted_sink) {
  // Queries 4 … 12 put 5/8 on key 1 and the rest on themselves; queries 1 … 3 attend to themselves alone.
  Eigen::MatrixXf p = Eigen::MatrixXf::Identity(T, T);
  for (Index i = 3; i < T; ++i) p(i, 0) = 0.625f, p(i, i) = 0.375f;
  SinkStatistics s;
  s.add_causal(0, 0, p);
  BOOST_TEST(within(s.first_token_proportion(), 9.0 / 11, 2 * u));
  BOOST_TEST(s.first_token_proportion() == s.first_token_proportion_with_null());
  BOOST_TEST(within(s.first_token_mass(), 9.0 / 11 * 0.625, tolerance));
  const double entropy = -(0.625 * std::log(0.625) + 0.375 * std::log(0.375));
  BOOST_TEST(within(s.entropy(), 9.0 / 11 * entropy, tolerance));
}

BOOST_AUTO_TEST_CASE(a_head_that_attends_nowhere) {
  // Key 1 has the largest of tiny weights: the plain proportion says sink, the one with the null slot says nowhere.
  SinkStatistics s;
  Eigen::ArrayXf p = Eigen::ArrayXf::Constant(8, 0x1p-11f);
  p[0] = 0x1p-10f;
  const double null = 1 - 9 * 0x1p-11;
  s.add_row(0, 0, 7, p, null);
  BOOST_TEST(s.first_token_proportion() == 1.0);
  BOOST_TEST(s.first_token_proportion_with_null() == 0.0);
  BOOST_TEST(s.nowhere_proportion() == 1.0);
  BOOST_TEST(s.first_token_mass() == 0x1p-10);
  const double entropy = 7 * 0x1p-11 * std::log(0x1p11) + 0x1p-10 * std::log(0x1p10) - null * std::log(null);
  BOOST_TEST(within(s.entropy(), entropy, tolerance));
  s.add_row(0, 0, 7, p, 0x1p-10);  // a tie with the null slot counts for neither
  BOOST_TEST(s.first_token_proportion_with_null() == 0.0);
  BOOST_TEST(s.nowhere_proportion() == 0.5);
}

BOOST_AUTO_TEST_CASE(zeros_negatives_and_no_keys) {
  SinkStatistics s;
  s.add_row(0, 0, 3, Eigen::VectorXd::Zero(4), 0.0);
  s.add_row(0, 0, 3, Eigen::VectorXd::Zero(1), 0.0);
  BOOST_TEST(s.first_token_proportion() == 0.0);
  BOOST_TEST(s.entropy() == 0.0);  // 0·ln 0 = 0
  s.add_row(0, 0, 3, Eigen::VectorXd(0), 1.0);
  BOOST_TEST(s.rows() == 3);
  BOOST_TEST(s.nowhere_proportion() == 1.0 / 3);
  BOOST_TEST(s.entropy() == 0.0);
  s.add_row(0, 1, 3, Eigen::Vector3d(0.5, -0.25, 0.75), 0.0);
  BOOST_TEST(std::isnan(s.entropy(0, 1)));
  BOOST_TEST(std::isnan(s.entropy()));
  BOOST_TEST(s.entropy(0, 0) == 0.0);
  // A deficit 1 − Σp < 0 belongs to the null mass, not to the entropy.
  s.add_row(0, 2, 3, Eigen::Vector2d(1.0, 1.0), -1.0);
  BOOST_TEST(s.null_mass(0, 2) == -1.0);
  BOOST_TEST(s.entropy(0, 2) == 0.0);
  s.add_row(0, 3, 3, Eigen::Vector2d(std::numeric_limits<double>::quiet_NaN(), 1.0), 0.0);
  BOOST_TEST(s.first_token_proportion(0, 3) == 0.0);
  BOOST_TEST(std::isnan(s.first_token_mass(0, 3)));
  BOOST_TEST(std::isnan(s.entropy(0, 3)));
  BOOST_CHECK_THROW(s.add_row(0, -1, 3, Eigen::Vector2d(1, 0), 0.0), std::invalid_argument);
  BOOST_CHECK_THROW(s.add_causal(0, 0, Eigen::MatrixXd::Zero(3, 4)), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(sliding_window) {
  // Query 6 sees keys 5, 6, 7 of a window: key 1 has weight 0, however the visible weights lie.
  SinkStatistics s;
  s.add_row(0, 0, 6, Eigen::Vector3d(0.9, 0.05, 0.05), 0.0, 4);
  BOOST_TEST(s.rows() == 1);
  BOOST_TEST(s.first_token_proportion() == 0.0);
  BOOST_TEST(s.first_token_mass() == 0.0);
  s.add_row(0, 0, 2, Eigen::Vector3d(0.9, 0.05, 0.05), 0.0, 0);
  BOOST_TEST(s.first_token_proportion() == 0.5);
}

BOOST_AUTO_TEST_CASE(every_kind_of_row) {
  const RowMajorMatrix<float> p = gaussian<float>(6, 6, 9).cwiseAbs();
  const Eigen::MatrixXf columns = p;
  SinkStatistics rows, maps, blocks, doubled;
  for (Index i = 0; i < 6; ++i) {
    rows.add_row(0, 0, i, columns.row(i).head(i + 1), 0.25);
    maps.add_row(0, 0, i, array(view(p).row(i), i + 1), 0.25);
    blocks.add_row(0, 0, i, columns.transpose().col(i).head(i + 1), 0.25);
    doubled.add_row(0, 0, i, p.row(i).head(i + 1).array() * 2.0f, 0.5);
  }
  SinkStatistics causal;
  causal.add_causal(0, 0, columns, Eigen::RowVectorXd::Constant(6, 0.25));
  for (const SinkStatistics* s : {&maps, &blocks, &causal}) {
    BOOST_TEST(s->entropy() == rows.entropy());
    BOOST_TEST(s->first_token_mass() == rows.first_token_mass());
    BOOST_TEST(s->first_token_proportion() == rows.first_token_proportion());
  }
  BOOST_TEST(doubled.first_token_mass() == 2 * rows.first_token_mass());
}

BOOST_AUTO_TEST_CASE(sink_rate) {
  // α_1 = mean of p_i1 over all queries, query 1 included: uniform weights give H_T/T, ε = 0.3 lies between T = 4
  // (25/48) and T = 12 (3.1/12).
  SinkStatistics s;
  BOOST_TEST(std::isnan(s.sink_rate()));
  s.add_causal(0, 0, uniform(0));
  s.end_sequence();
  BOOST_TEST(s.sink_rate() == 0.0);
  s.add_causal(0, 0, uniform(0).topLeftCorner(4, 4));
  s.add_causal(0, 1, uniform(0).topLeftCorner(4, 4));
  s.end_sequence();
  s.end_sequence();  // nothing is open: nothing is counted
  BOOST_TEST(within(s.sink_rate(), 2.0 / 3, u));
  BOOST_TEST(s.sink_rate(0, 0) == 0.5);
  // Key 2 (0-based) starts at query 3: mean of 1/3, 1/4.
  SinkStatistics third({.sink_key = 2, .sink_threshold = 0.29});
  third.add_causal(0, 0, uniform(0).topLeftCorner(4, 4));
  third.end_sequence();
  BOOST_TEST(third.sink_rate() == 1.0);
}

BOOST_AUTO_TEST_CASE(a_merge_equals_one_pass) {
  SinkStatistics whole, left, right;
  for (Index sequence = 0; sequence < 6; ++sequence)
    for (Index layer = 0; layer < 2; ++layer)
      for (Index head = 0; head < 3; ++head) {
        Eigen::MatrixXd p = gaussian<double>(T, T, static_cast<std::uint64_t>(sequence * 100 + layer * 10 + head));
        p = p.cwiseAbs();
        p.array().colwise() /= p.rowwise().sum().array() + 1;
        const Eigen::VectorXd null = 1 - p.rowwise().sum().array();
        for (SinkStatistics* s : {&whole, sequence % 2 ? &left : &right}) {
          s->add_causal(layer, head, p, null);
          if (layer == 1 && head == 2) s->end_sequence();
        }
      }
  SinkStatistics merged;
  merged.merge(left);
  merged.merge(right);
  for (const Index layer : {SinkStatistics::all, Index{0}, Index{1}})
    for (const Index head : {SinkStatistics::all, Index{2}}) {
      const auto same = [](double a, double b) { BOOST_TEST(within(a, b, 1e-12 * std::abs(b))); };
      BOOST_TEST(merged.rows(layer, head) == whole.rows(layer, head));
      same(merged.first_token_proportion(layer, head), whole.first_token_proportion(layer, head));
      same(merged.first_token_proportion_with_null(layer, head), whole.first_token_proportion_with_null(layer, head));
      same(merged.nowhere_proportion(layer, head), whole.nowhere_proportion(layer, head));
      same(merged.first_token_mass(layer, head), whole.first_token_mass(layer, head));
      same(merged.null_mass(layer, head), whole.null_mass(layer, head));
      same(merged.entropy(layer, head), whole.entropy(layer, head));
      same(merged.sink_rate(layer, head), whole.sink_rate(layer, head));
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
