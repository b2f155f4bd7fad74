// The null-logit family: softmax, softmax-1, softmax-n, learned sink.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <meso/normalizer.hpp>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "support/oracle.hpp"
#include "support/tolerance.hpp"

namespace {

using namespace meso;
using namespace meso::test;

constexpr double infinity = std::numeric_limits<double>::infinity();

template <class S>
using Column = Eigen::Array<S, Eigen::Dynamic, 1>;

template <class S>
struct Result {
  Column<S> p;
  S lse;
};

template <class S>
Result<S> null_logit(S s, const Column<S>& z) {
  Result<S> r{Column<S>(z.size()), S(0)};
  r.lse = null_logit_forward<S>(s, array(z.data(), z.size()), array(r.p.data(), z.size()));
  return r;
}

template <class N>
Column<double> weights(const N& normalizer, const Column<double>& z, double theta = 0) {
  Column<double> p(z.size());
  normalizer.forward(Row{0, 0, z.size(), z.size()}, array(static_cast<const double*>(&theta), N::parameters_per_head),
                     array(z.data(), z.size()), array(p.data(), z.size()));
  return p;
}

template <class N>
double mass(const N& normalizer, const Column<double>& z, double theta = 0) {
  const Column<double> p = weights(normalizer, z, theta);
  return null_mass(normalizer, Row{0, 0, z.size(), z.size()},
                   array(static_cast<const double*>(&theta), N::parameters_per_head), array(z.data(), z.size()),
                   array(p.data(), z.size()));
}

Column<double> random(std::uint64_t seed, Index n, double scale = 1) {
  const oracle::Vector x = oracle::normal(seed, n, scale);
  return Eigen::Map<const Column<double>>(x.data(), n);
}

constexpr double u = unit_roundoff<double>;

}  // namespace

BOOST_AUTO_TEST_SUITE(null_logit_family)

// All-zero logits: e⁰ = 1, so that the sum n (+ null) is exact and the quotient 1/n has one rounding, the product none.
BOOST_AUTO_TEST_CASE(zero_logits_have_closed_forms) {
  for (Index n = 1; n <= 40; ++n) {
    const Column<double> z = Column<double>::Zero(n);
    const double count = static_cast<double>(n);
    BOOST_TEST((weights(Softmax{}, z) == 1 / count).all());
    BOOST_TEST((weights(Softmax1{}, z) == 1 / (count + 1)).all());
    BOOST_TEST(mass(Softmax1{}, z) == 1 / (count + 1));
    BOOST_TEST(mass(Softmax{}, z) == 0);
    BOOST_TEST((weights(LearnedSink{}, z, 0) == 1 / (count + 1)).all());
    // n = 4: e^{log 4}, shifted: M = log 4, so e^{−M} = 1/4 to |M| + 3 roundings on either side, and the sum.
    const Column<double> p = weights(SoftmaxN{.n = 4}, z);
    for (Index j = 0; j < n; ++j)
      BOOST_TEST(within(p[j], 1 / (count + 4), (count + 16 + 3 * std::log(4)) * u / (count + 4)));
    BOOST_TEST(within(mass(SoftmaxN{.n = 4}, z), 4 / (count + 4), (count + 16 + 3 * std::log(4)) * u));
  }
}

BOOST_AUTO_TEST_CASE(n_zero_is_softmax_and_n_one_is_softmax_1) {
  const Column<double> z = random(3, 21, 3);
  BOOST_TEST((weights(SoftmaxN{.n = 0}, z) == weights(Softmax{}, z)).all());
  BOOST_TEST((weights(SoftmaxN{.n = 1}, z) == weights(Softmax1{}, z)).all());
  BOOST_TEST((weights(SoftmaxN{}, z) == weights(Softmax1{}, z)).all());
  BOOST_TEST((weights(LearnedSink{}, z, 0) == weights(Softmax1{}, z)).all());
  BOOST_CHECK_THROW(weights(SoftmaxN{.n = -0.5}, z), std::invalid_argument);
  BOOST_CHECK_THROW(weights(SoftmaxN{.n = std::nan("")}, z), std::invalid_argument);
}

