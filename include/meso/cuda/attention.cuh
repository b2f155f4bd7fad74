#pragma once
#include <meso/attention/mask.hpp>
#include <meso/attention/shape.hpp>
#include <meso/cuda/math.cuh>
#include <meso/cuda/normalizer.cuh>

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

template <class T>
struct alignas(16) Packet {
  T values[16 / sizeof(T)];
};

/// Rows [first, first + rows) of a head, D channels, into shared memory with stride `stride`; zeros past the end.
template <int D, class T>
__device__ __forceinline__ void load_tile(T* to, int stride, const View<const T>& from, Index first, int rows,
                                          Index end, bool packets) {
  constexpr int width = 16 / static_cast<int>(sizeof(T)), across = D / width;
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int k = thread; k < rows * across; k += threads) {
    const int r = k / across, c = k % across * width;
    Packet<T> packet;
    if (first + r < end) {
      const T* const source = from.row(first + r) + c;
      if (packets) {
        packet = *reinterpret_cast<const Packet<T>*>(source);
      } else {
        MESO_UNROLL
        for (int e = 0; e < width; ++e) packet.values[e] = source[e];
      }
    } else {
      MESO_UNROLL
      for (int e = 0; e < width; ++e) packet.values[e] = static_cast<T>(0.0f);
    }
    MESO_UNROLL
    for (int e = 0; e < width; ++e) to[r * stride + c + e] = packet.values[e];
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
__device__ __forceinline__ Index at_least_zero(Index x) { return x > 0 ? x : 0; }
__device__ __forceinline__ Index at_most(Index x, Index limit) { return x < limit ? x : limit; }

/// e^{z − lse}; 0 where lse = −∞, which is where no key has weight.
template <class C>
__device__ __forceinline__ C weight(C z, C lse) {
  return lse == minus_infinity<C>() ? C(0) : exponential(z - lse);
}

// ---------------------------------------------------------------- float and double: threads as 16 × (rows/4), each of
// them with 4 rows and a sixteenth of the columns

template <int D>
struct ForwardTile {
  static constexpr int queries = 64, keys = D <= 64 ? 64 : 32, threads = 256, stride = D + 1;
  template <class C>
  static constexpr std::size_t shared() {
    return sizeof(C) * ((queries + keys) * stride + queries * (keys + 1));
  }
};

template <class C, int D>
__global__ void __launch_bounds__(256) flash_forward_kernel(AttentionCall<C> call) {
  using Tile = ForwardTile<D>;
  constexpr int rows = 4, cols = Tile::keys / 16, channels = D / 16, stride = Tile::stride, p_stride = Tile::keys + 1;
  MESO_DYNAMIC_SHARED(memory);
  C* const q = reinterpret_cast<C*>(memory);
  C* const kv = q + Tile::queries * stride;
  C* const p = kv + Tile::keys * stride;
  const int tx = static_cast<int>(threadIdx.x) % 16, ty = static_cast<int>(threadIdx.x) / 16;
  const Index time = call.shape.time, h = static_cast<Index>(blockIdx.y), b = static_cast<Index>(blockIdx.z);
  const Index q0 = static_cast<Index>(gridDim.x - 1 - blockIdx.x) * Tile::queries, group = h / call.group;
  const View<const C> k_head = head_of(call.k, time, b, group, D), v_head = head_of(call.v, time, b, group, D);
  load_tile<D>(q, stride, head_of(call.q, time, b, h, D), q0, Tile::queries, time, call.packets);

  const C null = call.sinks ? call.sinks[h] : call.null_logit;
  C m[rows], l[rows], o[rows][channels];
  MESO_UNROLL
  for (int r = 0; r < rows; ++r) {
    m[r] = null;
    l[r] = null == minus_infinity<C>() ? C(0) : C(1);
    MESO_UNROLL
    for (int c = 0; c < channels; ++c) o[r][c] = C(0);
  }
  const Index begin = at_least_zero(q0 - call.mask.behind) / Tile::keys * Tile::keys;
  const Index end = at_most(q0 + Tile::queries + call.mask.ahead, time);
  for (Index k0 = begin; k0 < end; k0 += Tile::keys) {
    __syncthreads();
    load_tile<D>(kv, stride, k_head, k0, Tile::keys, time, call.packets);
    __syncthreads();
    C z[rows][cols];
    MESO_UNROLL
    for (int r = 0; r < rows; ++r) {
      MESO_UNROLL
      for (int c = 0; c < cols; ++c) z[r][c] = C(0);
    }
    for (int d = 0; d < D; ++d) {
      C key[cols];
      MESO_UNROLL
      for (int c = 0; c < cols; ++c) key[c] = kv[(tx + 16 * c) * stride + d];
      MESO_UNROLL
      for (int r = 0; r < rows; ++r) {
        const C query = q[(ty * rows + r) * stride + d];
        MESO_UNROLL
        for (int c = 0; c < cols; ++c) z[r][c] += query * key[c];
      }
    }
    __syncthreads();
    load_tile<D>(kv, stride, v_head, k0, Tile::keys, time, call.packets);
    MESO_UNROLL
    for (int r = 0; r < rows; ++r) {
      const Index i = q0 + ty * rows + r;
      C top = minus_infinity<C>();
      MESO_UNROLL
      for (int c = 0; c < cols; ++c) {
        z[r][c] = sees(call.mask, i, k0 + tx + 16 * c, time) ? z[r][c] * call.scale : minus_infinity<C>();
        top = Maximum{}(z[r][c], top);
      }
      MESO_UNROLL
      for (int bits = 8; bits > 0; bits /= 2) top = Maximum{}(top, __shfl_xor_sync(0xFFFFFFFFu, top, bits));
      const C next = Maximum{}(top, m[r]), shift = next == minus_infinity<C>() ? C(0) : next;
      const C old = exponential(m[r] - shift);
      C sum = C(0);
      MESO_UNROLL
      for (int c = 0; c < cols; ++c) {
        const C w = exponential(z[r][c] - shift);
        p[(ty * rows + r) * p_stride + tx + 16 * c] = w;
        sum += w;
      }
      MESO_UNROLL
      for (int bits = 8; bits > 0; bits /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, bits);
      l[r] = l[r] * old + sum;
      m[r] = next;
      MESO_UNROLL
      for (int c = 0; c < channels; ++c) o[r][c] *= old;
    }
    __syncthreads();
    for (int k = 0; k < Tile::keys; ++k) {
      C value[channels];
      MESO_UNROLL
      for (int c = 0; c < channels; ++c) value[c] = kv[k * stride + tx + 16 * c];
      MESO_UNROLL
      for (int r = 0; r < rows; ++r) {
        const C w = p[(ty * rows + r) * p_stride + k];
        MESO_UNROLL
        for (int c = 0; c < channels; ++c) o[r][c] += w * value[c];
      }
    }
  }
  const View<C> o_head = head_of(call.o, time, b, h, D);
  MESO_UNROLL
  for (int r = 0; r < rows; ++r) {
    const Index i = q0 + ty * rows + r;
    if (i >= time) continue;
    const C inverse = l[r] == C(0) ? C(0) : C(1) / l[r];
    MESO_UNROLL
    for (int c = 0; c < channels; ++c) o_head(i, tx + 16 * c) = o[r][c] * inverse;
    if (tx == 0) call.lse(b * time + i, h) = m[r] + logarithm(l[r]);
  }
}

template <int D>
struct BackwardTile {
  static constexpr int queries = 32, keys = 32, threads = 128, stride = D + 1, p_stride = 33;
  template <class C>
  static constexpr std::size_t shared() {
    return sizeof(C) * (4 * 32 * stride + 2 * 32 * p_stride + 2 * 32);
  }
};

/// z and dp of 4 rows × 2 columns of a 32 × 32 tile: rows of a and x, columns of b and y.
template <class C, int D>
__device__ __forceinline__ void scores(const C* a, const C* b, const C* x, const C* y, C (&z)[4][2], C (&dp)[4][2]) {
  constexpr int stride = BackwardTile<D>::stride;
  const int tx = static_cast<int>(threadIdx.x) % 16, ty = static_cast<int>(threadIdx.x) / 16;
  MESO_UNROLL
  for (int r = 0; r < 4; ++r) {
    MESO_UNROLL
    for (int c = 0; c < 2; ++c) z[r][c] = dp[r][c] = C(0);
  }
  for (int d = 0; d < D; ++d) {
    C right_b[2], right_y[2];
    MESO_UNROLL
    for (int c = 0; c < 2; ++c) {
      right_b[c] = b[(tx + 16 * c) * stride + d];
      right_y[c] = y[(tx + 16 * c) * stride + d];
    }
    MESO_UNROLL
    for (int r = 0; r < 4; ++r) {
      const C left_a = a[(ty * 4 + r) * stride + d], left_x = x[(ty * 4 + r) * stride + d];
      MESO_UNROLL
      for (int c = 0; c < 2; ++c) {
        z[r][c] += left_a * right_b[c];
        dp[r][c] += left_x * right_y[c];
      }
    }
  }
}

/// sum(r, :) += Σ_k w(r, k) x(k, :) for 4 rows of a 32 × 32 tile w and 32 rows x.
template <class C, int D>
__device__ __forceinline__ void add_product(const C* w, const C* x, C (&sum)[4][D / 16]) {
  constexpr int stride = BackwardTile<D>::stride, p_stride = BackwardTile<D>::p_stride;
  const int tx = static_cast<int>(threadIdx.x) % 16, ty = static_cast<int>(threadIdx.x) / 16;
  for (int k = 0; k < 32; ++k) {
    C value[D / 16];
    MESO_UNROLL
    for (int c = 0; c < D / 16; ++c) value[c] = x[k * stride + tx + 16 * c];
    MESO_UNROLL
    for (int r = 0; r < 4; ++r) {
      const C left = w[(ty * 4 + r) * p_stride + k];
      MESO_UNROLL
      for (int c = 0; c < D / 16; ++c) sum[r][c] += left * value[c];
    }
  }
}

/// lse and Δ of 32 queries into shared memory.
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

/// dq = dz k·scale, dz = p ∘ (dp − Δ), p = e^{z − lse}. One block: 32 queries of a head.
template <class C, int D>
__global__ void __launch_bounds__(128) flash_dq_kernel(AttentionCall<C> call) {
  using Tile = BackwardTile<D>;
  constexpr int stride = Tile::stride, tile = 32 * stride;
  MESO_DYNAMIC_SHARED(memory);
  C* const q = reinterpret_cast<C*>(memory);
  C *const d_o = q + tile, *const k = d_o + tile, *const v = k + tile, *const dz = v + tile;
  C *const lse = dz + 2 * 32 * Tile::p_stride, *const delta = lse + 32;
  const int tx = static_cast<int>(threadIdx.x) % 16, ty = static_cast<int>(threadIdx.x) / 16;
  const Index time = call.shape.time, h = static_cast<Index>(blockIdx.y), b = static_cast<Index>(blockIdx.z);
  const Index q0 = static_cast<Index>(gridDim.x - 1 - blockIdx.x) * 32, group = h / call.group;
  const View<const C> k_head = head_of(call.k, time, b, group, D), v_head = head_of(call.v, time, b, group, D);
  load_tile<D>(q, stride, head_of(call.q, time, b, h, D), q0, 32, time, call.packets);
  load_tile<D>(d_o, stride, head_of(call.d_o, time, b, h, D), q0, 32, time, call.packets);
  load_rows(call, b, h, q0, 32, lse, delta);
  C sum[4][D / 16];
  MESO_UNROLL
  for (int r = 0; r < 4; ++r) {
    MESO_UNROLL
    for (int c = 0; c < D / 16; ++c) sum[r][c] = C(0);
  }
  const Index begin = at_least_zero(q0 - call.mask.behind) / 32 * 32, end = at_most(q0 + 32 + call.mask.ahead, time);
  for (Index k0 = begin; k0 < end; k0 += 32) {
    __syncthreads();
    load_tile<D>(k, stride, k_head, k0, 32, time, call.packets);
    load_tile<D>(v, stride, v_head, k0, 32, time, call.packets);
    __syncthreads();
    C z[4][2], dp[4][2];
    scores<C, D>(q, k, d_o, v, z, dp);
    MESO_UNROLL
    for (int r = 0; r < 4; ++r) {
      MESO_UNROLL
      for (int c = 0; c < 2; ++c) {
        const int i = ty * 4 + r, j = tx + 16 * c;
        const C p = sees(call.mask, q0 + i, k0 + j, time) ? weight(z[r][c] * call.scale, lse[i]) : C(0);
        dz[i * Tile::p_stride + j] = p * (dp[r][c] - delta[i]) * call.scale;
      }
    }
    __syncthreads();
    add_product<C, D>(dz, k, sum);
  }
  const View<C> out = head_of(call.dq, time, b, h, D);
  MESO_UNROLL
  for (int r = 0; r < 4; ++r) {
    if (q0 + ty * 4 + r >= time) continue;
    MESO_UNROLL
    for (int c = 0; c < D / 16; ++c) out(q0 + ty * 4 + r, tx + 16 * c) = sum[r][c];
  }
}

/// dk = dzᵀ q·scale and dv = pᵀ do, summed over the heads of a group in order. One block: 32 keys of a key-value head.
template <class C, int D>
__global__ void __launch_bounds__(128) flash_dkv_kernel(AttentionCall<C> call) {
  using Tile = BackwardTile<D>;
  constexpr int stride = Tile::stride, tile = 32 * stride;
  MESO_DYNAMIC_SHARED(memory);
  C* const k = reinterpret_cast<C*>(memory);
  C *const v = k + tile, *const q = v + tile, *const d_o = q + tile, *const p = d_o + tile,
           *const dz = p + 32 * Tile::p_stride, *const lse = dz + 32 * Tile::p_stride, *const delta = lse + 32;
  const int tx = static_cast<int>(threadIdx.x) % 16, ty = static_cast<int>(threadIdx.x) / 16;
  const Index time = call.shape.time, g = static_cast<Index>(blockIdx.y), b = static_cast<Index>(blockIdx.z);
  const Index k0 = static_cast<Index>(blockIdx.x) * 32, heads = call.group;
  load_tile<D>(k, stride, head_of(call.k, time, b, g, D), k0, 32, time, call.packets);
  load_tile<D>(v, stride, head_of(call.v, time, b, g, D), k0, 32, time, call.packets);
  C dk[4][D / 16], dv[4][D / 16];
  MESO_UNROLL
  for (int r = 0; r < 4; ++r) {
    MESO_UNROLL
    for (int c = 0; c < D / 16; ++c) dk[r][c] = dv[r][c] = C(0);
  }
  const Index begin = at_least_zero(k0 - call.mask.ahead) / 32 * 32, end = at_most(k0 + 32 + call.mask.behind, time);
  for (Index h = g * heads; h < (g + 1) * heads; ++h) {
    for (Index q0 = begin; q0 < end; q0 += 32) {
      __syncthreads();
      load_tile<D>(q, stride, head_of(call.q, time, b, h, D), q0, 32, time, call.packets);
      load_tile<D>(d_o, stride, head_of(call.d_o, time, b, h, D), q0, 32, time, call.packets);
      load_rows(call, b, h, q0, 32, lse, delta);
      __syncthreads();
      C z[4][2], dp[4][2];
      scores<C, D>(k, q, v, d_o, z, dp);
      MESO_UNROLL
      for (int r = 0; r < 4; ++r) {
        MESO_UNROLL
        for (int c = 0; c < 2; ++c) {
          const int j = ty * 4 + r, i = tx + 16 * c;
          const C w = sees(call.mask, q0 + i, k0 + j, time) ? weight(z[r][c] * call.scale, lse[i]) : C(0);
          p[j * Tile::p_stride + i] = w;
          dz[j * Tile::p_stride + i] = w * (dp[r][c] - delta[i]) * call.scale;
        }
      }
      __syncthreads();
      add_product<C, D>(p, d_o, dv);
      add_product<C, D>(dz, q, dk);
    }
  }
  const View<C> out_k = head_of(call.dk, time, b, g, D), out_v = head_of(call.dv, time, b, g, D);
  MESO_UNROLL
  for (int r = 0; r < 4; ++r) {
    if (k0 + ty * 4 + r >= time) continue;
    MESO_UNROLL
    for (int c = 0; c < D / 16; ++c) {
      out_k(k0 + ty * 4 + r, tx + 16 * c) = dk[r][c];
      out_v(k0 + ty * 4 + r, tx + 16 * c) = dv[r][c];
    }
  }
}

// ---------------------------------------------------------------- bf16: tensor cores, 4 warps of 16 rows each

namespace wmma = nvcuda::wmma;
using LeftFragment = wmma::fragment<wmma::matrix_a, 16, 16, 16, bf16, wmma::row_major>;
using RightFragment = wmma::fragment<wmma::matrix_b, 16, 16, 16, bf16, wmma::row_major>;
using RightTransposed = wmma::fragment<wmma::matrix_b, 16, 16, 16, bf16, wmma::col_major>;
using SumFragment = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

/// Which element of a 16 × 16 tile each entry of a lane's accumulator is: the layout is the hardware's own affair, so it is
/// read off a tile that holds its own numbers. `tile` is scratch of the warp, rows of `stride` floats.
struct ElementMap {
  int element[8];
  __device__ __forceinline__ int row(int e) const { return element[e] / 16; }
  __device__ __forceinline__ int col(int e) const { return element[e] % 16; }
};
__device__ __forceinline__ ElementMap element_map(float* tile, unsigned stride) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int e = lane; e < 256; e += 32) tile[e / 16 * static_cast<int>(stride) + e % 16] = static_cast<float>(e);
  __syncwarp();
  SumFragment f;
  wmma::load_matrix_sync(f, tile, stride, wmma::mem_row_major);
  __syncwarp();
  ElementMap map;
  static_assert(SumFragment::num_elements == 8);
  MESO_UNROLL
  for (int e = 0; e < 8; ++e) map.element[e] = static_cast<int>(f.x[e]);
  return map;
}

