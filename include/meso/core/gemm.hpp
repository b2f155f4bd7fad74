#pragma once
#include <algorithm>

#include <meso/core/check.hpp>
#include <meso/core/context.hpp>
#include <meso/core/eigen.hpp>
#include <meso/core/gemm_options.hpp>
#include <meso/core/panels.hpp>

namespace meso {

namespace detail {

/// How PackedProducts multiplies.
enum class ProductKind {
  vectors,  ///< up to 4 rows: b is read once, in place
  thin,     ///< up to 512 rows: a tile holds all of them and packs its columns of b itself
  wide,     ///< more: b is packed for all tiles
  outer  ///< aᵀ: the shorter side of c is packed for all tiles; a tile holds all of it and packs its part of the other
};

inline ProductKind product_kind(Index rows, bool transpose_a) {
  return rows <= 4     ? ProductKind::vectors
         : transpose_a ? ProductKind::outer
         : rows <= 512 ? ProductKind::thin
                       : ProductKind::wide;
}

/// Fixed cut of c into tiles: a function of the shape alone, with work for many threads where there is enough.
struct ProductTiles {
  Index rows = 0, cols = 0;  ///< of c
  Index tile_rows = 0, tile_cols = 0;

  /// Blocks of `block_rows` rows and panels of `panel_cols` columns stay whole.
  ProductTiles(Index c_rows, Index c_cols, ProductKind kind, Index block_rows, Index panel_cols)
      : rows(c_rows), cols(c_cols) {
    const bool all_rows =
        kind == ProductKind::vectors || kind == ProductKind::thin || (kind == ProductKind::outer && rows <= cols);
    const bool all_cols = kind == ProductKind::outer && !all_rows;
    Index most_rows = all_rows ? rows : 128, most_cols = all_cols ? cols : all_rows ? 128 : 256;
    const Index least_rows = all_rows   ? rows
                             : all_cols ? 24
                                        : 48,
                least_cols = all_cols   ? cols
                             : all_rows ? panel_cols
                                        : 128;
    const auto cut = [&] {
      tile_rows = all_rows ? rows : even(rows, most_rows, block_rows);
      tile_cols = all_cols ? cols : even(cols, most_cols, panel_cols);
    };
    for (cut(); count() < 16 && (most_rows > least_rows || most_cols > least_cols); cut()) {
      if (most_cols > least_cols && cols > most_cols / 2)
        most_cols /= 2;
      else if (most_rows > least_rows)
        most_rows /= 2;
      else
        break;
    }
  }
  Index across() const { return (cols + tile_cols - 1) / tile_cols; }
  Index count() const { return (rows + tile_rows - 1) / tile_rows * across(); }
  Index row(Index tile) const { return tile / across() * tile_rows; }
  Index col(Index tile) const { return tile % across() * tile_cols; }

