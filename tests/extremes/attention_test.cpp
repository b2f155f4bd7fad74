// Attention with queries that see nothing, with huge scores and with what is not finite, forward and backward.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <meso/attention.hpp>
#include <meso/normalizer.hpp>
#include <utility>
#include <vector>

#include "support/random.hpp"

namespace {

using namespace meso;
using namespace meso::test;

using Matrix = RowMajorMatrix<float>;
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// Query i sees the keys before it; none for the first `blind` queries.
struct Earlier {
  Index blind = 1;
  KeyRange visible(Index query, Index keys) const { return {0, query < blind ? 0 : std::min<Index>(query, keys)}; }
};

struct Call {
  AttentionShape shape;
  Matrix q, k, v, d_o, o, dq, dk, dv;
  std::vector<float> theta, dtheta;

  Call(Index time, Index heads = 2, Index groups = 1, Index size = 4)
      : shape{1, time, heads, groups, size, time},
        q(gaussian<float>(time, heads * size, 1)),
        k(gaussian<float>(time, groups * size, 2)),
        v(gaussian<float>(time, groups * size, 3)),
        d_o(gaussian<float>(time, heads * size, 4)),
        o(q),
        dq(q),
        dk(k),
        dv(v) {}

  template <class N, class M>
  Call& run(const N& normalizer, const M& mask) {
    theta.assign(static_cast<std::size_t>(shape.heads * N::parameters_per_head), 0.5f);
    dtheta = theta;
    CpuContext<> context(2);
    attention_forward(context, normalizer, mask, shape, theta.data(), cview(q), cview(k), cview(v), view(o));
    attention_backward(context, normalizer, mask, shape, theta.data(), cview(q), cview(k), cview(v), cview(d_o),
                       view(dq), view(dk), view(dv), dtheta.data(), Accumulate::no);
    return *this;
  }
  bool finite() const {
    for (const float slope : dtheta)
      if (!std::isfinite(slope)) return false;
    return o.allFinite() && dq.allFinite() && dk.allFinite() && dv.allFinite();
  }
};

BOOST_AUTO_TEST_SUITE(extreme_attention)

// 5 blind queries, and whole tiles of them.
BOOST_AUTO_TEST_CASE(a_query_that_sees_no_key_gives_zeros_and_gets_none) {
  const auto check = [](const auto& normalizer) {
    for (const auto& [time, blind] : {std::pair<Index, Index>{7, 1}, {7, 5}, {7, 7}, {100, 70}, {1, 1}}) {
      const Call x = Call(time).run(normalizer, Earlier{blind});
      BOOST_TEST(x.finite());
      BOOST_TEST((x.o.topRows(blind).array() == 0.0f).all());
      BOOST_TEST((x.dq.topRows(blind).array() == 0.0f).all());
      BOOST_TEST((x.dk.row(time - 1).array() == 0.0f).all());  // no query sees the last key
      BOOST_TEST((x.dv.row(time - 1).array() == 0.0f).all());
      if (blind < time) BOOST_TEST((x.o.row(time - 1).array() != 0.0f).any());
      if (blind == time)
        for (const float v : x.dtheta) BOOST_TEST(v == 0.0f);
    }
  };
  check(Softmax{});
  check(Softmax1{});
  check(LearnedSink{});
  check(Softpick{});
  check(ScalableSoftmax{});
  check(Sparsemax{});
  check(SigmoidAttention{});
  check(ReluAttention{});
}

BOOST_AUTO_TEST_CASE(scores_of_1e4_and_1e30_forward_and_backward) {
  const auto check = [](const auto& normalizer) {
    for (const float root : {1e2f, 1e15f}) {
      Call x(40);
      x.q *= root;
      x.k *= root;
      BOOST_TEST(x.run(normalizer, Causal{}).finite());
    }
  };
  check(Softmax{});
  check(Softmax1{});
  check(LearnedSink{});
  check(Softpick{});
  check(Sparsemax{});
}

// A score beyond the range is ∞ or ∞ − ∞, and the row NaN.
BOOST_AUTO_TEST_CASE(scores_that_overflow_come_out_as_nan) {
  Call x(9);
  x.q.setConstant(1e30f);
  x.k.setConstant(1e30f);
  BOOST_TEST(x.run(Softmax1{}, Causal{}).o.array().isNaN().all());
  BOOST_TEST(x.dq.array().isNaN().all());
}

// The head of the infinite sink attends to nothing and gets no gradient; the other is as if alone.
BOOST_AUTO_TEST_CASE(a_sink_of_infinity) {
  for (const Index time : {1, 9, 100}) {
    Call x(time);
    x.run(LearnedSink{}, Causal{});
    const Matrix o = x.o, dq = x.dq;
    CpuContext<> context(2);
    x.theta[0] = std::numeric_limits<float>::infinity();
    attention_forward(context, LearnedSink{}, Causal{}, x.shape, x.theta.data(), cview(x.q), cview(x.k), cview(x.v),
                      view(x.o));
    attention_backward(context, LearnedSink{}, Causal{}, x.shape, x.theta.data(), cview(x.q), cview(x.k), cview(x.v),
                       cview(x.d_o), view(x.dq), view(x.dk), view(x.dv), x.dtheta.data(), Accumulate::no);
    BOOST_TEST(x.finite());
    BOOST_TEST((x.o.leftCols(4).array() == 0.0f).all());
    BOOST_TEST((x.dq.leftCols(4).array() == 0.0f).all());
    BOOST_TEST(x.dtheta[0] == 0.0f);
    BOOST_TEST((x.o.rightCols(4).array() == o.rightCols(4).array()).all());
    BOOST_TEST((x.dq.rightCols(4).array() == dq.rightCols(4).array()).all());
  }
}

BOOST_AUTO_TEST_CASE(nan_reaches_every_query_that_sees_it) {
  const auto check = [](const auto& normalizer) {
    for (Matrix Call::*operand : {&Call::q, &Call::k, &Call::v, &Call::d_o}) {
      Call x(9, 1);
      (x.*operand)(4, 2) = nan;
      x.run(normalizer, Causal{});
      if (operand == &Call::q) {
        BOOST_TEST(x.o.row(4).array().isNaN().all());
        BOOST_TEST(x.dq.row(4).array().isNaN().all());
        BOOST_TEST(x.dk.topRows(5).array().isNaN().all());
        BOOST_TEST(x.dv.topRows(5).array().isNaN().all());
      }
      if (operand == &Call::k) BOOST_TEST(x.o.bottomRows(5).array().isNaN().all());
      if (operand == &Call::v) {
        BOOST_TEST(x.o.bottomRows(5).col(2).array().isNaN().all());
        BOOST_TEST(x.dq.bottomRows(5).array().isNaN().all());
      }
      if (operand == &Call::d_o) {
        BOOST_TEST(x.dq.row(4).array().isNaN().all());
        BOOST_TEST(x.dv.topRows(5).col(2).array().isNaN().all());
      }
    }
  };
  check(Softmax{});
  check(Softmax1{});
  check(LearnedSink{});
}

// Bit for bit: what a query does not see is as if it were finite.
template <class N, class M>
void keeps_to_the_mask(const N& normalizer, const M& mask, Index time, Index heads, Index groups, Index size) {
  const Call base = Call(time, heads, groups, size).run(normalizer, mask);
  const auto sees = [&](Index query, Index key) {
    const KeyRange range = mask.visible(query, time);
    return key >= range.first && key < range.first + range.count;
  };
  for (const float bad : {nan, std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()})
    for (Matrix Call::*operand : {&Call::q, &Call::k, &Call::v, &Call::d_o})
      for (const Index at : {Index{0}, Index{5}, time / 2, time - 1}) {
        Call x(time, heads, groups, size);
        const Index col = size - 1;  // of the first head, or group
        (x.*operand)(at, col) = bad;
        x.run(normalizer, mask);
        const bool of_a_key = operand == &Call::k || operand == &Call::v;
        const auto query_meets = [&](Index i) { return of_a_key ? sees(i, at) : i == at; };
        const auto key_meets = [&](Index j) {
          for (Index i = 0; i < time; ++i)
            if (query_meets(i) && sees(i, j)) return true;
          return false;
        };
        bool same = true, reached = true;
        for (Index i = 0; i < time; ++i) {
          if (!query_meets(i)) same &= x.o.row(i) == base.o.row(i) && x.dq.row(i) == base.dq.row(i);
          if (!key_meets(i)) same &= x.dk.row(i) == base.dk.row(i) && x.dv.row(i) == base.dv.row(i);
          if (operand == &Call::v && query_meets(i)) reached &= !std::isfinite(x.o(i, col));
          if (operand == &Call::d_o && key_meets(i)) reached &= !std::isfinite(x.dv(i, col));
        }
        BOOST_TEST(same, "another query changed: time " << time << ", row " << at << " is " << bad);
        BOOST_TEST(reached, "a query lost it: time " << time << ", row " << at << " is " << bad);
      }
}

BOOST_AUTO_TEST_CASE(what_is_not_finite_keeps_to_the_mask) {
  const auto check = [](const auto& normalizer) {
    for (const Index time : {6, 9, 33, 70, 131})
      for (const Index size : {1, 4, 33}) {
        keeps_to_the_mask(normalizer, Causal{}, time, 2, 1, size);
        keeps_to_the_mask(normalizer, SlidingWindow{3}, time, 2, 2, size);
        keeps_to_the_mask(normalizer, SlidingWindow{40}, time, 1, 1, size);
        keeps_to_the_mask(normalizer, Earlier{2}, time, 2, 1, size);
      }
  };
  check(Softmax{});
  check(Softmax1{});
  check(LearnedSink{});
  keeps_to_the_mask(SigmoidAttention{}, Causal{}, 70, 2, 1, 4);
  keeps_to_the_mask(Softmax1{}, Bidirectional{}, 70, 2, 1, 4);
}

// Finite operands whose product overflows: a hidden score of ∞ is no score.
BOOST_AUTO_TEST_CASE(hidden_products_that_overflow) {
  Call x(9, 1), base(9, 1);
  for (Call* c : {&x, &base}) c->q.setConstant(1.0f), c->d_o.setConstant(1.0f);
  x.k.row(8).setConstant(std::numeric_limits<float>::max());
  x.v.row(8).setConstant(std::numeric_limits<float>::max());
  x.run(Softmax1{}, Causal{}), base.run(Softmax1{}, Causal{});
  BOOST_TEST((x.o.topRows(8) == base.o.topRows(8)));
  BOOST_TEST((x.dq.topRows(8) == base.dq.topRows(8)));
}

BOOST_AUTO_TEST_CASE(denormal_operands) {
  Call x(20);
  x.q *= 1e-38f;
  x.k *= 1e-38f;
  x.v *= 1e-38f;
  x.d_o *= 1e-38f;
  BOOST_TEST(x.run(Softmax1{}, Causal{}).finite());
  // All scores are 0: row i averages i + 2 values, one of them the null slot's 0.
  for (Index i = 0; i < 20; ++i)
    for (Index c = 0; c < 4; ++c) {
      const double mean = x.v.col(c).head(i + 1).cast<double>().sum() / static_cast<double>(i + 2);
      // Sums of denormals are exact; a product with p is rounded to the spacing of denormals, once a key.
      BOOST_TEST(std::abs(static_cast<double>(x.o(i, c)) - mean) <=
                 static_cast<double>(i + 2) * static_cast<double>(std::numeric_limits<float>::denorm_min()) +
                     static_cast<double>(i + 20) * 0x1p-24 * 1e-37);
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