/// Stores a 16 × 16 tile, rounded, at (row, col) of `out`; `tile` is scratch of the warp.
__device__ __forceinline__ void store_tile(const SumFragment& f, float* tile, unsigned stride, const View<bf16>& out,
                                           Index row, Index col, Index end) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  __syncwarp();
  wmma::store_matrix_sync(tile, f, stride, wmma::mem_row_major);
  for (int e = lane; e < 256; e += 32)
    if (row + e / 16 < end) store(out(row + e / 16, col + e % 16), tile[e / 16 * static_cast<int>(stride) + e % 16]);
}

template <int D>
struct TensorForwardTile {
  static constexpr int queries = 64, keys = 64, threads = 128, stride = D + 8, z_stride = keys + 4, p_stride = keys + 8;
  static constexpr std::size_t shared() {
    return sizeof(bf16) * ((queries + 2 * keys) * stride + queries * p_stride) +
           sizeof(float) * (queries * z_stride + queries);
  }
};

template <int D>
__global__ void __launch_bounds__(128, 2) tensor_forward_kernel(AttentionCall<bf16> call) {
  using Tile = TensorForwardTile<D>;
  constexpr int stride = Tile::stride, across = Tile::keys / 16;
  [[maybe_unused]] constexpr int steps = D > 64 ? 2 : 4;  // more of them at once cost more registers than there are
  MESO_DYNAMIC_SHARED(memory);
  bf16* const q = reinterpret_cast<bf16*>(memory);
  bf16 *const k = q + Tile::queries * stride, *const v = k + Tile::keys * stride;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  bf16* const p = v + Tile::keys * stride + warp * 16 * Tile::p_stride;
  float* const floats = reinterpret_cast<float*>(v + Tile::keys * stride + Tile::queries * Tile::p_stride);
  float *const z = floats + warp * 16 * Tile::z_stride, *const factor =
                                                            floats + Tile::queries * Tile::z_stride + warp * 16;
  const Index time = call.shape.time, h = static_cast<Index>(blockIdx.y), b = static_cast<Index>(blockIdx.z);
  const Index q0 = static_cast<Index>(gridDim.x - 1 - blockIdx.x) * Tile::queries, group = h / call.group;
  const View<const bf16> k_head = head_of(call.k, time, b, group, D), v_head = head_of(call.v, time, b, group, D);
  load_tile<D>(q, stride, head_of(call.q, time, b, h, D), q0, Tile::queries, time, call.packets);
  const ElementMap map = element_map(z, Tile::z_stride);

  // Row lane/2 of the warp's 16; its columns are shared by two lanes.
  const int row = lane / 2, half = lane % 2;
  const Index i = q0 + warp * 16 + row;
  const float null = call.sinks ? load(call.sinks[h]) : call.null_logit;
  float m = null, l = null == minus_infinity<float>() ? 0.0f : 1.0f;
  SumFragment o[D / 16];
  MESO_UNROLL
  for (int f = 0; f < D / 16; ++f) wmma::fill_fragment(o[f], 0.0f);
  const Index begin = at_least_zero(q0 - call.mask.behind) / Tile::keys * Tile::keys;
  const Index end = at_most(q0 + Tile::queries + call.mask.ahead, time);
  for (Index k0 = begin; k0 < end; k0 += Tile::keys) {
    __syncthreads();
    load_tile<D>(k, stride, k_head, k0, Tile::keys, time, call.packets);
    load_tile<D>(v, stride, v_head, k0, Tile::keys, time, call.packets);
    __syncthreads();
    {
      SumFragment s[across];
      MESO_UNROLL
      for (int n = 0; n < across; ++n) wmma::fill_fragment(s[n], 0.0f);
      MESO_UNROLL_BY(steps)
      for (int d = 0; d < D; d += 16) {
        LeftFragment left;
        wmma::load_matrix_sync(left, q + warp * 16 * stride + d, stride);
        MESO_UNROLL
        for (int n = 0; n < across; ++n) {
          RightTransposed right;
          wmma::load_matrix_sync(right, k + n * 16 * stride + d, stride);
          wmma::mma_sync(s[n], left, right, s[n]);
        }
      }
      MESO_UNROLL
      for (int n = 0; n < across; ++n) wmma::store_matrix_sync(z + n * 16, s[n], Tile::z_stride, wmma::mem_row_major);
    }
    __syncwarp();
    float top = minus_infinity<float>();
    for (int c = half; c < Tile::keys; c += 2) {
      float& score = z[row * Tile::z_stride + c];
      score = sees(call.mask, i, k0 + c, time) ? score * call.scale : minus_infinity<float>();
      top = Maximum{}(score, top);
    }
    top = Maximum{}(top, __shfl_xor_sync(0xFFFFFFFFu, top, 1));
    const float next = Maximum{}(top, m), shift = next == minus_infinity<float>() ? 0.0f : next;
    const float old = exponential(m - shift);
    float sum = 0.0f;
    for (int c = half; c < Tile::keys; c += 2) {
      const float w = exponential(z[row * Tile::z_stride + c] - shift);
      store(p[row * Tile::p_stride + c], w);
      sum += w;
    }
    l = l * old + sum + __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
    m = next;
    if (half == 0) factor[row] = old;
    __syncwarp();
    MESO_UNROLL
    for (int f = 0; f < D / 16; ++f) {
      MESO_UNROLL
      for (int e = 0; e < 8; ++e) o[f].x[e] *= factor[map.row(e)];
    }
    MESO_UNROLL_BY(steps / 2)
    for (int n = 0; n < across; ++n) {
      LeftFragment left;
      wmma::load_matrix_sync(left, p + n * 16, Tile::p_stride);
      MESO_UNROLL
      for (int f = 0; f < D / 16; ++f) {
        RightFragment right;
        wmma::load_matrix_sync(right, v + n * 16 * stride + f * 16, stride);
        wmma::mma_sync(o[f], left, right, o[f]);
      }
    }
    __syncwarp();
  }
  if (half == 0) {
    factor[row] = l == 0.0f ? 0.0f : 1.0f / l;
    if (i < time) call.lse(b * time + i, h) = m + logarithm(l);
  }
  __syncwarp();
  const View<bf16> out = head_of(call.o, time, b, h, D);
  MESO_UNROLL
  for (int f = 0; f < D / 16; ++f) {
    MESO_UNROLL
    for (int e = 0; e < 8; ++e) o[f].x[e] *= factor[map.row(e)];
    store_tile(o[f], z, Tile::z_stride, out, q0 + warp * 16, f * 16, time);
  }
}

