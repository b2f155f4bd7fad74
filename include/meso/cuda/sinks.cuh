#pragma once
#include <meso/cuda/attention.cuh>

namespace meso::cuda {

/// Of one query of one head: what statistics of attention sinks are made of (see meso::SinkStatistics).
struct AttentionRowStatistics {
  double first = 0;      ///< weight on key 1; 0 if the query does not see it
  double other = 0;      ///< largest weight on another visible key; −∞ if there is none
  double null_mass = 0;  ///< p_∅ = e^{s − lse}
  double entropy = 0;    ///< −Σ p ln p, nats, p_∅ a summand
};

namespace detail {

/// One warp a query and head; the lanes share out the keys.
template <class T>
__global__ void __launch_bounds__(128) attention_row_kernel(AttentionCall<T> call, AttentionRowStatistics* out) {
  using C = Compute<T>;
  const AttentionShape& s = call.shape;
  const Index number = static_cast<Index>(blockIdx.x) * 4 + static_cast<Index>(threadIdx.x) / 32;
  if (number >= s.batch * s.time * s.heads) return;  // a whole warp
  const Index row = number / s.heads, h = number % s.heads, b = row / s.time, i = row % s.time;
  const C lse = call.lse(row, h);
  const T* const query = call.q.row(row) + h * s.head_size;
  double first = 0, other = static_cast<double>(minus_infinity<C>()), entropy = 0;
  const Index end = at_most(i + call.mask.ahead + 1, s.time);
  for (Index j = at_least_zero(i - call.mask.behind) + static_cast<Index>(threadIdx.x) % 32; j < end; j += 32) {
    const T* const key = call.k.row(b * s.time + j) + h / call.group * s.head_size;
    C z = C(0);
    for (Index c = 0; c < s.head_size; ++c) z += load(query[c]) * load(key[c]);
    const double p = static_cast<double>(weight(z * call.scale, lse));
    if (j == 0)
      first = p;
    else
      other = Maximum{}(p, other);
    if (!(p == 0)) entropy -= p * log(p);
  }
  first = warp_reduce(first, Sum{});
  other = warp_reduce(other, Maximum{});
  entropy = warp_reduce(entropy, Sum{});
  if (threadIdx.x % 32 != 0) return;
  const double null = static_cast<double>(weight(call.sinks ? load(call.sinks[h]) : call.null_logit, lse));
  if (!(null == 0)) entropy -= null * log(null);
  out[number] = {first, other, null, entropy};
}

}  // namespace detail

/// First-token weight, largest other weight, null mass and entropy of every query and head, from q, k and the lse of the
/// forward pass: no matrix of weights exists. Shapes: as attention_forward; out (tokens·heads) entries in device memory,
/// token by token.
/// Error: weights relative, ≤ 2(ζ + (|z − M| + keys + 16 + |lse|)·u), ζ as meso::attention_forward.
template <class Normalizer, class Mask, class T>
void attention_row_statistics(Context& context, const Normalizer& normalizer, const Mask& mask,
                              const AttentionShape& shape, const std::type_identity_t<T>* theta, const View<const T>& q,
                              const ConstView<T>& k, const View<Compute<std::type_identity_t<T>>>& lse,
                              AttentionRowStatistics* out) {
  const auto call = detail::attention_call<T>("attention_row_statistics", normalizer, mask, shape, theta, q, k, k, lse);
  launch(context, "attention_row_statistics", {{blocks_for(shape.tokens() * shape.heads, 4)}, {128}},
         detail::attention_row_kernel<T>, call, out);
}

}  // namespace meso::cuda
