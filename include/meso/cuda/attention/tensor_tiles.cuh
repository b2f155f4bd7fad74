#pragma once
// The tiles of attention for bf16: 4 warps of 16 rows each, products by tensor cores (wmma), sums in float.
#include <meso/cuda/attention/call.cuh>

namespace meso::cuda::detail {

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

/// What forward and backward share. `tile_stride` is that of the warp's scratch, 16 rows of floats.
template <int D, int tile_stride>
struct TensorTile {
  using Scalar = bf16;
  static constexpr int head_size = D, stride = D + 8, threads = 128, blocks = 2, fragments = D / 16;
  struct Sum {
    SumFragment value[fragments];
  };
  int warp, warp_lane;
  float* scratch;  // of this warp
  ElementMap map;

  /// `floats`: 64 rows of tile_stride floats in shared memory.
  __device__ __forceinline__ explicit TensorTile(float* floats)
      : warp(static_cast<int>(threadIdx.x) / 32),
        warp_lane(static_cast<int>(threadIdx.x) % 32),
        scratch(floats + warp * 16 * tile_stride),
        map(element_map(scratch, tile_stride)) {}

  /// Makes what the threads of a warp wrote to shared memory visible to all of them: no warp reads another's.
  __device__ __forceinline__ void barrier() const { __syncwarp(); }

  __device__ __forceinline__ void clear(Sum& sum) const {
    MESO_UNROLL
    for (int f = 0; f < fragments; ++f) wmma::fill_fragment(sum.value[f], 0.0f);
  }
  /// Rows of `out` from `first`, rounded, none past the end.
  __device__ __forceinline__ void store(const Sum& sum, const View<bf16>& out, Index first, Index end) const {
    MESO_UNROLL
    for (int f = 0; f < fragments; ++f) {
      __syncwarp();
      wmma::store_matrix_sync(scratch, sum.value[f], tile_stride, wmma::mem_row_major);
      for (int e = warp_lane; e < 256; e += 32) {
        const Index i = first + warp * 16 + e / 16;
        if (i < end) detail::store(out(i, f * 16 + e % 16), scratch[e / 16 * tile_stride + e % 16]);
      }
    }
  }

 protected:
  /// z[n] = the warp's 16 rows of a times rows 16n … 16n + 15 of b, transposed. `unroll`: more steps at once cost more
  /// registers than there are.
  template <int unroll, int count>
  __device__ __forceinline__ void product(const bf16* a, const bf16* b, SumFragment (&z)[count]) const {
    MESO_UNROLL
    for (int n = 0; n < count; ++n) wmma::fill_fragment(z[n], 0.0f);
    MESO_UNROLL_BY(unroll)
    for (int d = 0; d < D; d += 16) {
      LeftFragment left;
      wmma::load_matrix_sync(left, a + warp * 16 * stride + d, stride);
      MESO_UNROLL
      for (int n = 0; n < count; ++n) {
        RightTransposed right;
        wmma::load_matrix_sync(right, b + n * 16 * stride + d, stride);
        wmma::mma_sync(z[n], left, right, z[n]);
      }
    }
  }
  /// sum += w x for the warp's 16 rows w and 16·count rows x.
  template <int unroll, int count>
  __device__ __forceinline__ void add_product(const bf16* w, unsigned w_stride, const bf16* x, Sum& sum) const {
    MESO_UNROLL_BY(unroll)
    for (int n = 0; n < count; ++n) {
      LeftFragment left;
      wmma::load_matrix_sync(left, w + n * 16, w_stride);
      MESO_UNROLL
      for (int f = 0; f < fragments; ++f) {
        RightFragment right;
        wmma::load_matrix_sync(right, x + n * 16 * stride + f * 16, stride);
        wmma::mma_sync(sum.value[f], left, right, sum.value[f]);
      }
    }
  }
  /// The terms of add_product whose x(k, c) is not finite and which seen(row, k) shows.
  template <int count, class Seen>
  __device__ __forceinline__ void add_not_finite(const bf16* w, int w_stride, const bf16* x, Sum& sum,
                                                 Seen&& seen) const {
    for (int k = 0; k < count; ++k) {
      MESO_UNROLL
      for (int f = 0; f < fragments; ++f) {
        MESO_UNROLL
        for (int e = 0; e < 8; ++e) {
          const float right = load(x[k * stride + f * 16 + map.col(e)]);
          if (!finite(right) && seen(warp * 16 + map.row(e), k))
            sum.value[f].x[e] += load(w[map.row(e) * w_stride + k]) * right;
        }
      }
    }
  }
};

/// A block of the forward pass: 64 queries, 64 keys at a time. A row's scores lie in shared memory, half of its columns
/// belong to each of two lanes.
template <int D>
struct TensorForward : TensorTile<D, 64 + 4> {
  static constexpr int queries = 64, keys = 64, z_stride = keys + 4, p_stride = keys + 8;
  using Base = TensorTile<D, z_stride>;
  static constexpr int lanes = 2, rows = 1, cols = keys / lanes, unroll = 4, steps = D > 64 ? 2 : 4;
  static constexpr bool keys_beside_values = true;
  static constexpr std::size_t shared() {
    return sizeof(bf16) * ((queries + 2 * keys) * Base::stride + queries * p_stride) +
           sizeof(float) * (queries * z_stride + queries);
  }
  struct Scores {};
  bf16 *q, *k, *v, *p;
  float* factors;  // p and factors of this warp
  int lane;        // of a row

