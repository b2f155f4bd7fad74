#pragma once
#include <algorithm>

#include <meso/core/check.hpp>
#include <meso/core/context.hpp>
#include <meso/core/eigen.hpp>
#include <meso/core/gemm_options.hpp>
#include <meso/core/panels.hpp>

namespace meso {

namespace detail {

/// Fixed cut of c into tiles: a function of the shape alone, with work for many threads where there is enough. `thin`
/// tiles hold all rows and few columns.
struct ProductTiles {
  Index rows = 0, cols = 0;  ///< of c
  Index tile_rows = 128, tile_cols = 256;

  ProductTiles(Index c_rows, Index c_cols, bool thin, Index least_cols) : rows(c_rows), cols(c_cols) {
    if (thin) {
      tile_rows = rows;
      tile_cols = 128;
      while (count() < 16 && tile_cols > least_cols) tile_cols /= 2;
      return;
    }
    while (count() < 16 && tile_rows > 48) {
      if (tile_cols > 128 && cols > tile_cols / 2)
        tile_cols /= 2;
      else
        tile_rows /= 2;
    }
  }
  Index across() const { return (cols + tile_cols - 1) / tile_cols; }
  Index down() const { return (rows + tile_rows - 1) / tile_rows; }
  Index count() const { return down() * across(); }
  Index row(Index tile) const { return tile / across() * tile_rows; }
  Index col(Index tile) const { return tile % across() * tile_cols; }
};

/// c_l = [c_l +] alpha·Σ_p op(b)(p, j + l)·x_p for l < cols.
template <class S>
void add_matrix_vector(const View<const S>& b, bool transpose_b, Index j, S alpha, const S* x, bool accumulate, S* c,
                       Index cols) {
  using Vector = Eigen::Matrix<S, Eigen::Dynamic, 1>;
  Eigen::Map<Vector> out(c, cols);
  if (!accumulate) out.setZero();
  if (transpose_b)
    out.noalias() += alpha * (map(b.row_range(j, cols)) * Eigen::Map<const Vector>(x, b.cols));
  else
    out.noalias() += alpha * (map(b.col_range(j, cols)).transpose() * Eigen::Map<const Vector>(x, b.rows));
}

}  // namespace detail

/// An epilogue of gemm that does nothing.
struct NoEpilogue {
  template <class S>
  void operator()(const View<S>&, Index, Index) const {}
};

/// Matrix product c = alpha·op(a)·op(b), or c += … ; op is the identity or the transpose.
/// Shapes: op(a) (m, k), op(b) (k, n), c (m, n); c must not overlap a or b.
/// `bias`, if not null, holds n values added to every row: c = bias + … (not with accumulate).
/// `epilogue(tile, i, j)` is called once for every finished tile of c, a view that begins at row i and column j, by the
/// thread that computed it, while the tile is in its cache.
/// Numerics: c is cut into fixed tiles, each computed by one thread: the same bits for any number of threads.
/// The products are by our own kernel (PackedProducts: b packed once, k in runs of at most 256), or by another backend B:
/// one call of serial_gemm(B, a, b, c, options) a tile, while an object of type B::Scope lives.
/// Error: |c − exact| ≤ |alpha|·(k + 2)·u·|a||b| element-wise (k + 3 with a bias).
/// Throws: std::invalid_argument when the shapes do not fit.
template <class Products, class S, class Epilogue = NoEpilogue>
void gemm(CpuContext<Products>& context, const ConstView<S>& a, const ConstView<S>& b, const View<S>& c,
          const GemmOptions& o = {}, const S* bias = nullptr, const Epilogue& epilogue = {}) {
  detail::check_gemm(a.rows, a.cols, b.rows, b.cols, c.rows, c.cols, o);
  if (c.rows == 0 || c.cols == 0) return;
  const Index k = o.transpose_a ? a.rows : a.cols;
  const bool thin = std::is_same_v<Products, PackedProducts> && c.rows <= 512;
  const detail::ProductTiles tiles(c.rows, c.cols, thin, detail::Panels<S>::panel_cols);
  const auto each_tile = [&](auto&& product) {
    parallel_for(context, tiles.count(), [&](Index t, Index worker) {
      const Index i = tiles.row(t), j = tiles.col(t);
      const View<S> tile =
          c.block(i, j, (std::min)(tiles.tile_rows, c.rows - i), (std::min)(tiles.tile_cols, c.cols - j));
      if (bias)
        for (Index r = 0; r < tile.rows; ++r) std::copy(bias + j, bias + j + tile.cols, tile.row(r));
      else if (!o.accumulate && k == 0)
        map(tile).setZero();
      if (k > 0) product(tile, i, j, worker, o.accumulate || bias != nullptr);
      epilogue(tile, i, j);
    });
  };

  if constexpr (std::is_same_v<Products, PackedProducts>) {
    using detail::LeftOperand, detail::PackedRows, detail::Panels;
    if (c.rows <= 4) {  // memory's work: b is read once, in place
      const auto rows = context.workspace.template take<S>(o.transpose_a ? workers(context) * k : 0);
      each_tile([&](const View<S>& tile, Index, Index j, Index worker, bool accumulate) {
        for (Index r = 0; r < tile.rows; ++r) {
          const S* x = o.transpose_a ? rows.data() + worker * k : a.row(r);
          if (o.transpose_a) detail::transpose_copy(a.data + r, a.stride, k, Index{1}, rows.data() + worker * k, k);
          detail::add_matrix_vector<S>(b, o.transpose_b, j, static_cast<S>(o.alpha), x, accumulate, tile.row(r),
                                       tile.cols);
        }
      });
      return;
    }
    constexpr Index panel_cols = Panels<S>::panel_cols;
    static_assert(128 % panel_cols == 0, "a tile is whole panels");
    const Index depth = detail::product_depth(k), runs = depth == 0 ? 0 : (k + depth - 1) / depth;
    const Index left_stride = tiles.tile_rows + 16;
    const auto packed_a = context.workspace.template take<S>(!o.transpose_a ? 0
                                                             : thin         ? PackedRows<S>::size(c.rows, k)
                                                                            : workers(context) * depth * left_stride);
    const auto packed_b = context.workspace.template take<S>(thin ? workers(context) * depth * tiles.tile_cols
                                                                  : Panels<S>::size(k, c.cols));
    const Index panels = Panels<S>::count(c.cols), group = 4;
    if (!thin) {
      parallel_for(context, (panels + group - 1) / group, [&](Index g, Index) {
        detail::pack_panels<S>(b, o.transpose_b, g * group, (std::min)(panels, (g + 1) * group), packed_b.data());
      });
    } else if (o.transpose_a) {
      parallel_for(context, runs, [&](Index run, Index) {
        const Index first = run * depth;
        PackedRows<S>::pack(a.row_range(first, (std::min)(depth, k - first)), first, k, packed_a.data());
      });
    }
    each_tile([&](const View<S>& tile, Index i, Index j, Index worker, bool accumulate) {
      for (Index first = 0; first < k; first += depth) {
        const Index count = (std::min)(depth, k - first);
        LeftOperand<S> left = LeftOperand<S>::of(a, false).from(o.transpose_a ? 0 : i, first);
        if (o.transpose_a && thin) {
          left = PackedRows<S>::operand(packed_a.data(), k).from(0, first);
        } else if (o.transpose_a) {
          S* const copy = packed_a.data() + worker * depth * left_stride;
          for (Index p = 0; p < count; ++p)
            std::copy(a.row(first + p) + i, a.row(first + p) + i + tile.rows, copy + p * left_stride);
          left = {copy, 1, left_stride};
        }
        Panels<S> right{packed_b.data() + j * k + first * panel_cols, k, tile.cols};
        if (thin)
          right = detail::pack_panels<S>(
              o.transpose_b ? b.block(j, first, tile.cols, count) : b.block(first, j, count, tile.cols), o.transpose_b,
              packed_b.data() + worker * depth * tiles.tile_cols);
        detail::panel_product<S>(left, right, 0, Panels<S>::count(tile.cols), tile, static_cast<S>(o.alpha),
                                 accumulate || first > 0, [&](Index, Index) {
                                   return detail::Extent{0, count, 0, tile.cols};
                                 });
      }
    });
  } else {
    [[maybe_unused]] const typename Products::Scope scope;
    each_tile([&](const View<S>& tile, Index i, Index j, Index, bool accumulate) {
      GemmOptions options = o;
      options.accumulate = accumulate;
      serial_gemm(Products{}, o.transpose_a ? a.col_range(i, tile.rows) : a.row_range(i, tile.rows),
                  o.transpose_b ? b.row_range(j, tile.cols) : b.col_range(j, tile.cols), tile, options);
    });
  }
}

}  // namespace meso
