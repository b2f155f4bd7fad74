#pragma once
#include <cstdint>
#include <type_traits>

#include <meso/cuda/emulation/block.hpp>

/// The 16×16×16 subset of nvcuda::wmma; which lane holds which element is, on purpose, not what the hardware does.
namespace nvcuda::wmma {

struct row_major {};
struct col_major {};
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  static_assert(M == 16 && N == 16 && K == 16, "only 16×16×16 is emulated");
  static constexpr int num_elements = 8;
  T x[8];
};

namespace detail {
// Element e of a tile is x[e % 8] of lane owner(e): a permutation that no kernel may rely on.
constexpr int element(int lane, int i) { return (lane * 8 + i) * 37 % 256; }
struct Place {
  int lane, index;
};
constexpr Place place(int e) {
  const int k = e * 173 % 256;  // 37·173 = 1 mod 256
  return {k / 8, k % 8};
}
template <class T>
void check(const T* p, unsigned stride) {
  if (stride * sizeof(T) % 16 != 0 || reinterpret_cast<std::uintptr_t>(p) % 32 != 0)
    meso::cuda::emulation::current().fail(
        "wmma: a stride that is no multiple of 16 bytes or a pointer not aligned to 32");
}
inline int lane() { return static_cast<int>(meso::cuda::emulation::current().lane()); }
}  // namespace detail

template <class Use, class T, class Layout, class V>
void fill_fragment(fragment<Use, 16, 16, 16, T, Layout>& f, V value) {
  for (T& e : f.x) e = static_cast<T>(value);
}
template <class Use, class T, class Layout>
void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout>& f, const T* p, unsigned stride) {
  detail::check(p, stride);
  meso::cuda::emulation::sync_warp(~0u);
  for (int i = 0; i < 8; ++i) {
    const int e = detail::element(detail::lane(), i), r = e / 16, c = e % 16;
    f.x[i] =
        std::is_same_v<Layout, row_major> ? p[r * static_cast<int>(stride) + c] : p[c * static_cast<int>(stride) + r];
  }
}
template <class T>
void load_matrix_sync(fragment<accumulator, 16, 16, 16, T>& f, const T* p, unsigned stride, layout_t layout) {
  detail::check(p, stride);
  meso::cuda::emulation::sync_warp(~0u);
  for (int i = 0; i < 8; ++i) {
    const int e = detail::element(detail::lane(), i), r = e / 16, c = e % 16;
    f.x[i] = layout == mem_row_major ? p[r * static_cast<int>(stride) + c] : p[c * static_cast<int>(stride) + r];
  }
}
template <class T>
void store_matrix_sync(T* p, const fragment<accumulator, 16, 16, 16, T>& f, unsigned stride, layout_t layout) {
  detail::check(p, stride);
  for (int i = 0; i < 8; ++i) {
    const int e = detail::element(detail::lane(), i), r = e / 16, c = e % 16;
    p[layout == mem_row_major ? r * static_cast<int>(stride) + c : c * static_cast<int>(stride) + r] = f.x[i];
  }
  meso::cuda::emulation::sync_warp(~0u);
}
template <class TA, class LA, class TB, class LB, class TC>
void mma_sync(fragment<accumulator, 16, 16, 16, TC>& d, const fragment<matrix_a, 16, 16, 16, TA, LA>& a,
              const fragment<matrix_b, 16, 16, 16, TB, LB>& b, const fragment<accumulator, 16, 16, 16, TC>& c) {
  struct Argument {
    TC* d;
    const TA* a;
    const TB* b;
    const TC* c;
  } mine{d.x, a.x, b.x, c.x};
  meso::cuda::emulation::current().together(~0u, &mine, [](void** slots, unsigned) {
    TC left[256], right[256], out[256];
    for (int e = 0; e < 256; ++e) {
      const detail::Place p = detail::place(e);
      const Argument& from = *static_cast<Argument*>(slots[p.lane]);
      left[e] = static_cast<TC>(from.a[p.index]);
      right[e] = static_cast<TC>(from.b[p.index]);
      out[e] = from.c[p.index];
    }
    for (int i = 0; i < 16; ++i)
      for (int k = 0; k < 16; ++k)
        for (int j = 0; j < 16; ++j) out[i * 16 + j] += left[i * 16 + k] * right[k * 16 + j];
    for (int e = 0; e < 256; ++e) {
      const detail::Place p = detail::place(e);
      static_cast<Argument*>(slots[p.lane])->d[p.index] = out[e];
    }
  });
}

}  // namespace nvcuda::wmma