  __device__ __forceinline__ explicit TensorForward(unsigned char* memory)
      : Base(floats(memory)),
        q(reinterpret_cast<bf16*>(memory)),
        k(q + queries * Base::stride),
        v(k + keys * Base::stride),
        p(v + keys * Base::stride + this->warp * 16 * p_stride),
        factors(floats(memory) + queries * z_stride + this->warp * 16),
        lane(Base::warp_lane % lanes) {}

  __device__ __forceinline__ int row(int) const { return this->warp * 16 + line(); }
  __device__ __forceinline__ int col(int c) const { return lane + lanes * c; }
  __device__ __forceinline__ void scores(Scores&) const {
    SumFragment s[keys / 16];
    this->template product<steps>(q, k, s);
    MESO_UNROLL
    for (int n = 0; n < keys / 16; ++n)
      wmma::store_matrix_sync(this->scratch + n * 16, s[n], z_stride, wmma::mem_row_major);
    __syncwarp();
  }
  __device__ __forceinline__ float& score(Scores&, int, int c) const {
    return this->scratch[line() * z_stride + col(c)];
  }
  __device__ __forceinline__ bf16& weight(int, int c) const { return p[line() * p_stride + col(c)]; }
  /// sum(r, :) *= factor(r).
  __device__ __forceinline__ void scale(typename Base::Sum& sum, const float (&factor)[rows]) const {
    __syncwarp();
    if (lane == 0) factors[line()] = factor[0];
    __syncwarp();
    MESO_UNROLL
    for (int f = 0; f < Base::fragments; ++f) {
      MESO_UNROLL
      for (int e = 0; e < 8; ++e) sum.value[f].x[e] *= factors[this->map.row(e)];
    }
  }
  /// o += P v.
  __device__ __forceinline__ void add_weighted(typename Base::Sum& o) const {
    this->template add_product<steps / 2, keys / 16>(p, p_stride, v, o);
  }
  /// The terms of it that are not finite and seen(row, key).
  template <class Seen>
  __device__ __forceinline__ void add_not_finite(typename Base::Sum& o, Seen&& seen) const {
    Base::template add_not_finite<keys>(p, p_stride, v, o, seen);
  }

 private:
  __device__ __forceinline__ int line() const { return Base::warp_lane / lanes; }
  static __device__ __forceinline__ float* floats(unsigned char* memory) {
    return reinterpret_cast<float*>(reinterpret_cast<bf16*>(memory) + (queries + 2 * keys) * Base::stride +
                                    queries * p_stride);
  }
};

/// A block of a backward pass: 64 rows that it owns, of two matrices, and 32 rows that it walks over; `sums` 64 × 32
/// matrices of weights.
template <int D, int sums>
struct TensorBackward : TensorTile<D, 20> {
  using Base = TensorTile<D, 20>;
  static constexpr int own = 64, other = 32, w_stride = other + 8, steps = D > 96 ? 1 : 2;
  static constexpr std::size_t shared() {
    return sizeof(bf16) * (2 * (own + other) * Base::stride + sums * own * w_stride) +
           sizeof(float) * (own * 20 + 2 * own);
  }
  bf16 *own_a, *own_b, *other_a, *other_b, *w;
  float *lse, *delta;

  __device__ __forceinline__ explicit TensorBackward(unsigned char* memory)
      : Base(floats(memory)),
        own_a(reinterpret_cast<bf16*>(memory)),
        own_b(own_a + own * Base::stride),
        other_a(own_b + own * Base::stride),
        other_b(other_a + other * Base::stride),
        w(other_b + other * Base::stride),
        lse(floats(memory) + own * 20),
        delta(lse + own) {}

  /// f(i, j, own_a(i)·other_a(j), own_b(i)·other_b(j)) for the elements of this lane.
  template <class F>
  __device__ __forceinline__ void scores(F&& f) const {
    MESO_UNROLL_BY(1)
    for (int n = 0; n < other / 16; ++n) {
      SumFragment a[1], b[1];
      this->template product<steps>(own_a, other_a + n * 16 * Base::stride, a);
      this->template product<steps>(own_b, other_b + n * 16 * Base::stride, b);
      MESO_UNROLL
      for (int e = 0; e < 8; ++e)
        f(this->warp * 16 + this->map.row(e), n * 16 + this->map.col(e), a[0].x[e], b[0].x[e]);
    }
  }
  /// Element (i, j) of weights number `which`.
  __device__ __forceinline__ bf16& weight(int which, int i, int j) const { return w[(which * own + i) * w_stride + j]; }
  /// sum += weights(which) x, x is other_a or other_b.
  __device__ __forceinline__ void add_weighted(int which, const bf16* x, typename Base::Sum& sum) const {
    constexpr int unroll = sums == 1 ? 2 : 1;  // two sums fill the registers
    this->template add_product<unroll, other / 16>(w + (which * own + this->warp * 16) * w_stride, w_stride, x, sum);
  }
  /// The terms of it that are not finite and seen(own row, other row).
  template <class Seen>
  __device__ __forceinline__ void add_not_finite(int which, const bf16* x, typename Base::Sum& sum, Seen&& seen) const {
    Base::template add_not_finite<other>(w + (which * own + this->warp * 16) * w_stride, w_stride, x, sum, seen);
  }

 private:
  static __device__ __forceinline__ float* floats(unsigned char* memory) {
    return reinterpret_cast<float*>(reinterpret_cast<bf16*>(memory) + 2 * (own + other) * Base::stride +
                                    sums * own * w_stride);
  }
};

}  // namespace meso::cuda::detail
