#pragma once
#include <algorithm>
#include <cstring>
#include <utility>

#include <meso/core/transpose.hpp>

namespace meso::detail {

/// The innermost part of a product: `rows` × `cols` elements of c stay in registers while k runs.
template <class S>
struct ProductKernel {
  using Traits = Eigen::internal::packet_traits<S>;
  using Packet = typename Traits::type;
  static constexpr int width = Traits::size;
  static constexpr int rows = EIGEN_ARCH_DEFAULT_NUMBER_OF_REGISTERS >= 32 ? 8 : 6;
  static constexpr int cols = 2 * width;

  /// c(r, j) = [c(r, j) +] alpha·Σ_p a[offset[r] + p·step]·b[p·cols + j] for j < vectors·width.
  template <int vectors>
  EIGEN_DONT_INLINE static void run(Index k, const S* a, const Index* offset, Index step, const S* b, S* c,
                                    Index c_stride, S alpha, bool accumulate) {
    unrolled<vectors>(std::make_integer_sequence<int, rows>{}, std::make_integer_sequence<int, rows * vectors>{}, k, a,
                      offset, step, b, c, c_stride, alpha, accumulate);
  }

 private:
  // Rows R and accumulators I = row·vectors + packet are unrolled by hand: g++ spills the registers of a loop over an
  // array of packets.
  template <int vectors, int... R, int... I>
  EIGEN_ALWAYS_INLINE static void unrolled(std::integer_sequence<int, R...>, std::integer_sequence<int, I...>, Index k,
                                           const S* a, const Index* offset, Index step, const S* b, S* c,
                                           Index c_stride, S alpha, bool accumulate) {
    using namespace Eigen::internal;
    (prefetch(c + R * c_stride), ...);
    (prefetch(c + R * c_stride + vectors * width - 1), ...);
    const S* const row[] = {(a + offset[R])...};
    Packet sum[] = {((void)I, pset1<Packet>(S(0)))...};
    for (Index p = 0, at = 0; p < k; ++p, at += step, b += cols) {
      const Packet right[] = {ploadu<Packet>(b), ploadu<Packet>(b + (vectors - 1) * width)};
      ((sum[I] = pmadd(pset1<Packet>(row[I / vectors][at]), right[I % vectors], sum[I])), ...);
    }
    const Packet factor = pset1<Packet>(alpha);
    const auto target = [&](int i) { return c + i / vectors * c_stride + i % vectors * width; };
    if (accumulate)
      (pstoreu(target(I), pmadd(factor, sum[I], ploadu<Packet>(target(I)))), ...);
    else
      (pstoreu(target(I), pmul(factor, sum[I])), ...);
  }
};

/// Cuts the columns of `in` into strips of `width`, each with its rows one after the other: strip i begins at
/// out + i·strip_step. Columns past the last are 0.
template <Index width, class S>
void pack_strips(const View<const S>& in, S* out, Index strip_step) {
  constexpr Index rows_at_once = 16;  // few enough for the prefetchers, enough to write whole lines
  const Index whole = in.cols / width * width;
  for (Index first = 0; first < in.rows; first += rows_at_once, out += rows_at_once * width) {
    const Index last = (std::min)(first + rows_at_once, in.rows);
    S* strip = out;
    for (Index j = 0; j < whole; j += width, strip += strip_step) {
      const S* from = in.row(first) + j;
      S* to = strip;
      // The size is a constant, so that the compiler inlines the copy.
      for (Index p = first; p < last; ++p, from += in.stride, to += width) std::memcpy(to, from, width * sizeof(S));
    }
    if (whole < in.cols)
      for (Index p = first; p < last; ++p, strip += width)
        std::fill(std::copy(in.row(p) + whole, in.row(p) + in.cols, strip), strip + width, S(0));
  }
}

/// The right-hand side of a product, (depth, cols), cut into panels of ProductKernel<S>::cols columns. In a panel the
/// rows follow each other; columns past the last are 0.
template <class S>
struct Panels {
  static constexpr Index panel_cols = ProductKernel<S>::cols;

  const S* data = nullptr;
  Index depth = 0;
  Index cols = 0;

  static constexpr Index count(Index cols) { return (cols + panel_cols - 1) / panel_cols; }
  /// Elements of the packed matrix.
  static constexpr Index size(Index depth, Index cols) { return count(cols) * panel_cols * depth; }
  const S* panel(Index j) const { return data + j * panel_cols * depth; }
  /// `col_count` columns from `col` on, the first of a panel.
  Panels from(Index col, Index col_count) const { return {data + col * depth, depth, col_count}; }
  /// Packs rows [first, first + b.rows) of a matrix of `depth` rows.
  static void pack(const View<const S>& b, Index first, Index depth, S* out) {
    pack_strips<panel_cols>(b, out + first * panel_cols, panel_cols * depth);
  }
};

/// Packs panels [first, last) of b (depth, cols), or of bᵀ with b (cols, depth), to `out`, where panel 0 begins.
template <class S>
void pack_panels(const View<const S>& b, bool transposed, Index first, Index last, S* out) {
  constexpr Index width = Panels<S>::panel_cols;
  const Index depth = transposed ? b.cols : b.rows, cols = transposed ? b.rows : b.cols;
  if (!transposed) {
    const Index col = first * width;
    return Panels<S>::pack(b.col_range(col, (std::min)(cols, last * width) - col), 0, depth, out + col * depth);
  }
  for (Index j = first; j < last; ++j) {
    S* const panel = out + j * width * depth;
    const Index n = (std::min)(width, cols - j * width);
    if (n < width) std::fill(panel, panel + width * depth, S(0));
    transpose_copy(b.row(j * width), b.stride, n, depth, panel, width);
  }
}

/// Packs all of b, or of bᵀ.
template <class S>
Panels<S> pack_panels(const View<const S>& b, bool transposed, S* out) {
  const Index depth = transposed ? b.cols : b.rows, cols = transposed ? b.rows : b.cols;
  pack_panels(b, transposed, 0, Panels<S>::count(cols), out);
  return {out, depth, cols};
}

/// The left-hand side. Blocks of ProductKernel<S>::rows rows begin `block_step` a row apart; in a block element (r, p) is
/// at r·row_step + p·step.
template <class S>
struct LeftOperand {
  const S* data = nullptr;
  Index row_step = 0;
  Index step = 1;
  Index block_step = row_step;

