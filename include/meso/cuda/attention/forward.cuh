#pragma once
// The forward pass: one kernel for every type, over the tiles of attention/thread_tiles.cuh or tensor_tiles.cuh.
#include <meso/cuda/attention/tensor_tiles.cuh>
#include <meso/cuda/attention/thread_tiles.cuh>

namespace meso::cuda::detail {

/// o and lse of Tile::queries queries of a head. Each row keeps the running maximum m and the running sum l of e^{z − m};
/// they start with the null logit s: m = s, l = 1.
template <class Tile>
__global__ void __launch_bounds__(Tile::threads, Tile::blocks)
    flash_forward_kernel(AttentionCall<typename Tile::Scalar> call) {
  using C = Compute<typename Tile::Scalar>;
  constexpr int rows = Tile::rows, cols = Tile::cols, D = Tile::head_size, stride = Tile::stride;
  [[maybe_unused]] constexpr int unroll = Tile::unroll;
  MESO_DYNAMIC_SHARED(memory);
  const Tile tile(memory);
  const Index time = call.shape.time, h = static_cast<Index>(blockIdx.y), b = static_cast<Index>(blockIdx.z);
  const Index q0 = static_cast<Index>(gridDim.x - 1 - blockIdx.x) * Tile::queries, group = h / call.group;
  const auto k_head = head_of(call.k, time, b, group, D), v_head = head_of(call.v, time, b, group, D);
  load_tile<D, stride>(tile.q, head_of(call.q, time, b, h, D), q0, Tile::queries, time, call.packets);

  const C null = call.sinks ? load(call.sinks[h]) : call.null_logit;
  C m[rows], l[rows], factor[rows];
  MESO_UNROLL
  for (int r = 0; r < rows; ++r) {
    m[r] = null;
    l[r] = null == minus_infinity<C>() ? C(0) : C(1);
  }
  typename Tile::Sum o;
  tile.clear(o);
  const Index begin = at_least_zero(q0 - call.mask.behind) / Tile::keys * Tile::keys;
  const Index end = at_most(q0 + Tile::queries + call.mask.ahead, time);
  for (Index k0 = begin; k0 < end; k0 += Tile::keys) {
    __syncthreads();
    load_tile<D, stride>(tile.k, k_head, k0, Tile::keys, time, call.packets);
    if constexpr (Tile::keys_beside_values) load_tile<D, stride>(tile.v, v_head, k0, Tile::keys, time, call.packets);
    __syncthreads();
    typename Tile::Scores scores;
    tile.scores(scores);
    if constexpr (!Tile::keys_beside_values) {
      __syncthreads();
      load_tile<D, stride>(tile.v, v_head, k0, Tile::keys, time, call.packets);
    }
    MESO_UNROLL
    for (int r = 0; r < rows; ++r) {
      const Index i = q0 + tile.row(r);
      C top = minus_infinity<C>();
      MESO_UNROLL_BY(unroll)
      for (int c = 0; c < cols; ++c) {
        C& z = tile.score(scores, r, c);
        z = sees(call.mask, i, k0 + tile.col(c), time) ? z * call.scale : minus_infinity<C>();
        top = Maximum{}(z, top);
      }
      MESO_UNROLL
      for (int bits = Tile::lanes / 2; bits > 0; bits /= 2)
        top = Maximum{}(top, __shfl_xor_sync(0xFFFFFFFFu, top, bits));
      const C next = Maximum{}(top, m[r]), shift = next == minus_infinity<C>() ? C(0) : next;
      factor[r] = m[r] == next ? C(1) : exponential(m[r] - shift);  // next may be +∞, the null logit
      C sum = C(0);
      MESO_UNROLL_BY(unroll)
      for (int c = 0; c < cols; ++c) {
        const C w = exponential(tile.score(scores, r, c) - shift);
        store(tile.weight(r, c), w);
        sum += w;
      }
      MESO_UNROLL
      for (int bits = Tile::lanes / 2; bits > 0; bits /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, bits);
      l[r] = l[r] * factor[r] + sum;
      m[r] = next;
    }
    tile.scale(o, factor);
    tile.barrier();
    if (hides(call.mask, q0, Tile::queries, k0, Tile::keys))
      set_apart_not_finite<D, stride>(tile.v, Tile::keys, [&] {
        tile.add_not_finite(o, [&](int i, int j) { return sees(call.mask, q0 + i, k0 + j, time); });
      });
    tile.add_weighted(o);
  }
  MESO_UNROLL
  for (int r = 0; r < rows; ++r) {
    const Index i = q0 + tile.row(r);
    factor[r] = l[r] == C(0) ? C(0) : C(1) / l[r];
    if (tile.lane == 0 && i < time) call.lse(b * time + i, h) = m[r] + logarithm(l[r]);
  }
  tile.scale(o, factor);
  tile.store(o, head_of(call.o, time, b, h, D), q0, time);
}

/// One head size: a translation unit may hold its kernels alone.
template <class T, int D>
void flash_forward(Context& context, const AttentionCall<T>& call) {
  using Tile = std::conditional_t<std::is_same_v<T, bf16>, TensorForward<D>, ThreadForward<Compute<T>, D>>;
  const AttentionShape& s = call.shape;
  const dim3 grid(blocks_for(s.time, Tile::queries), static_cast<unsigned>(s.heads), static_cast<unsigned>(s.batch));
  launch(context, "attention_forward", {grid, {Tile::threads}, Tile::shared()}, flash_forward_kernel<Tile>, call);
}

}  // namespace meso::cuda::detail