template <int D>
struct TensorBackwardTile {
  // 64 rows that the block owns, 32 rows that it walks over
  static constexpr int own = 64, other = 32, threads = 128, stride = D + 8, p_stride = other + 8, scratch_stride = 20;
  static constexpr std::size_t shared(int tiles) {
    return sizeof(bf16) * static_cast<std::size_t>(2 * (own + other) * stride + tiles * own * p_stride) +
           sizeof(float) * (own * scratch_stride + 2 * own);
  }
};

template <int D>
__global__ void __launch_bounds__(128, 2) tensor_dq_kernel(AttentionCall<bf16> call) {
  using Tile = TensorBackwardTile<D>;
  constexpr int stride = Tile::stride;
  [[maybe_unused]] constexpr int steps = D > 96 ? 1 : 2;  // more of them at once cost more registers than there are
  MESO_DYNAMIC_SHARED(memory);
  bf16* const q = reinterpret_cast<bf16*>(memory);
  bf16 *const d_o = q + Tile::own * stride, *const k = d_o + Tile::own * stride, *const v = k + Tile::other * stride;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  bf16* const dz = v + Tile::other * stride + warp * 16 * Tile::p_stride;
  float* const floats = reinterpret_cast<float*>(v + Tile::other * stride + Tile::own * Tile::p_stride);
  float *const scratch = floats + warp * 16 * Tile::scratch_stride,
               *const lse = floats + Tile::own * Tile::scratch_stride, *const delta = lse + Tile::own;
  const Index time = call.shape.time, h = static_cast<Index>(blockIdx.y), b = static_cast<Index>(blockIdx.z);
  const Index q0 = static_cast<Index>(gridDim.x - 1 - blockIdx.x) * Tile::own, group = h / call.group;
  const View<const bf16> k_head = head_of(call.k, time, b, group, D), v_head = head_of(call.v, time, b, group, D);
  load_tile<D>(q, stride, head_of(call.q, time, b, h, D), q0, Tile::own, time, call.packets);
  load_tile<D>(d_o, stride, head_of(call.d_o, time, b, h, D), q0, Tile::own, time, call.packets);
  load_rows(call, b, h, q0, Tile::own, lse, delta);
  const ElementMap map = element_map(scratch, Tile::scratch_stride);
  SumFragment dq[D / 16];
  MESO_UNROLL
  for (int f = 0; f < D / 16; ++f) wmma::fill_fragment(dq[f], 0.0f);
  const Index begin = at_least_zero(q0 - call.mask.behind) / Tile::other * Tile::other;
  const Index end = at_most(q0 + Tile::own + call.mask.ahead, time);
  for (Index k0 = begin; k0 < end; k0 += Tile::other) {
    __syncthreads();
    load_tile<D>(k, stride, k_head, k0, Tile::other, time, call.packets);
    load_tile<D>(v, stride, v_head, k0, Tile::other, time, call.packets);
    __syncthreads();
    MESO_UNROLL_BY(1)
    for (int n = 0; n < Tile::other / 16; ++n) {
      SumFragment z, dp;
      wmma::fill_fragment(z, 0.0f);
      wmma::fill_fragment(dp, 0.0f);
      MESO_UNROLL_BY(steps)
      for (int d = 0; d < D; d += 16) {
        LeftFragment left;
        RightTransposed right;
        wmma::load_matrix_sync(left, q + warp * 16 * stride + d, stride);
        wmma::load_matrix_sync(right, k + n * 16 * stride + d, stride);
        wmma::mma_sync(z, left, right, z);
        wmma::load_matrix_sync(left, d_o + warp * 16 * stride + d, stride);
        wmma::load_matrix_sync(right, v + n * 16 * stride + d, stride);
        wmma::mma_sync(dp, left, right, dp);
      }
      MESO_UNROLL
      for (int e = 0; e < 8; ++e) {
        const int i = warp * 16 + map.row(e), j = n * 16 + map.col(e);
        const float p = sees(call.mask, q0 + i, k0 + j, time) ? weight(z.x[e] * call.scale, lse[i]) : 0.0f;
        store(dz[map.row(e) * Tile::p_stride + j], p * (dp.x[e] - delta[i]) * call.scale);
      }
    }
    __syncwarp();
    MESO_UNROLL
    for (int n = 0; n < Tile::other / 16; ++n) {
      LeftFragment left;
      wmma::load_matrix_sync(left, dz + n * 16, Tile::p_stride);
      MESO_UNROLL
      for (int f = 0; f < D / 16; ++f) {
        RightFragment right;
        wmma::load_matrix_sync(right, k + n * 16 * stride + f * 16, stride);
        wmma::mma_sync(dq[f], left, right, dq[f]);
      }
    }
    __syncwarp();
  }
  const View<bf16> out = head_of(call.dq, time, b, h, D);
  MESO_UNROLL
  for (int f = 0; f < D / 16; ++f) store_tile(dq[f], scratch, Tile::scratch_stride, out, q0 + warp * 16, f * 16, time);
}

