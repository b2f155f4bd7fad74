// Scores and null logits at the ends of the range, forward and backward. What normalizer/*_test.cpp has (±10⁴ and −∞
// forward, NaN forward, masked rows) is not repeated.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <meso/normalizer.hpp>
#include <tuple>
#include <vector>

#include "support/tolerance.hpp"

namespace {

using namespace meso;
using namespace meso::test;

struct Softmax4 : SoftmaxN {
  Softmax4() { n = 4; }
};
using All = std::tuple<Softmax, Softmax1, Softmax4, LearnedSink, SigmoidAttention, ReluAttention, Softpick,
                       ScalableSoftmax, Sparsemax>;
using Scalars = std::tuple<float, double>;

template <class S>
using Column = Eigen::Array<S, Eigen::Dynamic, 1>;

template <class S>
struct Result {
  Column<S> p, dz;
  S dtheta = S(0);
  bool finite() const { return p.isFinite().all() && dz.isFinite().all() && std::isfinite(dtheta); }
};

template <class S, class N>
Result<S> run(const N& normalizer, const Column<S>& z, const Column<S>& dp, S theta = S(0.5)) {
  const Index n = z.size();
  Result<S> r{Column<S>::Constant(n, S(-7)), Column<S>::Constant(n, S(-7))};
  const auto in = [](const Column<S>& x) { return array(x.data(), x.size()); };
  const ConstArray<S> parameter = array(static_cast<const S*>(&theta), N::parameters_per_head);
  const Row row{0, n - 1, n, n};
  normalizer.forward(row, parameter, in(z), array(r.p.data(), n));
  normalizer.backward(row, parameter, in(z), in(r.p), in(dp), array(r.dz.data(), n),
                      array(&r.dtheta, N::parameters_per_head));
  return r;
}

/// n different slopes, none of them 0.
template <class S>
Column<S> slopes(Index n) {
  return Column<S>::LinSpaced(n, S(-1), S(2)) + S(0.25);
}

BOOST_AUTO_TEST_SUITE(extreme_scores)

// ReLU attention is linear in the score: p = z/n, finite as long as z is. All others have p ≤ 1.
template <class N, class S>
void huge_scores() {
  for (const S size : {S(1e4), S(1e30)})
    for (const Index n : {1, 2, 3, 8, 19}) {
      Column<S> mixed = Column<S>::Constant(n, -size);
      mixed[n / 2] = size;
      if (n > 2) mixed[0] = S(0);
      for (const Column<S>& z : {Column<S>::Constant(n, size).eval(), Column<S>::Constant(n, -size).eval(), mixed}) {
        const Result<S> r = run(N{}, z, slopes<S>(n));
        BOOST_TEST(r.finite());
        BOOST_TEST((r.p >= S(0)).all());
        if constexpr (!std::is_same_v<N, ReluAttention>) BOOST_TEST((r.p <= S(1)).all());
      }
    }
}
BOOST_AUTO_TEST_CASE_TEMPLATE(huge_scores_in_float, N, All) { huge_scores<N, float>(); }
BOOST_AUTO_TEST_CASE_TEMPLATE(huge_scores_in_double, N, All) { huge_scores<N, double>(); }

// One score towers over the rest: the whole weight goes there, and no gradient is left, for any n and lane.
BOOST_AUTO_TEST_CASE_TEMPLATE(one_key_wins_exactly, S, Scalars) {
  const auto wins = [](const auto& normalizer, S size) {
    for (Index n = 1; n <= 35; ++n) {
      Column<S> z = Column<S>::Constant(n, -size);
      z[n / 2] = size;
      const Result<S> r = run(normalizer, z, slopes<S>(n));
      for (Index j = 0; j < n; ++j) BOOST_TEST(r.p[j] == (j == n / 2 ? S(1) : S(0)));
      BOOST_TEST((r.dz == S(0)).all());
    }
  };
  for (const S size : {S(1e4), S(1e30)}) {
    wins(Softmax{}, size);
    wins(Softmax1{}, size);
    wins(Softmax4{}, size);
    wins(LearnedSink{}, size);
    wins(Sparsemax{}, size);
    wins(ScalableSoftmax{}, size);
  }
}

// |s| = 10⁴ and 10³⁰ against scores of either size: the null slot takes all, nothing, or its share 1/(n + 1).
BOOST_AUTO_TEST_CASE_TEMPLATE(huge_null_logits_forward_and_backward, S, Scalars) {
  for (const S s : {S(-1e30), S(-1e4), S(0), S(1e4), S(1e30)})
    for (const S score : {S(-1e30), S(-1e4), S(0), S(1e4), S(1e30)})
      for (const Index n : {1, 3, 16, 19}) {
        const Column<S> dp = slopes<S>(n);
        const Result<S> r = run(LearnedSink{}, Column<S>::Constant(n, score).eval(), dp, s);
        const double share = s > score ? 0 : s < score ? 1 / static_cast<double>(n) : 1 / static_cast<double>(n + 1);
        const double delta = share * dp.template cast<double>().sum(), null = s == score ? share : 0.0;
        const double u = unit_roundoff<S>, k = static_cast<double>(n);
        for (Index j = 0; j < n; ++j) {
          BOOST_TEST(within(r.p[j], share, share * u));
          BOOST_TEST(within(r.dz[j], share * (dp[j] - delta), share * u * (2 * k + 6) * 3));
        }
        BOOST_TEST(within(r.dtheta, -null * delta, null * u * (2 * k + 40) * 3));
      }
}

// The limit of s → +∞: the null slot takes all, whatever is finite or −∞ among the scores; NaN and +∞ stay NaN.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_null_logit_of_infinity, S, Scalars) {
  constexpr S infinity = std::numeric_limits<S>::infinity(), nan = std::numeric_limits<S>::quiet_NaN();
  for (const Index n : {0, 1, 3, 16, 19, 67})
    for (const S score : {-infinity, S(-1e30), S(0), S(1e30), std::numeric_limits<S>::max()}) {
      Column<S> z = Column<S>::Constant(n, score), p(n);
      const auto zeros = [&](const Result<S>& r) {
        return (r.p == S(0)).all() && (r.dz == S(0)).all() && r.dtheta == S(0);
      };
      BOOST_TEST(zeros(run(LearnedSink{}, z, slopes<S>(n), infinity)));
      BOOST_TEST(zeros(run(SoftmaxN{.n = std::numeric_limits<double>::infinity()}, z, slopes<S>(n))));
      const ConstArray<S> scores = array(static_cast<const S*>(z.data()), n);
      BOOST_TEST(null_logit_forward<S>(infinity, scores, array(p.data(), n)) == infinity);
      BOOST_TEST(null_logit_mass<S>(infinity, scores) == S(1));
      if (n == 0) continue;
      for (const S bad : {nan, infinity}) {
        z[n / 2] = bad;
        BOOST_TEST(run(LearnedSink{}, z, slopes<S>(n), infinity).p.isNaN().all());
        BOOST_TEST(std::isnan(null_logit_mass<S>(infinity, scores)));
      }
    }
}

