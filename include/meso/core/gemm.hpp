#pragma once
#include <algorithm>

#include <meso/core/check.hpp>
#include <meso/core/context.hpp>
#include <meso/core/eigen.hpp>
#include <meso/core/gemm_options.hpp>
#include <meso/core/panels.hpp>

namespace meso {

namespace detail {

/// How PackedProducts multiplies, by the rows of c.
enum class ProductKind {
  vectors,  ///< up to 4 rows: b is read once, in place
  thin,  ///< up to 512 rows: a tile holds all of them and packs its columns of b itself; aᵀ is packed for all tiles
  wide   ///< b is packed for all tiles; a tile copies its part of aᵀ
};

/// Fixed cut of c into tiles: a function of the shape alone, with work for many threads where there is enough.
struct ProductTiles {
  Index rows = 0, cols = 0;  ///< of c
  Index tile_rows = 128, tile_cols = 256;

  /// Thin tiles have at least `least_cols` columns.
  ProductTiles(Index c_rows, Index c_cols, ProductKind kind, Index least_cols) : rows(c_rows), cols(c_cols) {
    if (kind != ProductKind::wide) {
      tile_rows = rows;
      tile_cols = 128;
    }
    while (count() < 16 && (kind == ProductKind::wide ? tile_rows > 48 : tile_cols > least_cols)) {
      if (kind != ProductKind::wide || (tile_cols > 128 && cols > tile_cols / 2))
        tile_cols /= 2;
      else
        tile_rows /= 2;
    }
  }
  Index across() const { return (cols + tile_cols - 1) / tile_cols; }
  Index count() const { return (rows + tile_rows - 1) / tile_rows * across(); }
  Index row(Index tile) const { return tile / across() * tile_rows; }
  Index col(Index tile) const { return tile % across() * tile_cols; }
};

/// The kinds of PackedProducts. each_tile(product) calls product(tile, i, j, worker, accumulate) for every tile of c.
template <class Context, class S, class EachTile>
void multiply_vectors(Context& context, const View<const S>& a, const View<const S>& b, const GemmOptions& o,
                      const EachTile& each_tile) {
  using Vector = Eigen::Matrix<S, Eigen::Dynamic, 1>;
  const Index k = o.transpose_a ? a.rows : a.cols;
  const auto copies = context.workspace.template take<S>(o.transpose_a ? workers(context) * k : 0);
  each_tile([&](const View<S>& tile, Index, Index j, Index worker, bool accumulate) {
    for (Index r = 0; r < tile.rows; ++r) {
      S* const copy = o.transpose_a ? copies.data() + worker * k : nullptr;
      if (o.transpose_a)
        for (Index p = 0; p < k; ++p) copy[p] = a(p, r);
      const Eigen::Map<const Vector> x(o.transpose_a ? copy : a.row(r), k);
      Eigen::Map<Vector> y(tile.row(r), tile.cols);
      if (!accumulate) y.setZero();
      if (o.transpose_b)
        y.noalias() += static_cast<S>(o.alpha) * (map(b.row_range(j, tile.cols)) * x);
      else
        y.noalias() += static_cast<S>(o.alpha) * (map(b.col_range(j, tile.cols)).transpose() * x);
    }
  });
}

template <class Context, class S, class EachTile>
void multiply_thin(Context& context, const View<const S>& a, const View<const S>& b, const GemmOptions& o,
                   const ProductTiles& tiles, const EachTile& each_tile) {
  const Index k = o.transpose_a ? a.rows : a.cols, depth = product_depth(k);
  const auto rows = context.workspace.template take<S>(o.transpose_a ? PackedRows<S>::size(tiles.rows, k) : 0);
  const auto columns = context.workspace.template take<S>(workers(context) * depth * tiles.tile_cols);
  LeftOperand<S> left = LeftOperand<S>::of(a, false);
  if (o.transpose_a) {
    parallel_for(context, (k + depth - 1) / depth, [&](Index run, Index) {
      const Index first = run * depth;
      PackedRows<S>::pack(a.row_range(first, (std::min)(depth, k - first)), first, k, rows.data());
    });
    left = PackedRows<S>::operand(rows.data(), k);
  }
  each_tile([&](const View<S>& tile, Index, Index j, Index worker, bool accumulate) {
    for (Index first = 0; first < k; first += depth) {
      const Index count = (std::min)(depth, k - first);
      const Panels<S> right =
          pack_panels<S>(o.transpose_b ? b.block(j, first, tile.cols, count) : b.block(first, j, count, tile.cols),
                         o.transpose_b, columns.data() + worker * depth * tiles.tile_cols);
      panel_product<S>(left.from(0, first), right, 0, Panels<S>::count(tile.cols), tile, static_cast<S>(o.alpha),
                       accumulate || first > 0, [&](Index, Index) {
                         return Extent{0, count, 0, tile.cols};
                       });
    }
  });
}

template <class Context, class S, class EachTile>
void multiply_wide(Context& context, const View<const S>& a, const View<const S>& b, const GemmOptions& o,
                   const ProductTiles& tiles, const EachTile& each_tile) {
  constexpr Index group = 4;
  const Index k = o.transpose_a ? a.rows : a.cols, depth = product_depth(k), panels = Panels<S>::count(tiles.cols);
  const auto packed = context.workspace.template take<S>(Panels<S>::size(k, tiles.cols));
  parallel_for(context, (panels + group - 1) / group, [&](Index g, Index) {
    pack_panels<S>(b, o.transpose_b, g * group, (std::min)(panels, (g + 1) * group), packed.data());
  });
  // A transposed a is read across its rows; a copy of one run keeps these reads in few pages and cache sets.
  const Index copy_stride = tiles.tile_rows + 16;
  const auto copies = context.workspace.template take<S>(o.transpose_a ? workers(context) * depth * copy_stride : 0);
  each_tile([&](const View<S>& tile, Index i, Index j, Index worker, bool accumulate) {
    for (Index first = 0; first < k; first += depth) {
      const Index count = (std::min)(depth, k - first);
      LeftOperand<S> left = LeftOperand<S>::of(a, false).from(o.transpose_a ? 0 : i, 0);
      if (o.transpose_a) {
        S* const copy = copies.data() + worker * depth * copy_stride;
        for (Index p = 0; p < count; ++p)
          std::copy(a.row(first + p) + i, a.row(first + p) + i + tile.rows, copy + p * copy_stride);
        left = {copy - first * copy_stride, 1, copy_stride};
      }
      const Panels<S> right{packed.data() + j * k, k, tile.cols};
      panel_product<S>(left, right, 0, Panels<S>::count(tile.cols), tile, static_cast<S>(o.alpha),
                       accumulate || first > 0, [&](Index, Index) {
                         return Extent{first, count, 0, tile.cols};
                       });
    }
  });
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
/// The products are by our own kernel (PackedProducts: k in runs of at most 256; up to 4 rows by Eigen's products of a
/// matrix and a vector), or by another backend B: one call of serial_gemm(B, a, b, c, options) a tile, while an object of
/// type B::Scope lives.
/// Error: |c − exact| ≤ |alpha|·(k + 2)·u·|a||b| element-wise (k + 3 with a bias).
/// Throws: std::invalid_argument when the shapes do not fit.
template <class Products, class S, class Epilogue = NoEpilogue>
void gemm(CpuContext<Products>& context, const ConstView<S>& a, const ConstView<S>& b, const View<S>& c,
          const GemmOptions& o = {}, const S* bias = nullptr, const Epilogue& epilogue = {}) {
  detail::check_gemm(a.rows, a.cols, b.rows, b.cols, c.rows, c.cols, o);
  if (c.rows == 0 || c.cols == 0) return;
  const Index k = o.transpose_a ? a.rows : a.cols;
  using detail::ProductKind;
  constexpr bool packed = std::is_same_v<Products, PackedProducts>;
  const ProductKind kind = !packed || c.rows > 512 ? ProductKind::wide
                           : c.rows > 4            ? ProductKind::thin
                                                   : ProductKind::vectors;
  const detail::ProductTiles tiles(c.rows, c.cols, kind, detail::Panels<S>::panel_cols);
  const auto each_tile = [&](auto&& product) {
    parallel_for(context, tiles.count(), [&](Index t, Index worker) {
      const Index i = tiles.row(t), j = tiles.col(t);
      const View<S> tile =
          c.block(i, j, (std::min)(tiles.tile_rows, c.rows - i), (std::min)(tiles.tile_cols, c.cols - j));
      if (bias)
        for (Index r = 0; r < tile.rows; ++r) std::copy(bias + j, bias + j + tile.cols, tile.row(r));
      else if (!o.accumulate && k == 0)
        map(tile).setZero();
      product(tile, i, j, worker, o.accumulate || bias != nullptr);
      epilogue(tile, i, j);
    });
  };

  if (k == 0) return each_tile([](auto&&...) {});
  if constexpr (packed) {
    static_assert(128 % detail::Panels<S>::panel_cols == 0, "a tile is whole panels");
    switch (kind) {
      case ProductKind::vectors:
        return detail::multiply_vectors<CpuContext<Products>, S>(context, a, b, o, each_tile);
      case ProductKind::thin:
        return detail::multiply_thin<CpuContext<Products>, S>(context, a, b, o, tiles, each_tile);
      case ProductKind::wide:
        return detail::multiply_wide<CpuContext<Products>, S>(context, a, b, o, tiles, each_tile);
    }
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