// softmax-1 with a constant c on all logits: Σp = S e^c / (1 + S e^c) must follow c; softmax must not move.
// An implementation that shifts by max z and then adds 1 fails here.
BOOST_AUTO_TEST_CASE(a_shift_changes_softmax_1_and_not_softmax) {
  const Column<double> z = random(5, 12);
  const double sum = z.exp().sum(), n = 12;
  for (const double c : {-30.0, -3.0, -0.5, 2.0, 40.0}) {
    const Column<double> shifted = z + c;
    // z + c is rounded: |z + c|·u in each exponent, twice.
    const double roundoff = 2 * (std::abs(c) + 4) + 2 * n + 32;
    const double total = weights(Softmax1{}, shifted).sum();
    BOOST_TEST(within(total, sum * std::exp(c) / (1 + sum * std::exp(c)), roundoff * u * total));
    const double null = mass(Softmax1{}, shifted);
    BOOST_TEST(within(null, 1 / (1 + sum * std::exp(c)), roundoff * u * null));
    const Column<double> p = weights(Softmax{}, z), q = weights(Softmax{}, shifted);
    for (Index j = 0; j < p.size(); ++j) BOOST_TEST(within(q[j], p[j], 2 * roundoff * u * p[j]));
    BOOST_TEST((weights(Softmax1{}, z) - weights(Softmax1{}, shifted)).abs().maxCoeff() > 1e-3);
  }
}

using Scalars = std::tuple<float, double>;

