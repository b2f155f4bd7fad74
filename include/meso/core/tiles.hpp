#pragma once
#include <algorithm>

#include <meso/core/context.hpp>

namespace meso {

/// Rows [first, first + count) of tile `t` when `rows` are cut into tiles of `tile_rows`.
struct RowTile {
  Index first = 0;
  Index count = 0;
};

/// Fixed cut of rows into tiles. It depends on the shape alone, never on the number of threads.
struct RowTiles {
  Index rows = 0;
  Index tile_rows = 1;

  /// About 16,384 elements a tile: large enough to hide the dispatch, small enough for the L2 cache.
  static RowTiles of(Index rows, Index cols) {
    return {rows, std::max<Index>(1, std::min<Index>(rows, 16384 / std::max<Index>(1, cols)))};
  }
  Index count() const { return (rows + tile_rows - 1) / tile_rows; }
  RowTile operator[](Index t) const { return {t * tile_rows, (std::min)(tile_rows, rows - t * tile_rows)}; }
};

/// sum[j] = (or += if `accumulate`) Σ_t partials(t, j), added in the order of t: a reduction with the same bits for
/// any number of threads.
/// Shapes: partials (tiles, n), sum n values. Error: ≤ tiles·u·Σ_t |partials(t, j)|.
template <class S>
void sum_partials(const View<const S>& partials, S* sum, bool accumulate) {
  if (!accumulate) std::fill(sum, sum + partials.cols, S(0));
  for (Index t = 0; t < partials.rows; ++t)
    for (Index j = 0; j < partials.cols; ++j) sum[j] += partials(t, j);
}

}  // namespace meso
