// Attention on plain matrices, without a model. A head that has nothing to say puts its weight on a sink under softmax;
// under softmax-1 it needs none.
#include <cmath>
#include <iostream>
#include <meso/apply.hpp>
#include <meso/attention.hpp>
#include <meso/core/random.hpp>
#include <meso/normalizer.hpp>
#include <meso/stats.hpp>

Eigen::MatrixXf gaussian(Eigen::Index rows, Eigen::Index cols, std::uint64_t seed) {
  const meso::Random random{seed};
  return Eigen::MatrixXf::NullaryExpr(rows, cols, [&](Eigen::Index i, Eigen::Index j) {
    return static_cast<float>(random.normal(static_cast<std::uint64_t>(i * cols + j)));
  });
}

/// Statistics of one causal head, and the largest difference of its outputs, row by row, from `o`.
template <class Normalizer, class Q, class K, class V, class O>
float by_hand(const Normalizer& normalizer, const Q& q, const K& k, const V& v, const O& o,
              meso::SinkStatistics& sinks) {
  float error = 0;
  for (Eigen::Index i = 0; i < q.rows(); ++i) {  // query i sees the keys 0 … i
    const Eigen::MatrixXf scores = q.row(i) * k.topRows(i + 1).transpose() / std::sqrt(static_cast<float>(q.cols()));
    const Eigen::MatrixXf p = meso::apply(normalizer, scores);
    sinks.add_row(0, 0, i, p.row(0), 1 - p.sum());
    error = std::max(error, (p * v.topRows(i + 1) - o.row(i)).cwiseAbs().maxCoeff());
  }
  return error;
}

int main() {
  const Eigen::Index time = 32, heads = 2, d = 16;
  Eigen::MatrixXf q = gaussian(time, heads * d, 1), k = gaussian(time, heads * d, 2);
  const Eigen::MatrixXf v = gaussian(time, heads * d, 3);
  // Head 1: queries find that no key matches, except for key 1 where it is planted as a sink.
  q.col(0).setConstant(6), k.col(0).setConstant(-6);
  Eigen::MatrixXf with_sink = k;
  with_sink(0, 0) = 6;

  const Eigen::MatrixXf softmax = meso::attention(meso::Softmax{}, q, with_sink, v, heads);
  const Eigen::MatrixXf softmax1 = meso::attention(meso::Softmax1{}, q, k, v, heads);
  meso::SinkStatistics of_softmax, of_softmax1;
  const auto head = [&](const Eigen::MatrixXf& x) { return x.leftCols(d); };
  const float error = by_hand(meso::Softmax{}, head(q), head(with_sink), head(v), head(softmax), of_softmax) +
                      by_hand(meso::Softmax1{}, head(q), head(k), head(v), head(softmax1), of_softmax1);
  std::cout << "softmax with a sink: first-token mass " << of_softmax.first_token_mass()
            << "\nsoftmax-1 without:   null mass " << of_softmax1.null_mass() << ", mean |output| "
            << head(softmax1).cwiseAbs().mean() << "\nlargest difference from the loop by hand: " << error << '\n';
  return error < 1e-5f && of_softmax.first_token_mass() > 0.95 && of_softmax1.null_mass() > 0.95 ? 0 : 1;
}
