#pragma once
#include <cmath>
#include <span>

#include <meso/core/exp.hpp>
#include <meso/core/tiles.hpp>
#include <meso/layer/loss.hpp>

namespace meso {

/// loss_i = log Σ_j e^{x_ij} − x_{i,target_i}, summed over the rows whose target counts, in double, rows in order.
/// With `dlogits` not empty also dlogits = gradient_scale/count · (softmax(x) − onehot(target)); dlogits may be logits.
/// Shapes: logits, dlogits (tokens, vocabulary). No target that counts: loss 0, gradient 0.
/// Error: |loss_i − exact| ≤ (1.4·vocabulary + 8 + max_j x_ij − x_{i,target})·u: an exponential e^{−t} carries (t + 5)·u
/// and t·e^{−t} ≤ 1/e. dlogits: relative of the softmax, ≤ (1.4·vocabulary + 10 + max_j x_ij − x_ik)·u; at the target
/// also 2|p − 1|·u of the difference.
/// x_ij = −∞ is a probability 0, at the target a loss of ∞. +∞, NaN or nothing but −∞ in a row that counts give NaN.
/// Throws: std::invalid_argument on a shape mismatch or a target out of range, which it names.
template <class Products, class S>
LossSum cross_entropy(CpuContext<Products>& context, const ConstView<S>& logits, std::span<const Token> targets,
                      const View<S>& dlogits, double gradient_scale = 1.0) {
  check(static_cast<Index>(targets.size()) == logits.rows, "cross_entropy: logits are ", shape(logits),
        " but there are ", targets.size(), " targets");
  if (dlogits.data) check_same_shape("cross_entropy", "logits", logits, "dlogits", dlogits);
  LossSum loss;
  loss.count = detail::count_targets(targets, logits.cols);
  const S scale = loss.count > 0 ? static_cast<S>(gradient_scale / static_cast<double>(loss.count)) : S(0);
  const auto row_loss = context.workspace.template take<double>(logits.rows);
  const RowTiles tiles = RowTiles::of(logits.rows, logits.cols);
  parallel_for(context, tiles.count(), [&](Index t, Index) {
    const RowTile tile = tiles[t];
    for (Index i = tile.first; i < tile.first + tile.count; ++i) {
      const Token target = targets[static_cast<std::size_t>(i)];
      if (target == ignored_target) {
        row_loss.data()[i] = 0.0;
        if (dlogits.data) row_array(dlogits, i).setZero();
        continue;
      }
      const ConstArray<S> x = row_array(logits, i);
      const S top = shift_of<S>(x);
      const S at_target = x[target];
      Array<S> e(dlogits.data ? dlogits.row(i) : nullptr, logits.cols);
      const S sum = exp_and_sum<S>(x, top, e);
      row_loss.data()[i] = static_cast<double>(std::log(sum)) + static_cast<double>(top - at_target);
      if (dlogits.data) {
        e *= scale / sum;
        e[target] -= scale;
      }
    }
  });
  for (Index i = 0; i < logits.rows; ++i) loss.sum += row_loss.data()[i];
  return loss;
}

}  // namespace meso