// n up to the largest double: log n ≤ 710 is no large number.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_huge_n, S, Scalars) {
  const Result<S> r = run(SoftmaxN{.n = std::numeric_limits<double>::max()}, Column<S>::Zero(5).eval(), slopes<S>(5));
  BOOST_TEST(r.finite());
  BOOST_TEST((r.p <= S(1e-37)).all());
}

// p is that of equal scores to the bounds; nothing divides by a denormal.
template <class N, class S>
void denormal_scores() {
  constexpr S tiny = std::numeric_limits<S>::denorm_min();
  for (const Index n : {1, 2, 17}) {
    Column<S> z = Column<S>::Constant(n, tiny);
    z[n - 1] = -3 * tiny;
    const Result<S> r = run(N{}, z, slopes<S>(n)), zero = run(N{}, Column<S>::Zero(n).eval(), slopes<S>(n));
    BOOST_TEST(r.finite());
    // Softpick and ReLU tell a positive score from zero: their weights are below 10⁻²⁸ here.
    for (Index j = 0; j < n; ++j) BOOST_TEST(within(r.p[j], zero.p[j], 64 * unit_roundoff<S>));
    if constexpr (!std::is_same_v<N, Softpick> && !std::is_same_v<N, ReluAttention>)
      for (Index j = 0; j < n; ++j) BOOST_TEST(within(r.dz[j], zero.dz[j], 256 * unit_roundoff<S>));
  }
}
BOOST_AUTO_TEST_CASE_TEMPLATE(denormal_scores_in_float, N, All) { denormal_scores<N, float>(); }
BOOST_AUTO_TEST_CASE_TEMPLATE(denormal_scores_in_double, N, All) { denormal_scores<N, double>(); }

