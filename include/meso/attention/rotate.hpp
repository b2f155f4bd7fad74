#pragma once
#include <meso/attention/position.hpp>
#include <meso/core/tiles.hpp>

namespace meso {

/// Row t of the table describes position t, for a position that turns heads; an empty table for any other.
/// Shapes: table (context, table_size(head_size)), contiguous. Throws: as the position's table_size.
template <class P, class S>
void fill_rotation(const P& position, Index context, Index head_size, Buffer<S>& table) {
  if constexpr (RotatingPosition<P, S>) {
    const Index size = position.table_size(head_size);
    table.resize(context * size);
    for (Index t = 0; t < context; ++t) position.fill(t, head_size, array(table.data() + t * size, size));
  }
}

/// Turns the first `heads` heads of every row by position i mod time, in place; `back`: by the transpose, which is the
/// backward pass. Nothing for a position that does not turn heads.
/// Shapes: x (tokens, ≥ heads·head_size), table (≥ time, …) of fill_rotation. Error: the position's.
/// Throws: std::invalid_argument when x is too narrow.
template <class Products, class P, class S>
void rotate_heads(CpuContext<Products>& context, const P& position, const View<S>& x, const S* table, Index time,
                  Index heads, Index head_size, bool back) {
  if constexpr (RotatingPosition<P, S>) {
    check(x.cols >= heads * head_size, "rotate_heads: x is ", shape(x), " but ", heads, " heads of ", head_size,
          " are wanted");
    const Index size = position.table_size(head_size);
    const RowTiles tiles = RowTiles::of(x.rows, x.cols);
    parallel_for(context, tiles.count(), [&](Index t, Index) {
      for (Index i = tiles[t].first; i < tiles[t].first + tiles[t].count; ++i) {
        const ConstArray<S> row = array(table + i % time * size, size);
        for (Index h = 0; h < heads; ++h) {
          const Array<S> head = array(x.row(i) + h * head_size, head_size);
          if (back)
            position.rotate_back(row, head);
          else
            position.rotate(row, head);
        }
      }
    });
  }
}

}  // namespace meso