 private:
  /// The size of the tiles when n is cut evenly into as few as have about `most`, whole multiples of `unit`.
  static Index even(Index n, Index most, Index unit) {
    const Index tiles = (n + most - 1) / most, size = (n + tiles - 1) / tiles;
    return (size + unit - 1) / unit * unit;
  }
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
  const Index k = a.cols, depth = product_depth<S>(k);
  const auto columns = context.workspace.template take<S>(workers(context) * depth * tiles.tile_cols);
  each_tile([&](const View<S>& tile, Index, Index j, Index worker, bool accumulate) {
    for (Index first = 0; first < k; first += depth) {
      const Index count = (std::min)(depth, k - first);
      const Panels<S> right =
          pack_panels<S>(o.transpose_b ? b.block(j, first, tile.cols, count) : b.block(first, j, count, tile.cols),
                         o.transpose_b, columns.data() + worker * depth * tiles.tile_cols);
      panel_product<S>(LeftOperand<S>::of(a, false).from(0, first), right, 0, Panels<S>::count(tile.cols), tile,
                       static_cast<S>(o.alpha), accumulate || first > 0, [&](Index, Index) {
                         return Extent{0, count, 0, tile.cols};
                       });
    }
  });
}

/// Packs x along its rows, as they lie in memory, by all threads. Packed: Panels<S> or PackedRows<S>.
template <class Packed, class Context, class S>
void pack_rows_for_all(Context& context, const View<const S>& x, S* out) {
  constexpr Index run = 64;
  parallel_for(context, (x.rows + run - 1) / run, [&](Index t, Index) {
    Packed::pack(x.row_range(t * run, (std::min)(run, x.rows - t * run)), t * run, x.rows, out);
  });
}

/// Packs all of b, or bᵀ, by all threads.
template <class Context, class S>
Panels<S> pack_for_all(Context& context, const View<const S>& b, bool transposed, S* out) {
  constexpr Index group = 4;
  const Index k = transposed ? b.cols : b.rows, cols = transposed ? b.rows : b.cols, panels = Panels<S>::count(cols);
  if (transposed)
    parallel_for(context, (panels + group - 1) / group,
                 [&](Index g, Index) { pack_panels<S>(b, true, g * group, (std::min)(panels, (g + 1) * group), out); });
  else
    pack_rows_for_all<Panels<S>>(context, b, out);
  return {out, k, cols};
}

template <class Context, class S, class EachTile>
void multiply_wide(Context& context, const View<const S>& a, const View<const S>& b, const GemmOptions& o,
                   const ProductTiles& tiles, const EachTile& each_tile) {
  const Index k = a.cols, depth = product_depth<S>(k);
  const auto columns = context.workspace.template take<S>(Panels<S>::size(k, tiles.cols));
  const Panels<S> right = pack_for_all<Context, S>(context, b, o.transpose_b, columns.data());
  each_tile([&](const View<S>& tile, Index i, Index j, Index, bool accumulate) {
    for (Index first = 0; first < k; first += depth)
      panel_product<S>(LeftOperand<S>::of(a, false).from(i, 0), right.from(j, tile.cols), 0,
                       Panels<S>::count(tile.cols), tile, static_cast<S>(o.alpha), accumulate || first > 0,
                       [&](Index, Index) {
                         return Extent{first, (std::min)(depth, k - first), 0, tile.cols};
                       });
  });
}

template <class Context, class S, class EachTile>
void multiply_outer(Context& context, const View<const S>& a, const View<const S>& b, const GemmOptions& o,
                    const ProductTiles& tiles, const EachTile& each_tile) {
  const Index k = a.rows, depth = product_depth<S>(k);
  const bool all_rows = tiles.tile_rows >= tiles.rows;
  const Index rows_size = all_rows ? PackedRows<S>::size(tiles.rows, k) : PackedRows<S>::size(tiles.tile_rows, depth);
  const Index cols_size = all_rows ? Panels<S>::size(depth, tiles.tile_cols) : Panels<S>::size(k, tiles.cols);
  const auto rows = context.workspace.template take<S>((all_rows ? 1 : workers(context)) * rows_size);
  const auto columns = context.workspace.template take<S>((all_rows ? workers(context) : 1) * cols_size);
  if (all_rows)
    pack_rows_for_all<PackedRows<S>>(context, a, rows.data());
  else
    pack_for_all<Context, S>(context, b, o.transpose_b, columns.data());
  constexpr Index at_once = 128 / PackedRows<S>::block * PackedRows<S>::block;  // rows that stay in the L2 cache
  each_tile([&](const View<S>& tile, Index i, Index j, Index worker, bool accumulate) {
    for (Index first = 0; first < k; first += depth) {
      const Index count = (std::min)(depth, k - first);
      LeftOperand<S> left;
      Panels<S> right;
      if (all_rows) {
        left = PackedRows<S>::operand(rows.data(), k).from(0, first);
        right =
            pack_panels<S>(o.transpose_b ? b.block(j, first, tile.cols, count) : b.block(first, j, count, tile.cols),
                           o.transpose_b, columns.data() + worker * cols_size);
      } else {
        S* const own = rows.data() + worker * rows_size;
        PackedRows<S>::pack(a.block(first, i, count, tile.rows), 0, depth, own);
        left = PackedRows<S>::operand(own, depth);
        right = {columns.data() + first * Panels<S>::panel_cols, k, tile.cols};
      }
      for (Index r = 0; r < tile.rows; r += at_once)
        panel_product<S>(left.from(r, 0), right, 0, Panels<S>::count(tile.cols),
                         tile.row_range(r, (std::min)(at_once, tile.rows - r)), static_cast<S>(o.alpha),
                         accumulate || first > 0, [&](Index, Index) {
                           return Extent{0, count, 0, tile.cols};
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
/// The products are by our own kernel (PackedProducts: k in runs of at most 512; up to 4 rows by Eigen's products of a
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
  const ProductKind kind = packed ? detail::product_kind(c.rows, o.transpose_a) : ProductKind::wide;
  const detail::ProductTiles tiles(c.rows, c.cols, kind, detail::ProductKernel<S>::rows, detail::Panels<S>::panel_cols);
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
      case ProductKind::outer:
        return detail::multiply_outer<CpuContext<Products>, S>(context, a, b, o, tiles, each_tile);
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
