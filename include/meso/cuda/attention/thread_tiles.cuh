#pragma once
// The tiles of attention for float and double: a block of threads as lines of 16; each thread has 4 rows of a tile and
// every sixteenth column. Sums are kept in registers, products run over shared memory.
#include <meso/cuda/attention/call.cuh>

namespace meso::cuda::detail {

/// What forward and backward share. Tiles in shared memory have rows of `stride` elements, D of them channels.
template <class C, int D>
struct ThreadTile {
  using Scalar = C;
  static constexpr int head_size = D, stride = D + 1, lanes = 16, rows = 4, channels = D / lanes;
  /// Threads that share a multiprocessor: each may use 128 registers, 255 in double.
  static constexpr int resident = sizeof(C) == 4 ? 512 : 256;
  struct Sum {
    C value[rows][channels];
  };
  int lane, line;

  __device__ __forceinline__ ThreadTile()
      : lane(static_cast<int>(threadIdx.x) % lanes), line(static_cast<int>(threadIdx.x) / lanes) {}

  /// Which row of the tile row r of this thread is.
  __device__ __forceinline__ int row(int r) const { return line * rows + r; }
  /// Makes what the threads wrote to shared memory visible to all that read it.
  __device__ __forceinline__ void barrier() const { __syncthreads(); }

  __device__ __forceinline__ void clear(Sum& sum) const {
    MESO_UNROLL
    for (int r = 0; r < rows; ++r) {
      MESO_UNROLL
      for (int c = 0; c < channels; ++c) sum.value[r][c] = C(0);
    }
  }
  /// sum(r, :) *= factor(r).
  __device__ __forceinline__ void scale(Sum& sum, const C (&factor)[rows]) const {
    MESO_UNROLL
    for (int r = 0; r < rows; ++r) {
      MESO_UNROLL
      for (int c = 0; c < channels; ++c) sum.value[r][c] *= factor[r];
    }
  }
  /// Rows of `out` from `first`, none past the end.
  __device__ __forceinline__ void store(const Sum& sum, const View<C>& out, Index first, Index end) const {
    MESO_UNROLL
    for (int r = 0; r < rows; ++r) {
      if (first + row(r) >= end) continue;
      MESO_UNROLL
      for (int c = 0; c < channels; ++c) out(first + row(r), lane + lanes * c) = sum.value[r][c];
    }
  }

 protected:
  /// z(r, c) = a(r, :)·b(c, :).
  template <int cols>
  __device__ __forceinline__ void product(const C* a, const C* b, C (&z)[rows][cols]) const {
    MESO_UNROLL
    for (int r = 0; r < rows; ++r) {
      MESO_UNROLL
      for (int c = 0; c < cols; ++c) z[r][c] = C(0);
    }
    for (int d = 0; d < D; ++d) {
      C right[cols];
      MESO_UNROLL
      for (int c = 0; c < cols; ++c) right[c] = b[(lane + lanes * c) * stride + d];
      MESO_UNROLL
      for (int r = 0; r < rows; ++r) {
        const C left = a[row(r) * stride + d];
        MESO_UNROLL
        for (int c = 0; c < cols; ++c) z[r][c] += left * right[c];
      }
    }
  }
  /// sum(r, :) += Σ_k w(r, k) x(k, :), k < count, in order.
  template <int count>
  __device__ __forceinline__ void add_product(const C* w, int w_stride, const C* x, Sum& sum) const {
    for (int k = 0; k < count; ++k) {
      C right[channels];
      MESO_UNROLL
      for (int c = 0; c < channels; ++c) right[c] = x[k * stride + lane + lanes * c];
      MESO_UNROLL
      for (int r = 0; r < rows; ++r) {
        const C left = w[row(r) * w_stride + k];
        MESO_UNROLL
        for (int c = 0; c < channels; ++c) sum.value[r][c] += left * right[c];
      }
    }
  }
  /// The terms of add_product whose x(k, c) is not finite and which seen(row, k) shows.
  template <int count, class Seen>
  __device__ __forceinline__ void add_not_finite(const C* w, int w_stride, const C* x, Sum& sum, Seen&& seen) const {
    for (int k = 0; k < count; ++k) {
      MESO_UNROLL
      for (int c = 0; c < channels; ++c) {
        const C right = x[k * stride + lane + lanes * c];
        MESO_UNROLL
        for (int r = 0; r < rows; ++r)
          if (!finite(right) && seen(row(r), k)) sum.value[r][c] += w[row(r) * w_stride + k] * right;
      }
    }
  }
};

/// A block of the forward pass: 64 queries, 64 or 32 keys at a time. Values follow keys in the same memory.
template <class C, int D>
struct ThreadForward : ThreadTile<C, D> {
  using Base = ThreadTile<C, D>;
  static constexpr int queries = 64, keys = D <= 64 ? 64 : 32, threads = 256, blocks = Base::resident / threads;
  static constexpr int cols = keys / Base::lanes, unroll = cols, p_stride = keys + 1;
  static constexpr bool keys_beside_values = false;
  static constexpr std::size_t shared() { return sizeof(C) * ((queries + keys) * Base::stride + queries * p_stride); }
  /// Scores of this thread: 4 rows, `cols` columns.
  struct Scores {
    C z[Base::rows][cols];
  };
  C *q, *k, *v, *p;