template <int D>
__global__ void __launch_bounds__(128, 2) tensor_dkv_kernel(AttentionCall<bf16> call) {
  using Tile = TensorBackwardTile<D>;
  constexpr int stride = Tile::stride;
  [[maybe_unused]] constexpr int steps = D > 96 ? 1 : 2;  // more of them at once cost more registers than there are
  MESO_DYNAMIC_SHARED(memory);
  bf16* const k = reinterpret_cast<bf16*>(memory);
  bf16 *const v = k + Tile::own * stride, *const q = v + Tile::own * stride, *const d_o = q + Tile::other * stride;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  bf16 *const p = d_o + Tile::other * stride + warp * 16 * Tile::p_stride, *const dz = p + Tile::own * Tile::p_stride;
  float* const floats = reinterpret_cast<float*>(d_o + Tile::other * stride + 2 * Tile::own * Tile::p_stride);
  float *const scratch = floats + warp * 16 * Tile::scratch_stride,
               *const lse = floats + Tile::own * Tile::scratch_stride, *const delta = lse + Tile::own;
  const Index time = call.shape.time, g = static_cast<Index>(blockIdx.y), b = static_cast<Index>(blockIdx.z);
  const Index k0 = static_cast<Index>(blockIdx.x) * Tile::own, heads = call.group;
  load_tile<D>(k, stride, head_of(call.k, time, b, g, D), k0, Tile::own, time, call.packets);
  load_tile<D>(v, stride, head_of(call.v, time, b, g, D), k0, Tile::own, time, call.packets);
  const ElementMap map = element_map(scratch, Tile::scratch_stride);
  SumFragment dk[D / 16], dv[D / 16];
  MESO_UNROLL
  for (int f = 0; f < D / 16; ++f) {
    wmma::fill_fragment(dk[f], 0.0f);
    wmma::fill_fragment(dv[f], 0.0f);
  }
  const Index begin = at_least_zero(k0 - call.mask.ahead) / Tile::other * Tile::other;
  const Index end = at_most(k0 + Tile::own + call.mask.behind, time);
  for (Index h = g * heads; h < (g + 1) * heads; ++h) {
    for (Index q0 = begin; q0 < end; q0 += Tile::other) {
      __syncthreads();
      load_tile<D>(q, stride, head_of(call.q, time, b, h, D), q0, Tile::other, time, call.packets);
      load_tile<D>(d_o, stride, head_of(call.d_o, time, b, h, D), q0, Tile::other, time, call.packets);
      load_rows(call, b, h, q0, Tile::other, lse, delta);
      __syncthreads();
      MESO_UNROLL_BY(1)
      for (int n = 0; n < Tile::other / 16; ++n) {
        SumFragment z, dp;  // transposed: rows are keys
        wmma::fill_fragment(z, 0.0f);
        wmma::fill_fragment(dp, 0.0f);
        MESO_UNROLL_BY(steps)
        for (int d = 0; d < D; d += 16) {
          LeftFragment left;
          RightTransposed right;
          wmma::load_matrix_sync(left, k + warp * 16 * stride + d, stride);
          wmma::load_matrix_sync(right, q + n * 16 * stride + d, stride);
          wmma::mma_sync(z, left, right, z);
          wmma::load_matrix_sync(left, v + warp * 16 * stride + d, stride);
          wmma::load_matrix_sync(right, d_o + n * 16 * stride + d, stride);
          wmma::mma_sync(dp, left, right, dp);
        }
        MESO_UNROLL
        for (int e = 0; e < 8; ++e) {
          const int j = warp * 16 + map.row(e), i = n * 16 + map.col(e);
          const float w = sees(call.mask, q0 + i, k0 + j, time) ? weight(z.x[e] * call.scale, lse[i]) : 0.0f;
          store(p[map.row(e) * Tile::p_stride + i], w);
          store(dz[map.row(e) * Tile::p_stride + i], w * (dp.x[e] - delta[i]) * call.scale);
        }
      }
      __syncwarp();
      // One after the other: fewer fragments at a time.
      const auto add = [&](const bf16* weights, const bf16* rows, SumFragment(&sum)[D / 16]) {
        MESO_UNROLL_BY(1)
        for (int n = 0; n < Tile::other / 16; ++n) {
          LeftFragment left;
          wmma::load_matrix_sync(left, weights + n * 16, Tile::p_stride);
          MESO_UNROLL
          for (int f = 0; f < D / 16; ++f) {
            RightFragment right;
            wmma::load_matrix_sync(right, rows + n * 16 * stride + f * 16, stride);
            wmma::mma_sync(sum[f], left, right, sum[f]);
          }
        }
      };
      add(p, d_o, dv);
      add(dz, q, dk);
    }
  }
  const View<bf16> out_k = head_of(call.dk, time, b, g, D), out_v = head_of(call.dv, time, b, g, D);
  MESO_UNROLL
  for (int f = 0; f < D / 16; ++f) {
    store_tile(dk[f], scratch, Tile::scratch_stride, out_k, k0 + warp * 16, f * 16, time);
    store_tile(dv[f], scratch, Tile::scratch_stride, out_v, k0 + warp * 16, f * 16, time);
  }
}