BOOST_AUTO_TEST_CASE_TEMPLATE(large_logits_and_large_null_logits, S, Scalars) {
  const S big = S(1e4);
  for (const S s : {-big, S(0), big}) {
    for (const S shift : {-big, S(0), big}) {
      for (const Index n : {1, 3, 16, 19}) {
        const Result<S> r = null_logit<S>(s, Column<S>::Constant(n, shift));
        const Column<S> z = Column<S>::Constant(n, shift);
        const S null = null_logit_mass<S>(s, array(static_cast<const S*>(z.data()), n));
        BOOST_TEST(r.p.isFinite().all());
        if (s > shift) {
          BOOST_TEST((r.p == S(0)).all());
          BOOST_TEST(null == S(1));
          BOOST_TEST(r.lse == s);
        } else if (s < shift) {
          BOOST_TEST((r.p == S(1) / static_cast<S>(n)).all());
          BOOST_TEST(null == S(0));
          // lse = shift + log n, one rounding each.
          BOOST_TEST(within(r.lse, shift + std::log(static_cast<double>(n)), 2 * unit_roundoff<S> * 1.01e4));
        } else {
          BOOST_TEST((r.p == S(1) / static_cast<S>(n + 1)).all());
          BOOST_TEST(null == S(1) / static_cast<S>(n + 1));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(rows_without_a_finite_score, S, Scalars) {
  constexpr S inf = std::numeric_limits<S>::infinity();
  for (const Index n : {0, 1, 2, 15, 16, 17, 35}) {
    const Column<S> z = Column<S>::Constant(n, -inf);
    for (const S s : {S(-1e4), S(0), S(2), S(1e4)}) {
      const Result<S> r = null_logit<S>(s, z);
      BOOST_TEST((r.p == S(0)).all());
      BOOST_TEST(r.lse == s);
      BOOST_TEST((null_logit_mass<S>(s, array(static_cast<const S*>(z.data()), n)) == S(1)));
    }
    const Result<S> r = null_logit<S>(-inf, z);
    BOOST_TEST((r.p == S(0)).all());
    BOOST_TEST(r.lse == -inf);
    BOOST_TEST((null_logit_mass<S>(-inf, array(static_cast<const S*>(z.data()), n)) == S(0)));
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(nan_comes_out, S, Scalars) {
  constexpr S inf = std::numeric_limits<S>::infinity();
  for (const S s : {-inf, S(0), S(3)}) {
    for (const Index n : {1, 2, 19}) {
      Column<S> z = Column<S>::Constant(n, S(0.5));
      z[n - 1] = std::numeric_limits<S>::quiet_NaN();
      BOOST_TEST(null_logit<S>(s, z).p.isNaN().all());
    }
  }
  BOOST_TEST(null_logit<S>(std::numeric_limits<S>::quiet_NaN(), Column<S>::Zero(3)).p.isNaN().all());
}

// null-logit attention = σ(lse₀ − s)·softmax attention, p_∅ = σ(s − lse₀), lse = s + softplus(lse₀ − s).
BOOST_AUTO_TEST_CASE(the_family_is_a_gate_on_softmax) {
  for (const Index n : {1, 4, 33}) {
    for (const double s : {-20.0, -1.0, 0.0, 0.7, 5.0, 30.0}) {
      const Column<double> z = random(static_cast<std::uint64_t>(n), n, 3);
      const Result<double> softmax = null_logit<double>(-infinity, z), family = null_logit<double>(s, z);
      const double d = softmax.lse - s, gate = 1 / (1 + std::exp(-d));
      // Each side carries at most |shift| + log(n + 1) + n + 16; lse₀ is off by as much, which moves σ by no more.
      const double roundoff =
          3 * (2 * (std::abs(s) + 12) + std::log(static_cast<double>(n + 1)) + static_cast<double>(n) + 16);
      for (Index j = 0; j < n; ++j) BOOST_TEST(within(family.p[j], gate * softmax.p[j], roundoff * u * family.p[j]));
      const double null = null_logit_mass<double>(s, array(static_cast<const double*>(z.data()), n));
      BOOST_TEST(within(null, 1 / (1 + std::exp(d)), roundoff * u * null));
      const double softplus = d > 0 ? d + std::log1p(std::exp(-d)) : std::log1p(std::exp(d));
      BOOST_TEST(within(family.lse, s + softplus, roundoff * u));
      // The weights and the null mass are a partition of 1.
      BOOST_TEST(within(family.p.sum() + null, 1, roundoff * u));
    }
  }
}

BOOST_AUTO_TEST_CASE(the_row_of_dz_sums_to_null_mass_times_delta) {
  for (const double s : {-infinity, -1.0, 0.0, 2.0}) {
    const Index n = 23;
    const Column<double> z = random(11, n, 2), dp = random(12, n);
    const Column<double> p = null_logit<double>(s, z).p;
    Column<double> dz(n);
    const double delta = null_logit_backward<double>(array(p.data(), n), array(dp.data(), n), array(dz.data(), n));
    // Either sum of n terms may be contracted to fused multiply-adds, or not: it depends on what is inlined.
    BOOST_TEST(within(delta, (p * dp).sum(), 2 * static_cast<double>(n) * u * (p * dp.abs()).sum()));
    const double null = null_logit_mass<double>(s, array(z.data(), n));
    // Σ dz = Δ(1 − Σp): the terms p·dp and p·Δ, each to n + 3 roundings, and 1 − Σp against p_∅ to n + 32 + |z|.
    const double magnitude = (p * dp.abs()).sum() + std::abs(delta);
    BOOST_TEST(within(dz.sum(), null * delta, (2 * static_cast<double>(n) + 64) * u * magnitude));
  }
}

// ds = −p_∅ Δ, where 1 − Σp would have lost every digit: at s = −60 the null mass is about 10⁻²⁷.
BOOST_AUTO_TEST_CASE(a_tiny_null_mass_keeps_its_relative_accuracy) {
  const Column<double> z = random(21, 9, 1);
  for (const double s : {-60.0, -600.0}) {
    const double expected = std::exp(s) / z.exp().sum();
    BOOST_TEST(within(mass(LearnedSink{}, z, s), expected, (2 * (std::abs(s) + 4) + 9 + 32) * u * expected));
  }
}

BOOST_AUTO_TEST_CASE(other_normalizers_report_the_deficit) {
  const Column<double> z = Column<double>::Constant(4, 2.0);
  BOOST_TEST(mass(ReluAttention{}, z) == 1 - 4 * 0.5);
  BOOST_TEST(mass(Sparsemax{}, z) == 0);
}

BOOST_AUTO_TEST_SUITE_END()
