#include <boost/test/unit_test.hpp>
#include <meso/attention.hpp>
#include <meso/normalizer.hpp>

#include "tests/support/gradient_check.hpp"
#include "tests/support/random.hpp"
#include "tests/support/tolerance.hpp"

using namespace meso;
using namespace meso::test;

namespace {

template <class S>
struct Operands {
  AttentionShape shape;
  RowMajorMatrix<S> q, k, v;
};

template <class S>
Operands<S> operands(Index batch, Index time, Index heads, Index groups, Index head_size, std::uint64_t seed = 1) {
  Operands<S> o{{batch, time, heads, groups, head_size, time}, {}, {}, {}};
  o.q = gaussian<S>(batch * time, heads * head_size, seed);
  o.k = gaussian<S>(batch * time, groups * head_size, seed + 1);
  o.v = gaussian<S>(batch * time, groups * head_size, seed + 2);
  return o;
}

template <class S, class N, class M>
RowMajorMatrix<S> forward(const Operands<S>& x, const N& n, const M& mask, const S* theta = nullptr, int threads = 2) {
  CpuContext<> context(threads);
  RowMajorMatrix<S> o(x.q.rows(), x.q.cols());
  attention_forward(context, n, mask, x.shape, theta, cview(x.q), cview(x.k), cview(x.v), view(o));
  return o;
}

/// Plain loops in double: softmax-like weights e^{z}/(null + Σ e^{z}) over visible keys, |o| summed for the tolerance.
struct Naive {
  Eigen::MatrixXd o, magnitude;
};
template <class S, class M>
Naive naive(const Operands<S>& x, const M& mask, double null) {
  const AttentionShape& s = x.shape;
  Naive r{Eigen::MatrixXd::Zero(x.q.rows(), x.q.cols()), Eigen::MatrixXd::Zero(x.q.rows(), x.q.cols())};
  for (Index b = 0; b < s.batch; ++b)
    for (Index h = 0; h < s.heads; ++h)
      for (Index i = 0; i < s.time; ++i) {
        const Index g = h * s.key_value_heads / s.heads;
        double denominator = null;
        std::vector<double> e(static_cast<std::size_t>(s.time), 0.0);
        for (Index j = 0; j < s.time; ++j) {
          const KeyRange range = mask.visible(i, s.time);
          if (j < range.first || j >= range.first + range.count) continue;
          double z = 0;
          for (Index c = 0; c < s.head_size; ++c)
            z += static_cast<double>(x.q(b * s.time + i, h * s.head_size + c)) *
                 static_cast<double>(x.k(b * s.time + j, g * s.head_size + c));
          e[static_cast<std::size_t>(j)] = std::exp(z / std::sqrt(static_cast<double>(s.head_size)));
          denominator += e[static_cast<std::size_t>(j)];
        }
        for (Index j = 0; j < s.time; ++j)
          for (Index c = 0; c < s.head_size; ++c) {
            const double term = e[static_cast<std::size_t>(j)] / denominator *
                                static_cast<double>(x.v(b * s.time + j, g * s.head_size + c));
            r.o(b * s.time + i, h * s.head_size + c) += term;
            r.magnitude(b * s.time + i, h * s.head_size + c) += std::abs(term);
          }
      }
  return r;
}

template <class S, class N, class M>
void agrees_with_naive(const N& n, const M& mask, double null) {
  struct Shape {
    Index batch, time, heads, groups, head_size;
  };
  for (const Shape c : {Shape{1, 1, 1, 1, 1}, {2, 7, 2, 2, 3}, {1, 33, 4, 2, 5}, {3, 70, 3, 1, 8}, {1, 131, 2, 2, 4}}) {
    const Operands<S> x = operands<S>(c.batch, c.time, c.heads, c.groups, c.head_size);
    const RowMajorMatrix<S> o = forward(x, n, mask);
    const Naive r = naive(x, mask, null);
    for (Index i = 0; i < o.rows(); ++i)
      for (Index j = 0; j < o.cols(); ++j) {
        // A score carries (d + 3)·u·Σ|q k|/√d ≤ (d + 3)·u·25 (|q|, |k| < 5 and d ≤ 8: Σ|q k|/√d < 25·√d); a weight
        // twice the largest such error and (time + 10) roundings of its own; the sum over the keys time more.
        const double score = static_cast<double>(c.head_size + 3) * 25 * std::sqrt(static_cast<double>(c.head_size));
        const double tolerance =
            unit_roundoff<S> * (2 * score + 2 * static_cast<double>(c.time) + 20) * (r.magnitude(i, j) + 1e-30);
        BOOST_TEST(within(static_cast<double>(o(i, j)), r.o(i, j), tolerance));
      }
  }
}

template <class N, class M>
void gradients_agree(const N& n, const M& mask, Index heads = 4, Index groups = 2, Index time = 9) {
  Operands<double> x = operands<double>(2, time, heads, groups, 3, 11);
  const Index per_head = N::parameters_per_head;
  Buffer<double> theta(heads * per_head), dtheta(heads * per_head);
  initialize_normalizer(n, heads, time, theta.data());
  for (Index i = 0; i < theta.size(); ++i) theta.data()[i] += 0.3 * std::sin(1.0 + static_cast<double>(i));
  const RowMajorMatrix<double> d_o = gaussian<double>(x.q.rows(), x.q.cols(), 5);
  RowMajorMatrix<double> dq = x.q, dk = x.k, dv = x.v;
  CpuContext<> context(2);
  attention_backward(context, n, mask, x.shape, theta.data(), cview(x.q), cview(x.k), cview(x.v), cview(d_o), view(dq),
                     view(dk), view(dv), dtheta.data(), Accumulate::no);
  const auto f = [&](const double*) { return (forward(x, n, mask, theta.data()).array() * d_o.array()).sum(); };
  const GradientCheck options{.rounding = 4096, .magnitude = 100};
  BOOST_TEST(gradient_agrees("dq", f, x.q.data(), x.q.size(), dq.data(), options));
  BOOST_TEST(gradient_agrees("dk", f, x.k.data(), x.k.size(), dk.data(), options));
  BOOST_TEST(gradient_agrees("dv", f, x.v.data(), x.v.size(), dv.data(), options));
  if (per_head > 0) BOOST_TEST(gradient_agrees("dtheta", f, theta.data(), theta.size(), dtheta.data(), options));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(attention_suite)

BOOST_AUTO_TEST_CASE(masks_show_one_run_of_keys) {
  BOOST_TEST(Causal{}.visible(3, 10).count == 4);
  BOOST_TEST(Causal{}.visible(12, 10).count == 10);
  BOOST_TEST(Bidirectional{}.visible(0, 10).count == 10);
  const SlidingWindow window{3};
  BOOST_TEST(window.visible(0, 10).first == 0);
  BOOST_TEST(window.visible(0, 10).count == 1);
  BOOST_TEST(window.visible(5, 10).first == 3);
  BOOST_TEST(window.visible(5, 10).count == 3);
  BOOST_CHECK_THROW(SlidingWindow{}.visible(0, 1), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(agrees_with_the_naive_loop) {
  agrees_with_naive<double>(Softmax{}, Causal{}, 0.0);
  agrees_with_naive<double>(Softmax1{}, Causal{}, 1.0);
  agrees_with_naive<double>(Softmax1{}, Bidirectional{}, 1.0);
  agrees_with_naive<double>(Softmax1{}, SlidingWindow{5}, 1.0);
  agrees_with_naive<double>(SoftmaxN{4.0}, Causal{}, 4.0);
  agrees_with_naive<float>(Softmax1{}, Causal{}, 1.0);
  agrees_with_naive<float>(Softmax{}, SlidingWindow{40}, 0.0);
}

// All-zero queries: softmax averages the values 1 … i, softmax-1 divides by i + 1.
BOOST_AUTO_TEST_CASE(uniform_attention_in_closed_form) {
  Operands<double> x = operands<double>(1, 6, 1, 1, 1);
  x.q.setZero();
  x.v << 1, 2, 3, 4, 5, 6;
  const RowMajorMatrix<double> a = forward(x, Softmax{}, Causal{}), b = forward(x, Softmax1{}, Causal{});
  for (Index i = 0; i < 6; ++i) {
    const double n = static_cast<double>(i + 1), sum = n * (n + 1) / 2;
    BOOST_TEST(within(a(i, 0), sum / n, 16 * unit_roundoff<double> * sum));
    BOOST_TEST(within(b(i, 0), sum / (n + 1), 16 * unit_roundoff<double> * sum));
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_every_normalizer) {
  gradients_agree(Softmax{}, Causal{});
  gradients_agree(Softmax1{}, Causal{});
  gradients_agree(SoftmaxN{2.5}, Causal{});
  gradients_agree(LearnedSink{}, Causal{});
  gradients_agree(SigmoidAttention{}, Causal{});
  gradients_agree(ReluAttention{}, Causal{});
  gradients_agree(Softpick{}, Causal{});
  gradients_agree(ScalableSoftmax{}, Causal{});
  gradients_agree(Sparsemax{}, Causal{});
  gradients_agree(Sinkhorn{}, Bidirectional{});
}

BOOST_AUTO_TEST_CASE(gradients_of_masks_and_groups) {
  gradients_agree(Softmax1{}, Bidirectional{});
  gradients_agree(Softmax1{}, SlidingWindow{4});
  gradients_agree(LearnedSink{}, SlidingWindow{4}, 3, 1);
  gradients_agree(Softmax{}, Causal{}, 3, 3);
}

// 70 positions are more than one tile of queries.
BOOST_AUTO_TEST_CASE(gradients_across_tiles) {
  Operands<double> x = operands<double>(1, 70, 2, 1, 2, 21);
  const RowMajorMatrix<double> d_o = gaussian<double>(70, 4, 5);
  RowMajorMatrix<double> dq = x.q, dk = x.k, dv = x.v;
  CpuContext<> context(2);
  const SlidingWindow mask{40};
  attention_backward(context, Softmax1{}, mask, x.shape, nullptr, cview(x.q), cview(x.k), cview(x.v), cview(d_o),
                     view(dq), view(dk), view(dv), nullptr, Accumulate::no);
  const auto f = [&](const double*) { return (forward(x, Softmax1{}, mask).array() * d_o.array()).sum(); };
  const GradientCheck options{.rounding = 4096, .magnitude = 300, .indices = {0, 1, 30, 61, 62, 63, 64, 65, 100, 139}};
  BOOST_TEST(gradient_agrees("dk", f, x.k.data(), x.k.size(), dk.data(), options));
  BOOST_TEST(gradient_agrees("dv", f, x.v.data(), x.v.size(), dv.data(), options));
  BOOST_TEST(gradient_agrees("dq", f, x.q.data(), x.q.size(), dq.data(), options));
}

// Rows of dz sum to p_∅·Δ: a constant added to every key's score moves softmax-1 but not softmax. With k_j = c + …, the
// gradient of q along a direction that all keys share shows it.
BOOST_AUTO_TEST_CASE(adding_a_constant_to_all_scores_moves_softmax1_alone) {
  Operands<double> x = operands<double>(1, 8, 1, 1, 2);
  x.q.col(1).setOnes();
  x.k.col(1).setZero();
  const RowMajorMatrix<double> softmax = forward(x, Softmax{}, Causal{}), softmax1 = forward(x, Softmax1{}, Causal{});
  x.k.col(1).setConstant(3.0);
  const RowMajorMatrix<double> moved = forward(x, Softmax{}, Causal{}), moved1 = forward(x, Softmax1{}, Causal{});
  // A score of at most 20 carries 5 roundings before and after the move, a weight twice that: 200·u, times Σ|v| < 20.
  BOOST_TEST((softmax - moved).cwiseAbs().maxCoeff() < 4000 * unit_roundoff<double>);
  BOOST_TEST((softmax1 - moved1).cwiseAbs().maxCoeff() > 0.1);
}

BOOST_AUTO_TEST_CASE(huge_scores_stay_finite) {
  for (const double size : {1e4, 1e30}) {
    Operands<float> x = operands<float>(1, 40, 2, 2, 4);
    x.q *= static_cast<float>(std::sqrt(size));
    x.k *= static_cast<float>(std::sqrt(size));
    BOOST_TEST(forward(x, Softmax{}, Causal{}).allFinite());
    BOOST_TEST(forward(x, Softmax1{}, Causal{}).allFinite());
  }
}

BOOST_AUTO_TEST_CASE(rows_are_the_weights_of_the_forward_pass) {
  const Operands<double> x = operands<double>(2, 37, 2, 1, 4);
  const SlidingWindow mask{6};
  const RowMajorMatrix<double> o = forward(x, Softmax1{}, mask);
  CpuContext<> context(1);
  Index rows = 0;
  attention_rows(context, Softmax1{}, mask, x.shape, static_cast<const double*>(nullptr), cview(x.q), cview(x.k), 1,
                 [&](Index b, const Row& row, Index first, ConstArray<double> p, ConstArray<double> z) {
                   BOOST_TEST(row.visible == p.size());
                   BOOST_TEST(z.size() == p.size());
                   BOOST_TEST(first == std::max<Index>(0, row.query - 5));
                   for (Index c = 0; c < 4; ++c) {
                     double sum = 0;
                     for (Index j = 0; j < p.size(); ++j) sum += p[j] * x.v(b * 37 + first + j, c);
                     BOOST_TEST(within(o(b * 37 + row.query, 4 + c), sum, 40 * unit_roundoff<double>));
                   }
                   ++rows;
                 });
  BOOST_TEST(rows == 74);
}

BOOST_AUTO_TEST_CASE(same_bits_for_any_threads) {
  const Operands<float> x = operands<float>(3, 70, 4, 2, 8);
  const RowMajorMatrix<float> d_o = gaussian<float>(210, 32, 5);
  const auto gradients = [&](int threads) {
    RowMajorMatrix<float> dq = x.q, dk = x.k, dv = x.v;
    std::array<float, 4> theta{0.1f, 0.2f, -0.3f, 0.4f}, dtheta{};
    CpuContext<> context(threads);
    attention_backward(context, LearnedSink{}, Causal{}, x.shape, theta.data(), cview(x.q), cview(x.k), cview(x.v),
                       cview(d_o), view(dq), view(dk), view(dv), dtheta.data(), Accumulate::no);
    RowMajorMatrix<float> all(1, dq.size() + dk.size() + dv.size() + 4);
    all << dq.reshaped<Eigen::RowMajor>().transpose(), dk.reshaped<Eigen::RowMajor>().transpose(),
        dv.reshaped<Eigen::RowMajor>().transpose(), Eigen::Map<Eigen::RowVector4f>(dtheta.data());
    return all;
  };
  const RowMajorMatrix<float> o1 = forward(x, Softmax1{}, Causal{}, static_cast<const float*>(nullptr), 1),
                              g1 = gradients(1);
  for (const int threads : {2, 3}) {
    BOOST_TEST(
        (forward(x, Softmax1{}, Causal{}, static_cast<const float*>(nullptr), threads).array() == o1.array()).all());
    BOOST_TEST((gradients(threads).array() == g1.array()).all());
  }
}

BOOST_AUTO_TEST_CASE(scratch_grows_with_time_not_with_its_square) {
  const auto scratch = [](Index time) {
    const RowMajorMatrix<float> x = gaussian<float>(time, 8, 1);
    RowMajorMatrix<float> o(time, 8), dq(time, 8), dk(time, 8), dv(time, 8);
    CpuContext<> context(2);
    const AttentionShape shape{1, time, 1, 1, 8, time};
    attention_forward(context, Softmax1{}, Causal{}, shape, nullptr, cview(x), cview(x), cview(x), view(o));
    attention_backward(context, Softmax1{}, Causal{}, shape, nullptr, cview(x), cview(x), cview(x), cview(x), view(dq),
                       view(dk), view(dv), nullptr, Accumulate::no);
    return static_cast<double>(context.workspace.bytes());
  };
  BOOST_TEST(scratch(2048) < 2.1 * scratch(1024));
}

BOOST_AUTO_TEST_CASE(rotary_positions) {
  const Rotary rotary;
  Buffer<double> row(6), x(6);
  for (Index i = 0; i < 6; ++i) x.data()[i] = std::cos(1.0 + static_cast<double>(i));
  const auto turned = [&](Index position) {
    rotary.fill(position, 6, array(row.data(), 6));
    Eigen::ArrayXd y = array(x.data(), 6);
    rotary.rotate(array(std::as_const(row).data(), 6), array(y.data(), 6));
    return y;
  };
  BOOST_TEST((turned(0) == array(x.data(), 6)).all());
  // Pair (0, 3) turns by the angle t.
  const Eigen::ArrayXd y = turned(2);
  BOOST_TEST(within(y[0], x.data()[0] * std::cos(2.0) - x.data()[3] * std::sin(2.0), 4 * unit_roundoff<double>));
  BOOST_TEST(within(y[3], x.data()[0] * std::sin(2.0) + x.data()[3] * std::cos(2.0), 4 * unit_roundoff<double>));
  // The product of a query and a key depends on their distance alone.
  BOOST_TEST(within((turned(7) * turned(4)).sum(), (turned(103) * turned(100)).sum(), 200 * unit_roundoff<double>));
  Eigen::ArrayXd back = turned(5);
  rotary.rotate_back(array(std::as_const(row).data(), 6), array(back.data(), 6));
  BOOST_TEST((back - array(x.data(), 6)).abs().maxCoeff() < 4 * unit_roundoff<double>);
  BOOST_CHECK_THROW(rotary.table_size(5), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(plain_eigen_entry_and_errors) {
  const Eigen::MatrixXf q = gaussian<float>(5, 6, 1), k = gaussian<float>(5, 6, 2), v = gaussian<float>(5, 6, 3);
  Operands<float> x{{1, 5, 2, 2, 3, 5}, q, k, v};
  BOOST_TEST((attention(Softmax1{}, q, k, v, 2).array() == forward(x, Softmax1{}, Causal{}).array()).all());
  BOOST_CHECK_THROW(attention(Softmax1{}, q, k, v, 4), std::invalid_argument);
  BOOST_CHECK_THROW(attention(Softmax1{}, q, k.leftCols(4), v, 2), std::invalid_argument);
  x.shape.key_value_heads = 3;
  BOOST_CHECK_THROW(forward(x, Softmax1{}, Causal{}), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(parameters_that_are_missing) {
  const Operands<float> x = operands<float>(1, 9, 2, 2, 3);
  RowMajorMatrix<float> o = x.q, dq = x.q, dk = x.k, dv = x.v;
  const float theta[2] = {}, *const none = nullptr;
  CpuContext<> context(1);
  const auto backward = [&](const float* values, float* gradient) {
    attention_backward(context, LearnedSink{}, Causal{}, x.shape, values, cview(x.q), cview(x.k), cview(x.v),
                       cview(x.q), view(dq), view(dk), view(dv), gradient, Accumulate::no);
  };
  float dtheta[2];
  BOOST_CHECK_THROW(
      attention_forward(context, LearnedSink{}, Causal{}, x.shape, none, cview(x.q), cview(x.k), cview(x.v), view(o)),
      std::invalid_argument);
  BOOST_CHECK_THROW(backward(none, dtheta), std::invalid_argument);
  BOOST_CHECK_THROW(backward(theta, nullptr), std::invalid_argument);
  BOOST_CHECK_THROW(
      attention_rows(context, LearnedSink{}, Causal{}, x.shape, none, cview(x.q), cview(x.k), 0, [](auto&&...) {}),
      std::invalid_argument);
}

// An exception on the calling thread, before anything is written, from each entry.
BOOST_AUTO_TEST_CASE(a_normalizer_checks_the_context_at_the_edge) {
  Operands<float> x = operands<float>(2, 70, 4, 2, 3);
  RowMajorMatrix<float> o = RowMajorMatrix<float>::Constant(140, 12, 7.0f), dq = o, dk = x.k, dv = x.v;
  CpuContext<> context(2);
  const auto run = [&](const auto& normalizer) {
    attention_forward(context, normalizer, Causal{}, x.shape, nullptr, cview(x.q), cview(x.k), cview(x.v), view(o));
  };
  const auto run_backward = [&](const auto& normalizer) {
    attention_backward(context, normalizer, Causal{}, x.shape, nullptr, cview(x.q), cview(x.k), cview(x.v), cview(x.q),
                       view(dq), view(dk), view(dv), nullptr, Accumulate::no);
  };
  const auto run_rows = [&](const auto& normalizer) {
    attention_rows(context, normalizer, Causal{}, x.shape, static_cast<const float*>(nullptr), cview(x.q), cview(x.k),
                   0, [](auto&&...) {});
  };
  x.shape.context = 0;
  const SigmoidAttention by_context, by_keys{SigmoidAttention::Bias::visible};
  BOOST_CHECK_THROW(run(by_context), std::invalid_argument);
  BOOST_CHECK_THROW(run_backward(by_context), std::invalid_argument);
  BOOST_CHECK_THROW(run_rows(by_context), std::invalid_argument);
  BOOST_TEST((o.array() == 7.0f).all());
  BOOST_TEST((dq.array() == 7.0f).all());
  BOOST_TEST((dk.array() == x.k.array()).all());
  run(by_keys), run_backward(by_keys), run_rows(by_keys), run(Softmax{});  // these need none
  BOOST_TEST(o.allFinite());
  BOOST_TEST(attention(by_context, Eigen::MatrixXf(0, 4), Eigen::MatrixXf(0, 4), Eigen::MatrixXf(0, 4)).rows() == 0);
  x.shape.context = -1;
  BOOST_CHECK_THROW(run(Softmax{}), std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