// ---------------------------------------------------------------- launches, one head size each

template <class T, int D>
void flash_forward(Context& context, const AttentionCall<T>& call) {
  const AttentionShape& s = call.shape;
  const auto grid = [&](Index tile) {
    return dim3(blocks_for(s.time, tile), static_cast<unsigned>(s.heads), static_cast<unsigned>(s.batch));
  };
  if constexpr (std::is_same_v<T, bf16>) {
    using Tile = TensorForwardTile<D>;
    launch(context, "attention_forward", {grid(Tile::queries), {Tile::threads}, Tile::shared()},
           tensor_forward_kernel<D>, call);
  } else {
    using Tile = ForwardTile<D>;
    launch(context, "attention_forward", {grid(Tile::queries), {Tile::threads}, Tile::template shared<T>()},
           flash_forward_kernel<T, D>, call);
  }
}

template <class T, int D>
void flash_backward(Context& context, const AttentionCall<T>& call) {
  const AttentionShape& s = call.shape;
  const auto grid = [&](Index tile, Index heads) {
    return dim3(blocks_for(s.time, tile), static_cast<unsigned>(heads), static_cast<unsigned>(s.batch));
  };
  if constexpr (std::is_same_v<T, bf16>) {
    using Tile = TensorBackwardTile<D>;
    launch(context, "attention_backward", {grid(Tile::own, s.heads), {Tile::threads}, Tile::shared(1)},
           tensor_dq_kernel<D>, call);
    launch(context, "attention_backward", {grid(Tile::own, s.key_value_heads), {Tile::threads}, Tile::shared(2)},
           tensor_dkv_kernel<D>, call);
  } else {
    using Tile = BackwardTile<D>;
    launch(context, "attention_backward", {grid(Tile::queries, s.heads), {Tile::threads}, Tile::template shared<T>()},
           flash_dq_kernel<T, D>, call);
    launch(context, "attention_backward",
           {grid(Tile::keys, s.key_value_heads), {Tile::threads}, Tile::template shared<T>()}, flash_dkv_kernel<T, D>,
           call);
  }
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
    out[0] = -weight(load(sinks[h]), lse(i, h)) * delta(i, h);
  }
};

