#pragma once
#include <span>

#include <meso/cuda/norm.cuh>
#include <meso/layer/loss.hpp>

namespace meso::cuda {

namespace detail {

template <class T>
__global__ void __launch_bounds__(256) cross_entropy_kernel(View<const T> logits, const Token* targets, View<T> dlogits,
                                                            Compute<T> scale, double* row_loss) {
  using C = Compute<T>;
  MESO_DYNAMIC_SHARED(memory);
  C* const scratch = reinterpret_cast<C*>(memory);
  const Index i = static_cast<Index>(blockIdx.x), n = logits.cols, start = static_cast<Index>(threadIdx.x);
  const Token target = targets[i];
  if (target == ignored_target) {
    if (start == 0) row_loss[i] = 0;
    if (dlogits.data)
      for (Index j = start; j < n; j += 256) store(dlogits(i, j), C(0));
    return;
  }
  C top = minus_infinity<C>();
  for (Index j = start; j < n; j += 256) top = Maximum{}(load(logits(i, j)), top);
  top = block_reduce(top, scratch, Maximum{});
  C sum = C(0);
  for (Index j = start; j < n; j += 256) sum += exponential(load(logits(i, j)) - top);
  const C at_target = load(logits(i, target));
  sum = block_reduce(sum, scratch, Sum{});  // its barrier also ends the reads of the target before dlogits is written
  if (start == 0) row_loss[i] = static_cast<double>(logarithm(sum)) + static_cast<double>(top - at_target);
  if (!dlogits.data) return;
  const C factor = scale / sum;
  for (Index j = start; j < n; j += 256) {
    C d = exponential(load(logits(i, j)) - top) * factor;
    if (j == target) d -= scale;
    store(dlogits(i, j), d);
  }
}

}  // namespace detail

/// loss_i = log Σ_j e^{x_ij} − x_{i,target_i} and its gradient, as meso::cross_entropy, all on the device: the sum of
/// the losses goes to *loss, in double. `targets` are in device memory and were checked; `count` of them count.
/// Shapes: logits, dlogits (tokens, vocabulary); dlogits may be logits, or empty.
/// Error: as meso::cross_entropy, 1.4·vocabulary replaced by 1.4·vocabulary/256 + 16, and one rounding to T of dlogits.
template <class T>
void cross_entropy(Context& context, const ConstView<T>& logits, const Token* targets, Index count,
                   const View<T>& dlogits, double gradient_scale, double* loss) {
  using C = Compute<T>;
  if (dlogits.data) check_same_shape<const T, T>("cross_entropy", "logits", logits, "dlogits", dlogits);
  const C scale = count > 0 ? static_cast<C>(gradient_scale / static_cast<double>(count)) : C(0);
  const auto row_loss = context.workspace.template take<double>(logits.rows);
  launch(context, "cross_entropy", {{blocks_for(logits.rows, 1)}, {256}, sizeof(C) * 32},
         detail::cross_entropy_kernel<T>, logits, targets, dlogits, scale, row_loss.data());
  launch(context, "cross_entropy", {{1}, {256}, sizeof(double) * 32}, detail::sum_kernel<double>, row_loss.data(),
         logits.rows, loss, false);
}

/// A loss that the device has not finished yet.
struct PendingLoss {
  Index count = 0;
  Workspace::Scratch<double> sum;
};

/// The same with targets in host memory, without waiting for the loss: finish() does.
/// Throws: std::invalid_argument on a shape mismatch or a target out of range, which it names.
template <class T>
PendingLoss start_cross_entropy(Context& context, const ConstView<T>& logits, std::span<const Token> targets,
                                const View<T>& dlogits, double gradient_scale) {
  meso::check(static_cast<Index>(targets.size()) == logits.rows, "cross_entropy: logits are ", shape(logits),
              " but there are ", targets.size(), " targets");
  PendingLoss loss{meso::detail::count_targets(targets, logits.cols), context.workspace.template take<double>(1)};
  const auto on_device = context.workspace.template take<Token>(logits.rows);
  upload(context, targets.data(), logits.rows, on_device.data());
  cross_entropy<T>(context, logits, on_device.data(), loss.count, dlogits, gradient_scale, loss.sum.data());
  return loss;
}
/// Waits for the loss.
inline LossSum finish(Context& context, const PendingLoss& loss) {
  LossSum result;
  result.count = loss.count;
  download(context, loss.sum.data(), 1, &result.sum);
  return result;
}

/// The same with targets in host memory; waits for the loss. Throws: as start_cross_entropy.
template <class T>
LossSum cross_entropy(Context& context, const ConstView<T>& logits, std::span<const Token> targets,
                      const View<T>& dlogits, double gradient_scale = 1.0) {
  return finish(context, start_cross_entropy<T>(context, logits, targets, dlogits, gradient_scale));
}

}  // namespace meso::cuda
