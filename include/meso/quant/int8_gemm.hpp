#pragma once
#include <algorithm>
#include <cstdint>
#include <meso/core/check.hpp>
#include <meso/core/context.hpp>

namespace meso {

/// Largest K for which int32 sums of K products of numbers within ±127 are exact: 127²·133,144 < 2³¹.
inline constexpr Index int8_gemm_max_depth = 133144;

namespace detail {

/// sums[4·i + j] = Σ_p a[i·stride + p]·b[j·stride + p], i, j < 4. Plain dot products of int16, which compilers turn
/// into pairwise multiply-adds (pmaddwd and its kin).
inline void dot_products_4x4(const std::int16_t* a, const std::int16_t* b, Index stride, Index depth,
                             std::int32_t* sums) {
  std::int32_t s[4][4] = {};
  for (Index p = 0; p < depth; ++p)
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j)
        s[i][j] += static_cast<std::int32_t>(a[i * stride + p]) * static_cast<std::int32_t>(b[j * stride + p]);
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) sums[4 * i + j] = s[i][j];
}

/// Widens x to int16, rows to a multiple of 4 and columns to `depth`, padded with zeros.
inline void widen(const View<const std::int8_t>& x, Index depth, Index stride, std::int16_t* to) {
  const Index rows = (x.rows + 3) / 4 * 4;
  for (Index i = 0; i < rows; ++i) {
    std::int16_t* row = to + i * stride;
    const Index cols = i < x.rows ? x.cols : 0;
    if (cols > 0) {
      const std::int8_t* from = x.row(i);
      for (Index p = 0; p < cols; ++p) row[p] = from[p];
    }
    std::fill(row + cols, row + depth, std::int16_t{0});
  }
}

}  // namespace detail

/// c = a bᵀ in integers, exact. Both operands are read along their rows: tokens (m, k) and weights (out, in) = (n, k).
/// Shapes: a (m, k), b (n, k), c (m, n); k = 0 gives zeros.
/// Numerics: exact for numbers within ±127, what Absmax makes; with −128 among them, up to K = 131,071. c is cut into
/// fixed tiles; integers have no order of summation: the same bits for any number of threads.
/// Throws: std::invalid_argument when the shapes do not fit or k exceeds 133,144.
template <class Products>
void int8_gemm(CpuContext<Products>& context, const View<const std::int8_t>& a, const View<const std::int8_t>& b,
               const View<std::int32_t>& c) {
  check(a.cols == b.cols && c.rows == a.rows && c.cols == b.rows, "int8_gemm: c is ", shape(c), " but a is ", shape(a),
        " and bᵀ is (", b.cols, ", ", b.rows, ")");
  check(a.cols <= int8_gemm_max_depth, "int8_gemm: k = ", a.cols, " exceeds ", int8_gemm_max_depth,
        ", beyond which int32 sums may overflow");
  if (c.rows == 0 || c.cols == 0) return;
  constexpr Index tile = 64, block = 512, stride = block + 32;  // the stride keeps rows out of one cache set
  const Index down = (c.rows + tile - 1) / tile, across = (c.cols + tile - 1) / tile;
  const auto scratch = context.workspace.template take<std::int16_t>(workers(context) * 2 * tile * stride);
  parallel_for(context, down * across, [&](Index t, Index worker) {
    const Index row = t / across * tile, col = t % across * tile;
    const Index m = std::min<Index>(tile, c.rows - row), n = std::min<Index>(tile, c.cols - col);
    std::int16_t* left = scratch.data() + worker * 2 * tile * stride;
    std::int16_t* right = left + tile * stride;
    for (Index i = 0; i < m; ++i) std::fill_n(c.row(row + i) + col, n, 0);
    for (Index k = 0; k < a.cols; k += block) {
      const Index depth = std::min<Index>(block, a.cols - k), whole = (depth + 31) / 32 * 32;
      detail::widen(a.block(row, k, m, depth), whole, stride, left);
      detail::widen(b.block(col, k, n, depth), whole, stride, right);
      for (Index j = 0; j < n; j += 4)
        for (Index i = 0; i < m; i += 4) {
          std::int32_t sums[16];
          detail::dot_products_4x4(left + i * stride, right + j * stride, stride, whole, sums);
          for (Index r = 0; r < std::min<Index>(4, m - i); ++r)
            for (Index s = 0; s < std::min<Index>(4, n - j); ++s) c(row + i + r, col + j + s) += sums[4 * r + s];
        }
    }
  });
}

}  // namespace meso