template <class T>
bool aligned(const View<const T>& x) {
  return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 && x.stride * static_cast<Index>(sizeof(T)) % 16 == 0;
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

}  // namespace detail

/// o = P v, P = normalizer(q kᵀ/√d) over the keys that the mask shows, and lse(i, h) = log(e^s + Σ_j e^{z_j}), the natural
/// logarithm with the null term: as meso::attention_forward, without a time × time matrix.
/// Source: Dao et al., "FlashAttention" (2022); the null logit s enters as the start of the running maximum and sum.
/// Shapes: q, o (batch·time, heads·d), k, v (batch·time, key_value_heads·d), lse (batch·time, heads), d 32, 64, 96 or 128,
/// theta (heads) or null. Views may be column blocks of one buffer. Normalizers of the null-logit family.
/// Numerics: float and double in threads, bf16 on tensor cores with scores, sums and o in float, weights rounded to bf16.
/// A query without a visible key gets o = 0, lse = s.
/// Error: float as meso::attention_forward; bf16 adds 2·2⁻⁸·Σ_j p_j|v_j| for the weights and the result.
/// Throws: std::invalid_argument on a shape mismatch or another head size.
template <class Normalizer, class Mask, class T>
void attention_forward(Context& context, const Normalizer& normalizer, const Mask& mask, const AttentionShape& shape,
                       const std::type_identity_t<T>* theta, const ConstView<T>& q, const ConstView<T>& k,
                       const ConstView<T>& v, const View<T>& o, const View<Compute<std::type_identity_t<T>>>& lse) {
  auto call = detail::attention_call<T>("attention_forward", normalizer, mask, shape, theta, q, k, v, lse);
  check_same_shape<const T, T>("attention_forward", "q", q, "o", o);
  call.o = o;
  if (shape.tokens() == 0) return;
  detail::with_head_size("attention_forward", shape.head_size,
                         [&](auto size) { detail::flash_forward<T, size.value>(context, call); });
}

