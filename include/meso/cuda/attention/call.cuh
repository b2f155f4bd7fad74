#pragma once
// What the attention kernels share: their arguments, the mask, and how tiles come into shared memory.
#include <meso/attention/mask.hpp>
#include <meso/attention/shape.hpp>
#include <meso/cuda/pack.cuh>

namespace meso::cuda {

/// Query i sees the keys i − behind … i + ahead: every mask of the library, as arguments of a kernel.
struct MaskRange {
  Index behind = 0;
  Index ahead = 0;
};
inline MaskRange mask_range(const Causal&, Index time) { return {time, 0}; }
inline MaskRange mask_range(const Bidirectional&, Index time) { return {time, time}; }
inline MaskRange mask_range(const SlidingWindow& mask, Index time) {
  mask.visible(0, time);  // checks the window
  return {mask.window - 1, 0};
}

namespace detail {

/// All that one call of the kernels reads and writes.
template <class T>
struct AttentionCall {
  AttentionShape shape;
  Index group;  // query heads of a key-value head
  MaskRange mask;
  Compute<T> scale, null_logit;
  const T* sinks;  // null logits of the heads, or null: null_logit
  bool packets;    // rows of q, k, v, do begin at multiples of 16 bytes
  View<const T> q, k, v, d_o;
  View<T> o, dq, dk, dv;
  View<Compute<T>> lse;          // (tokens, heads)
  View<const Compute<T>> delta;  // (tokens, heads)
};

/// Rows [first, first + rows) of a head, D channels, into shared memory with stride `stride`; zeros past the end.
template <int D, int stride, class T>
__device__ __forceinline__ void load_tile(T* to, const View<const T>& from, Index first, int rows, Index end,
                                          bool packets) {
  constexpr int width = pack_size<T>, across = D / width;
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int k = thread; k < rows * across; k += threads) {
    const int r = k / across, c = k % across * width;
    Pack<T, width> pack;
    if (first + r < end) {
      const T* const source = from.row(first + r) + c;
      if (packets) {
        pack = load_pack<width>(source);
      } else {
        MESO_UNROLL
        for (int e = 0; e < width; ++e) pack.values[e] = source[e];
      }
    } else {
      MESO_UNROLL
      for (int e = 0; e < width; ++e) pack.values[e] = static_cast<T>(0.0f);
    }
    if constexpr (stride % width == 0) {
      store_in_place(to + r * stride + c, pack);
    } else {
      MESO_UNROLL
      for (int e = 0; e < width; ++e) to[r * stride + c + e] = pack.values[e];
    }
  }
}

/// Rows of sequence b, channels of head h.
template <class T>
__device__ __forceinline__ View<T> head_of(const View<T>& x, Index time, Index b, Index h, int size) {
  return x.block(b * time, h * size, time, size);
}

__device__ __forceinline__ bool sees(const MaskRange& mask, Index query, Index key, Index time) {
  return key >= query - mask.behind && key <= query + mask.ahead && key < time && query < time;
}
/// True where some of `queries` queries from q0 do not see some of `keys` keys from k0.
__device__ __forceinline__ bool hides(const MaskRange& mask, Index q0, int queries, Index k0, int keys) {
  return k0 + keys - 1 > q0 + mask.ahead || k0 < q0 + queries - 1 - mask.behind;
}
/// Keys that the mask hides have weight 0, and 0·NaN is NaN: before weights are multiplied with the rows x, add() adds
/// what is not finite in them where it is seen; then it becomes 0. For all threads of a block alike; barriers.
template <int D, int stride, class T, class Add>
__device__ __forceinline__ void set_apart_not_finite(T* x, int rows, Add&& add) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  bool found = false;
  for (int e = thread; e < rows * D; e += threads) found = found || !finite(load(x[e / D * stride + e % D]));
  if (!__syncthreads_or(found)) return;
  add();
  __syncthreads();
  for (int e = thread; e < rows * D; e += threads) {
    T& value = x[e / D * stride + e % D];
    if (!finite(load(value))) value = static_cast<T>(0.0f);
  }
  __syncthreads();
}
__device__ __forceinline__ Index at_least_zero(Index x) { return x > 0 ? x : 0; }
__device__ __forceinline__ Index at_most(Index x, Index limit) { return x < limit ? x : limit; }

/// e^{z − lse}; 0 where lse = −∞, which is where no key has weight.
template <class C>
__device__ __forceinline__ C weight(C z, C lse) {
  return lse == minus_infinity<C>() ? C(0) : exponential(z - lse);
}

/// p_∅ = e^{s − lse}; 1 at s = lse, also where both are +∞.
template <class C>
__device__ __forceinline__ C null_weight(C s, C lse) {
  return s == lse && s != minus_infinity<C>() ? C(1) : weight(s, lse);
}

/// lse and Δ of `count` queries into shared memory.
template <class T>
__device__ __forceinline__ void load_rows(const AttentionCall<T>& call, Index b, Index h, Index q0, int count,
                                          Compute<T>* lse, Compute<T>* delta) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int r = thread; r < count; r += static_cast<int>(blockDim.x)) {
    const bool inside = q0 + r < call.shape.time;
    const Index row = b * call.shape.time + q0 + r;
    lse[r] = inside ? call.lse(row, h) : minus_infinity<Compute<T>>();
    delta[r] = inside ? call.delta(row, h) : Compute<T>(0);
  }
}

template <class T, class Normalizer, class Mask>
AttentionCall<T> attention_call(const char* op, const Normalizer& normalizer, const Mask& mask, const AttentionShape& s,
                                const T* theta, const View<const T>& q, const View<const T>& k, const View<const T>& v,
                                const View<Compute<T>>& lse) {
  check_attention_shape(s);
  check_shape(op, "q", q, s.tokens(), s.heads * s.head_size);
  check_shape(op, "k", k, s.tokens(), s.key_value_heads * s.head_size);
  check_shape(op, "v", v, s.tokens(), s.key_value_heads * s.head_size);
  check_shape(op, "lse", lse, s.tokens(), s.heads);
  check_normalizer_parameters<Normalizer>(op, "theta", theta);
  meso::check(s.heads < 65536 && s.batch < 65536, op, ": ", s.heads, " heads and ", s.batch,
              " sequences, expected fewer than 65536");
  AttentionCall<T> call{};
  call.shape = s;
  call.group = s.group();
  call.mask = mask_range(mask, s.time);
  call.scale = static_cast<Compute<T>>(1.0 / std::sqrt(static_cast<double>(s.head_size)));
  call.null_logit = static_cast<Compute<T>>(normalizer.null_logit());
  call.sinks = Normalizer::parameters_per_head > 0 ? theta : nullptr;
  call.packets = aligned(q) && aligned(k) && aligned(v);
  call.q = q;
  call.k = k;
  call.v = v;
  call.lse = lse;
  return call;
}

/// f(integral constant of the head size).
template <class F>
void with_head_size(const char* op, Index size, F&& f) {
  switch (size) {
    case 32:
      return f(std::integral_constant<int, 32>{});
    case 64:
      return f(std::integral_constant<int, 64>{});
    case 96:
      return f(std::integral_constant<int, 96>{});
    case 128:
      return f(std::integral_constant<int, 128>{});
    default:
      meso::check(false, op, ": the head size is ", size, ", expected 32, 64, 96 or 128");
  }
}

}  // namespace detail
}  // namespace meso::cuda
