#pragma once
#include <meso/cuda/attention.cuh>
#include <meso/stats/sink_sums.hpp>

namespace meso::cuda {

using meso::AttentionRowStatistics;

namespace detail {

/// One warp a query and head; the lanes share out the keys.
template <class T>
__global__ void __launch_bounds__(128)
    attention_row_kernel(AttentionCall<T> call, Index sink_key, AttentionRowStatistics* out) {
  using C = Compute<T>;
  const AttentionShape& s = call.shape;
  const Index number = static_cast<Index>(blockIdx.x) * 4 + static_cast<Index>(threadIdx.x) / 32;
  if (number >= s.batch * s.time * s.heads) return;  // a whole warp
  const Index row = number / s.heads, h = number % s.heads, b = row / s.time, i = row % s.time;
  const C lse = call.lse(row, h);
  const T* const query = call.q.row(row) + h * s.head_size;
  double first = 0, other = static_cast<double>(minus_infinity<C>()), entropy = 0, sink = 0;
  const Index begin = at_least_zero(i - call.mask.behind), end = at_most(i + call.mask.ahead + 1, s.time);
  for (Index j = begin + static_cast<Index>(threadIdx.x) % 32; j < end; j += 32) {
    const T* const key = call.k.row(b * s.time + j) + h / call.group * s.head_size;
    C z = C(0);
    for (Index c = 0; c < s.head_size; ++c) z += load(query[c]) * load(key[c]);
    const double p = static_cast<double>(weight(z * call.scale, lse));
    if (j == 0)
      first = p;
    else
      other = Maximum{}(p, other);
    if (j == sink_key) sink = p;
    if (!(p == 0)) entropy -= p * log(p);
  }
  first = warp_reduce(first, Sum{});
  other = warp_reduce(other, Maximum{});
  entropy = warp_reduce(entropy, Sum{});
  sink = warp_reduce(sink, Sum{});
  if (threadIdx.x % 32 != 0) return;
  const double null = static_cast<double>(null_weight(call.sinks ? load(call.sinks[h]) : call.null_logit, lse));
  if (!(null == 0)) entropy -= null * log(null);
  out[number] = {first, other, null, entropy, sink, begin == 0 && end > 0};
}

/// One thread a sequence and head, which walks along the queries: the counting rules and sums of the CPU, in its order.
/// A template, as every kernel is.
template <class Sums>
__global__ void __launch_bounds__(128) sink_sums_kernel(const AttentionRowStatistics* rows, Index batch, Index time,
                                                        Index heads, SinkOptions options, Sums* out) {
  const Index number = static_cast<Index>(blockIdx.x) * 128 + static_cast<Index>(threadIdx.x);
  if (number >= batch * heads) return;
  const Index b = number / heads, h = number % heads;
  Sums sums;
  for (Index i = 0; i < time; ++i) sums.add(options, i, rows[(b * time + i) * heads + h]);
  sums.end_sequence(options);
  out[number] = sums;
}

}  // namespace detail

/// First-token weight, largest other weight, null mass, entropy and weight on key `sink_key` of every query and head, from
/// q, k and the lse of the forward pass: no matrix of weights exists. Shapes: as attention_forward; out (tokens·heads)
/// entries in device memory, token by token.
/// Error: weights relative, ≤ 2(ζ + (|z − M| + keys + 16 + |lse|)·u), ζ as meso::attention_forward.
template <class Normalizer, class Mask, class T>
void attention_row_statistics(Context& context, const Normalizer& normalizer, const Mask& mask,
                              const AttentionShape& shape, const std::type_identity_t<T>* theta, const View<const T>& q,
                              const ConstView<T>& k, const View<Compute<std::type_identity_t<T>>>& lse,
                              AttentionRowStatistics* out, Index sink_key = 0) {
  const auto call = detail::attention_call<T>("attention_row_statistics", normalizer, mask, shape, theta, q, k, k, lse);
  launch(context, "attention_row_statistics", {{blocks_for(shape.tokens() * shape.heads, 4)}, {128}},
         detail::attention_row_kernel<T>, call, sink_key, out);
}

/// Sums of these over the queries of each sequence and head, what meso::SinkStatistics keeps; the sequences are ended.
/// Shapes: as attention_row_statistics; out (batch·heads) entries in device memory, sequence by sequence.
/// Error: counts none, means as of meso::RunningMean, both of the rows' values.
template <class Normalizer, class Mask, class T>
void attention_sink_sums(Context& context, const Normalizer& normalizer, const Mask& mask, const AttentionShape& shape,
                         const std::type_identity_t<T>* theta, const View<const T>& q, const ConstView<T>& k,
                         const View<Compute<std::type_identity_t<T>>>& lse, const SinkOptions& options, SinkSums* out) {
  const auto rows = context.workspace.template take<AttentionRowStatistics>(shape.tokens() * shape.heads);
  attention_row_statistics<Normalizer, Mask, T>(context, normalizer, mask, shape, theta, q, k, lse, rows.data(),
                                                options.sink_key);
  launch(context, "attention_sink_sums", {{blocks_for(shape.batch * shape.heads, 128)}, {128}},
         detail::sink_sums_kernel<SinkSums>, rows.data(), shape.batch, shape.time, shape.heads, options, out);
}

}  // namespace meso::cuda
