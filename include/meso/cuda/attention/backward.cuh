#pragma once
// The backward pass: two kernels for every type, over the tiles of attention/thread_tiles.cuh or tensor_tiles.cuh. No
// atomics: dq is summed by blocks of queries, dk and dv by blocks of keys.
#include <meso/cuda/attention/tensor_tiles.cuh>
#include <meso/cuda/attention/thread_tiles.cuh>

namespace meso::cuda::detail {

/// dq = dz k·scale, dz = p ∘ (dp − Δ), p = e^{z − lse}. One block: Tile::own queries of a head.
template <class Tile>
__global__ void __launch_bounds__(Tile::threads, Tile::blocks)
    flash_dq_kernel(AttentionCall<typename Tile::Scalar> call) {
  using C = Compute<typename Tile::Scalar>;
  constexpr int D = Tile::head_size, stride = Tile::stride;
  MESO_DYNAMIC_SHARED(memory);
  const Tile tile(memory);
  const Index time = call.shape.time, h = static_cast<Index>(blockIdx.y), b = static_cast<Index>(blockIdx.z);
  const Index q0 = static_cast<Index>(gridDim.x - 1 - blockIdx.x) * Tile::own, group = h / call.group;
  const auto k_head = head_of(call.k, time, b, group, D), v_head = head_of(call.v, time, b, group, D);
  load_tile<D, stride>(tile.own_a, head_of(call.q, time, b, h, D), q0, Tile::own, time, call.packets);
  load_tile<D, stride>(tile.own_b, head_of(call.d_o, time, b, h, D), q0, Tile::own, time, call.packets);
  load_rows(call, b, h, q0, Tile::own, tile.lse, tile.delta);
  typename Tile::Sum dq;
  tile.clear(dq);
  const Index begin = at_least_zero(q0 - call.mask.behind) / Tile::other * Tile::other;
  const Index end = at_most(q0 + Tile::own + call.mask.ahead, time);
  for (Index k0 = begin; k0 < end; k0 += Tile::other) {
    __syncthreads();
    load_tile<D, stride>(tile.other_a, k_head, k0, Tile::other, time, call.packets);
    load_tile<D, stride>(tile.other_b, v_head, k0, Tile::other, time, call.packets);
    __syncthreads();
    tile.scores([&](int i, int j, C z, C dp) {
      // What is not seen may have a dp of NaN.
      const bool seen = sees(call.mask, q0 + i, k0 + j, time);
      store(tile.weight(0, i, j),
            seen ? weight(z * call.scale, tile.lse[i]) * (dp - tile.delta[i]) * call.scale : C(0));
    });
    tile.barrier();
    if (hides(call.mask, q0, Tile::own, k0, Tile::other))
      set_apart_not_finite<D, stride>(tile.other_a, Tile::other, [&] {
        tile.add_not_finite(0, tile.other_a, dq, [&](int i, int j) { return sees(call.mask, q0 + i, k0 + j, time); });
      });
    tile.add_weighted(0, tile.other_a, dq);
  }
  tile.store(dq, head_of(call.dq, time, b, h, D), q0, time);
}

/// dk = dzᵀ q·scale and dv = pᵀ do, summed over the heads of a group in order. One block: Tile::own keys of a key-value
/// head; rows of the tiles are keys.
template <class Tile>
__global__ void __launch_bounds__(Tile::threads, Tile::blocks)
    flash_dkv_kernel(AttentionCall<typename Tile::Scalar> call) {
  using C = Compute<typename Tile::Scalar>;
  constexpr int D = Tile::head_size, stride = Tile::stride;
  MESO_DYNAMIC_SHARED(memory);
  const Tile tile(memory);
  const Index time = call.shape.time, g = static_cast<Index>(blockIdx.y), b = static_cast<Index>(blockIdx.z);
  const Index k0 = static_cast<Index>(blockIdx.x) * Tile::own, heads = call.group;
  load_tile<D, stride>(tile.own_a, head_of(call.k, time, b, g, D), k0, Tile::own, time, call.packets);
  load_tile<D, stride>(tile.own_b, head_of(call.v, time, b, g, D), k0, Tile::own, time, call.packets);
  typename Tile::Sum dk, dv;
  tile.clear(dk);
  tile.clear(dv);
  const Index begin = at_least_zero(k0 - call.mask.ahead) / Tile::other * Tile::other;
  const Index end = at_most(k0 + Tile::own + call.mask.behind, time);
  for (Index h = g * heads; h < (g + 1) * heads; ++h) {
    for (Index q0 = begin; q0 < end; q0 += Tile::other) {
      __syncthreads();
      load_tile<D, stride>(tile.other_a, head_of(call.q, time, b, h, D), q0, Tile::other, time, call.packets);
      load_tile<D, stride>(tile.other_b, head_of(call.d_o, time, b, h, D), q0, Tile::other, time, call.packets);
      load_rows(call, b, h, q0, Tile::other, tile.lse, tile.delta);
      __syncthreads();
      tile.scores([&](int j, int i, C z, C dp) {
        const bool seen = sees(call.mask, q0 + i, k0 + j, time);
        const C p = seen ? weight(z * call.scale, tile.lse[i]) : C(0);
        store(tile.weight(0, j, i), p);
        store(tile.weight(1, j, i), seen ? p * (dp - tile.delta[i]) * call.scale : C(0));
      });
      tile.barrier();
      if (hides(call.mask, q0, Tile::other, k0, Tile::own)) {
        const auto seen = [&](int j, int i) { return sees(call.mask, q0 + i, k0 + j, time); };
        set_apart_not_finite<D, stride>(tile.other_b, Tile::other,
                                        [&] { tile.add_not_finite(0, tile.other_b, dv, seen); });
        set_apart_not_finite<D, stride>(tile.other_a, Tile::other,
                                        [&] { tile.add_not_finite(1, tile.other_a, dk, seen); });
      }
      tile.add_weighted(0, tile.other_b, dv);
      tile.add_weighted(1, tile.other_a, dk);
    }
  }
  tile.store(dk, head_of(call.dk, time, b, g, D), k0, time);
  tile.store(dv, head_of(call.dv, time, b, g, D), k0, time);
}

/// Δ(token, head) = do·o, one warp each.
template <class T>
__global__ void __launch_bounds__(256)
    delta_kernel(View<const T> o, View<const T> d_o, Index heads, Index head_size, View<Compute<T>> delta) {
  const Index number = static_cast<Index>(blockIdx.x) * 8 + static_cast<Index>(threadIdx.x) / 32;
  if (number >= o.rows * heads) return;  // a whole warp
  const Index i = number / heads, h = number % heads;
  Compute<T> sum = 0;
  for (Index c = static_cast<Index>(threadIdx.x) % 32; c < head_size; c += 32)
    sum += load(d_o(i, h * head_size + c)) * load(o(i, h * head_size + c));
  sum = warp_reduce(sum, Sum{});
  if (threadIdx.x % 32 == 0) delta(i, h) = sum;
}

/// −p_∅ Δ = −e^{s − lse} Δ.
template <class T>
struct SinkTerms {
  const T* sinks;
  View<const Compute<T>> lse, delta;
  __device__ void operator()(Index i, Index h, Compute<T> (&out)[1]) const {
    out[0] = -null_weight(load(sinks[h]), lse(i, h)) * delta(i, h);
  }
};

/// One head size: a translation unit may hold its kernels alone. call.delta is there already.
template <class T, int D>
void flash_backward(Context& context, const AttentionCall<T>& call) {
  constexpr bool tensor = std::is_same_v<T, bf16>;
  using Queries = std::conditional_t<tensor, TensorBackward<D, 1>, ThreadBackward<Compute<T>, D, 1>>;
  using Keys = std::conditional_t<tensor, TensorBackward<D, 2>, ThreadBackward<Compute<T>, D, 2>>;
  const AttentionShape& s = call.shape;
  const auto grid = [&](Index tile, Index heads) {
    return dim3(blocks_for(s.time, tile), static_cast<unsigned>(heads), static_cast<unsigned>(s.batch));
  };
  launch(context, "attention_backward", {grid(Queries::own, s.heads), {Queries::threads}, Queries::shared()},
         flash_dq_kernel<Queries>, call);
  launch(context, "attention_backward", {grid(Keys::own, s.key_value_heads), {Keys::threads}, Keys::shared()},
         flash_dkv_kernel<Keys>, call);
}

}  // namespace meso::cuda::detail
