// Attention on plain matrices, without a model: a key that every query matches becomes a sink under softmax; under
// softmax-1 queries that match nothing else need no sink.
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

int main() {
  const Eigen::Index time = 32, heads = 2, size = 16;
  Eigen::MatrixXf q = gaussian(time, heads * size, 1), k = gaussian(time, heads * size, 2);
  const Eigen::MatrixXf v = gaussian(time, heads * size, 3);
  // Head 1: channel 0 of every query says "to token 1", channel 1 says "not to me".
  q.col(0).setConstant(4), k.col(0).setZero(), k(0, 0) = 5;
  q.col(1).setConstant(4), k.col(1).setConstant(-4), k(0, 1) = 0;

  const Eigen::MatrixXf with_softmax = meso::attention(meso::Softmax{}, q, k, v, heads);
  const Eigen::MatrixXf with_softmax1 = meso::attention(meso::Softmax1{}, q, k, v, heads);

  // The same by hand, row by row, for the statistics. A causal query i sees the keys 0 … i.
  meso::SinkStatistics sinks;
  float error = 0;
  for (Eigen::Index h = 0; h < heads; ++h) {
    const auto qh = q.middleCols(h * size, size), kh = k.middleCols(h * size, size), vh = v.middleCols(h * size, size);
    for (Eigen::Index i = 0; i < time; ++i) {
      const Eigen::MatrixXf scores = qh.row(i) * kh.topRows(i + 1).transpose() / std::sqrt(static_cast<float>(size));
      const Eigen::MatrixXf p = meso::apply(meso::Softmax{}, scores);
      sinks.add_row(0, h, i, p.row(0), 0.0);
      const Eigen::RowVectorXf o = p * vh.topRows(i + 1);
      error = std::max(error, (o - with_softmax.block(i, h * size, 1, size)).cwiseAbs().maxCoeff());
    }
  }
  std::cout << "first-token proportion: head 1 " << sinks.first_token_proportion(0, 0) << ", head 2 "
            << sinks.first_token_proportion(0, 1) << "\nlargest difference from the loop by hand: " << error
            << "\nmean |output|: softmax " << with_softmax.cwiseAbs().mean() << ", softmax-1 "
            << with_softmax1.cwiseAbs().mean() << '\n';
  return error < 1e-4f && sinks.first_token_proportion(0, 0) > 0.9 && sinks.first_token_proportion(0, 1) < 0.5 ? 0 : 1;
}