  __device__ __forceinline__ explicit ThreadForward(unsigned char* memory)
      : q(reinterpret_cast<C*>(memory)), k(q + queries * Base::stride), v(k), p(k + keys * Base::stride) {}

  __device__ __forceinline__ int col(int c) const { return this->lane + Base::lanes * c; }
  __device__ __forceinline__ void scores(Scores& s) const { this->product(q, k, s.z); }
  __device__ __forceinline__ C& score(Scores& s, int r, int c) const { return s.z[r][c]; }
  __device__ __forceinline__ C& weight(int r, int c) const { return p[this->row(r) * p_stride + col(c)]; }
  /// o += P v.
  __device__ __forceinline__ void add_weighted(typename Base::Sum& o) const {
    this->template add_product<keys>(p, p_stride, v, o);
  }
  /// The terms of it that are not finite and seen(row, key).
  template <class Seen>
  __device__ __forceinline__ void add_not_finite(typename Base::Sum& o, Seen&& seen) const {
    Base::template add_not_finite<keys>(p, p_stride, v, o, seen);
  }
};

/// A block of a backward pass: 32 rows that it owns, of two matrices, and 32 rows that it walks over; `sums` 32 × 32
/// matrices of weights.
template <class C, int D, int sums>
struct ThreadBackward : ThreadTile<C, D> {
  using Base = ThreadTile<C, D>;
  static constexpr int own = 32, other = 32, threads = 128, blocks = Base::resident / threads;
  static constexpr int cols = other / Base::lanes, w_stride = other + 1;
  static constexpr std::size_t shared() {
    return sizeof(C) * (2 * (own + other) * Base::stride + sums * own * w_stride + 2 * 32);
  }
  C *own_a, *own_b, *other_a, *other_b, *w, *lse, *delta;

  __device__ __forceinline__ explicit ThreadBackward(unsigned char* memory)
      : own_a(reinterpret_cast<C*>(memory)),
        own_b(own_a + own * Base::stride),
        other_a(own_b + own * Base::stride),
        other_b(other_a + other * Base::stride),
        w(other_b + other * Base::stride),
        lse(w + sums * own * w_stride),
        delta(lse + 32) {}

  /// f(i, j, own_a(i)·other_a(j), own_b(i)·other_b(j)) for the elements of this thread.
  template <class F>
  __device__ __forceinline__ void scores(F&& f) const {
    C a[Base::rows][cols], b[Base::rows][cols];
    this->product(own_a, other_a, a);
    this->product(own_b, other_b, b);
    MESO_UNROLL
    for (int r = 0; r < Base::rows; ++r) {
      MESO_UNROLL
      for (int c = 0; c < cols; ++c) f(this->row(r), this->lane + Base::lanes * c, a[r][c], b[r][c]);
    }
  }
  /// Element (i, j) of weights number `which`.
  __device__ __forceinline__ C& weight(int which, int i, int j) const { return w[(which * own + i) * w_stride + j]; }
  /// sum += weights(which) x, x is other_a or other_b.
  __device__ __forceinline__ void add_weighted(int which, const C* x, typename Base::Sum& sum) const {
    this->template add_product<other>(w + which * own * w_stride, w_stride, x, sum);
  }
  /// The terms of it that are not finite and seen(own row, other row).
  template <class Seen>
  __device__ __forceinline__ void add_not_finite(int which, const C* x, typename Base::Sum& sum, Seen&& seen) const {
    Base::template add_not_finite<other>(w + which * own * w_stride, w_stride, x, sum, seen);
  }
};

}  // namespace meso::cuda::detail