/// Gradients of o = P v: dq, dk, dv =; dtheta = or +=, as meso::attention_backward, from o and lse of the forward pass.
/// Backward of o = P v: p = e^{z − lse}, Δ = do·o, dz = p ∘ (do·v − Δ), dq = dz k/√d, dk = dzᵀ q/√d, dv = Pᵀ do,
/// ds = −Σ e^{s − lse} Δ. The formula is softmax's own: the null logit enters by lse and o alone.
/// Numerics: no atomics; sums over queries and over the heads of a group in order: the same bits in every run.
/// Shapes, throws: as attention_forward; d_o as o, dq, dk, dv as q, k, v. Error: float as meso::attention_backward; bf16
/// adds 3·2⁻⁸ of the sums of absolute terms.
template <class Normalizer, class Mask, class T>
void attention_backward(Context& context, const Normalizer& normalizer, const Mask& mask, const AttentionShape& shape,
                        const std::type_identity_t<T>* theta, const ConstView<T>& q, const ConstView<T>& k,
                        const ConstView<T>& v, const ConstView<T>& o, const View<Compute<std::type_identity_t<T>>>& lse,
                        const ConstView<T>& d_o, const View<T>& dq, const View<T>& dk, const View<T>& dv,
                        Compute<std::type_identity_t<T>>* dtheta, Accumulate accumulate) {
  using C = Compute<T>;
  auto call = detail::attention_call<T>("attention_backward", normalizer, mask, shape, theta, q, k, v, lse);
  check_same_shape<const T, const T>("attention_backward", "q", q, "o", o);
  check_same_shape<const T, const T>("attention_backward", "q", q, "do", d_o);
  check_same_shape<const T, T>("attention_backward", "q", q, "dq", dq);
  check_same_shape<const T, T>("attention_backward", "k", k, "dk", dk);
  check_same_shape<const T, T>("attention_backward", "v", v, "dv", dv);
  if (shape.tokens() == 0) return;
  const auto scratch = context.workspace.template take<C>(shape.tokens() * shape.heads);
  const View<C> delta = scratch.view(shape.tokens(), shape.heads);
  launch(context, "attention_backward", {{blocks_for(delta.size(), 8)}, {256}}, detail::delta_kernel<T>, o, d_o,
         shape.heads, shape.head_size, delta);
  call.d_o = d_o;
  call.packets = call.packets && detail::aligned(d_o);
  call.dq = dq;
  call.dk = dk;
  call.dv = dv;
  call.delta = delta;
  detail::with_head_size("attention_backward", shape.head_size,
                         [&](auto size) { detail::flash_backward<T, size.value>(context, call); });
  if constexpr (Normalizer::parameters_per_head > 0)
    detail::sum_columns<1, C>(context, "attention_backward", detail::SinkTerms<T>{theta, lse, delta}, delta.rows,
                              delta.cols, dtheta, accumulate);
}

}  // namespace meso::cuda