  static LeftOperand of(const View<const S>& a, bool transposed) {
    return transposed ? LeftOperand{a.data, 1, a.stride} : LeftOperand{a.data, a.stride, 1};
  }
  /// The operand from row `row`, the first of a block, and from p on.
  LeftOperand from(Index row, Index p) const {
    return {data + row * block_step + p * step, row_step, step, block_step};
  }
};

/// Rows of a left-hand side, packed in blocks of ProductKernel<S>::rows. In a block the elements of each p follow each
/// other; a line lies between blocks, whose starts would share a cache set otherwise.
template <class S>
struct PackedRows {
  static constexpr Index block = ProductKernel<S>::rows;

  static constexpr Index block_step(Index depth) { return depth + 2; }
  /// Elements of `rows` packed rows.
  static constexpr Index size(Index rows, Index depth) {
    return (rows + block - 1) / block * block * block_step(depth);
  }
  static LeftOperand<S> operand(const S* packed, Index depth) { return {packed, 1, block, block_step(depth)}; }

  /// Packs rows [first, first + a.rows) of a matrix of `depth` rows, whose columns are the rows of aᵀ; rows past the
  /// last are 0.
  static void pack(const View<const S>& a, Index first, Index depth, S* out) {
    pack_strips<block>(a, out + first * block, block * block_step(depth));
  }
};

/// What a block of rows of a product takes part in: the run of k that it sums over, and its columns that are wanted
/// (whole panels around them are computed).
struct Extent {
  Index first = 0, depth = 0;
  Index col = 0, cols = 0;
};

/// c = [c +] alpha·a·b for the panels [panel, panels) of b; c (rows, cols) begins at column 0 of b.
/// extent(i, rows) gives what the block of `rows` rows from i computes; elements outside it are not written.
template <class S, class F>
void panel_product(const LeftOperand<S>& a, const Panels<S>& b, Index panel, Index panels, const View<S>& c, S alpha,
                   bool accumulate, F&& extent) {
  using Kernel = ProductKernel<S>;
  for (Index j = panel; j < panels; ++j) {
    const Index col = j * Kernel::cols, n = std::min<Index>(Kernel::cols, c.cols - col);
    for (Index i = 0; i < c.rows; i += Kernel::rows) {
      const Index m = std::min<Index>(Kernel::rows, c.rows - i);
      const Extent e = extent(i, m);
      if (col >= e.col + e.cols || col + n <= e.col) continue;
      Index offset[Kernel::rows];
      for (Index r = 0; r < Kernel::rows; ++r) offset[r] = (std::min)(r, m - 1) * a.row_step;
      const LeftOperand<S> left = a.from(i, e.first);
      const S* const right = b.panel(j) + e.first * Kernel::cols;
      S* const out = c.row(i) + col;
      if (m == Kernel::rows && n == Kernel::cols) {
        Kernel::template run<2>(e.depth, left.data, offset, left.step, right, out, c.stride, alpha, accumulate);
      } else if (m == Kernel::rows && n == Kernel::width) {
        Kernel::template run<1>(e.depth, left.data, offset, left.step, right, out, c.stride, alpha, accumulate);
      } else {
        S edge[Kernel::rows * Kernel::cols];
        Kernel::template run<2>(e.depth, left.data, offset, left.step, right, edge, Kernel::cols, alpha, false);
        for (Index r = 0; r < m; ++r)
          for (Index l = 0; l < n; ++l)
            out[r * c.stride + l] =
                accumulate ? out[r * c.stride + l] + edge[r * Kernel::cols + l] : edge[r * Kernel::cols + l];
      }
    }
  }
}

/// Depth of one run of a product: the largest multiple of 16 that cuts k evenly and whose panel has at most 32 KB: it
/// stays near the L1 cache.
template <class S>
Index product_depth(Index k) {
  constexpr Index most = (std::min)(Index{512}, Index{32768} / (Panels<S>::panel_cols * static_cast<Index>(sizeof(S))));
  const Index runs = (k + most - 1) / most;
  return runs == 0 ? 0 : ((k + runs - 1) / runs + 15) / 16 * 16;
}

}  // namespace meso::detail