// A NaN score comes out of the gradient where it went in; a NaN slope comes out wherever its weight is not 0.
template <class N, class S>
void nan_comes_out_of_the_gradient() {
  constexpr S nan = std::numeric_limits<S>::quiet_NaN();
  for (Index n = 1; n <= 19; ++n)
    for (const Index at : {Index{0}, n / 2, n - 1}) {
      Column<S> z = Column<S>::Constant(n, S(0.5)), dp = slopes<S>(n);
      z[at] = nan;
      BOOST_TEST(std::isnan(run(N{}, z, dp).dz[at]));
      z[at] = S(0.5);
      dp[at] = nan;
      BOOST_TEST(std::isnan(run(N{}, z, dp).dz[at]));
    }
}
BOOST_AUTO_TEST_CASE_TEMPLATE(nan_in_the_gradient_in_float, N, All) { nan_comes_out_of_the_gradient<N, float>(); }
BOOST_AUTO_TEST_CASE_TEMPLATE(nan_in_the_gradient_in_double, N, All) { nan_comes_out_of_the_gradient<N, double>(); }

// A score of +∞ has no weight of its own kind: the families of softmax give NaN, σ and ReLU their limits.
BOOST_AUTO_TEST_CASE_TEMPLATE(plus_infinity_is_not_lost, S, Scalars) {
  constexpr S infinity = std::numeric_limits<S>::infinity();
  const auto at_infinity = [](const auto& normalizer, Index n) {
    Column<S> z = Column<S>::Constant(n, S(0.5));
    z[n / 2] = infinity;
    return run(normalizer, z, slopes<S>(n)).p[n / 2];
  };
  for (const Index n : {1, 4, 19}) {
    BOOST_TEST(std::isnan(at_infinity(Softmax{}, n)));
    BOOST_TEST(std::isnan(at_infinity(Softmax1{}, n)));
    BOOST_TEST(std::isnan(at_infinity(LearnedSink{}, n)));
    BOOST_TEST(std::isnan(at_infinity(Softpick{}, n)));
    BOOST_TEST(std::isnan(at_infinity(Sparsemax{}, n)));
    BOOST_TEST(std::isnan(at_infinity(ScalableSoftmax{}, n)));
    BOOST_TEST(at_infinity(SigmoidAttention{}, n) == S(1));
    BOOST_TEST(at_infinity(ReluAttention{}, n) == infinity);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(sinkhorn_backward, S, Scalars) {
  constexpr S infinity = std::numeric_limits<S>::infinity(), nan = std::numeric_limits<S>::quiet_NaN();
  const auto gradient = [](const RowMajorMatrix<S>& z) {
    RowMajorMatrix<S> p = z, dz = z, dp = RowMajorMatrix<S>::Random(z.rows(), z.cols());
    const ConstArray<S> none(nullptr, 0);
    const RowMajorMatrix<S>&weights = p, &slope = dp;
    Sinkhorn{}.forward_matrix(ScoreMatrix{}, none, view(z), view(p));
    Sinkhorn{}.backward_matrix(ScoreMatrix{}, none, view(z), view(weights), view(slope), view(dz),
                               Array<S>(nullptr, 0));
    return dz;
  };
  for (const S size : {S(1e4), S(1e30)}) {
    BOOST_TEST(gradient(RowMajorMatrix<S>::Constant(5, 4, size)).allFinite());
    BOOST_TEST(gradient(RowMajorMatrix<S>::Constant(5, 4, -size)).allFinite());
    BOOST_TEST(gradient(size * RowMajorMatrix<S>::Identity(6, 6)).allFinite());
  }
  BOOST_TEST((gradient(RowMajorMatrix<S>::Constant(18, 19, -infinity)).array() == S(0)).all());
  RowMajorMatrix<S> z = RowMajorMatrix<S>::Random(20, 21);
  z.row(3).setConstant(-infinity);
  z.col(4).setConstant(-infinity);
  z(7, 9) = -infinity;
  const RowMajorMatrix<S> masked = gradient(z);
  BOOST_TEST(masked.allFinite());
  BOOST_TEST((masked.row(3).array() == S(0)).all());
  BOOST_TEST((masked.col(4).array() == S(0)).all());
  BOOST_TEST(masked(7, 9) == S(0));
  z(1, 1) = nan;
  BOOST_TEST(std::isnan(gradient(z)(1, 1)));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
