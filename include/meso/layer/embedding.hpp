#pragma once
#include <span>

#include <meso/core/accumulate.hpp>
#include <meso/core/check.hpp>
#include <meso/core/eigen.hpp>
#include <meso/core/tiles.hpp>
#include <meso/layer/token.hpp>

namespace meso {

/// y_i = table[tokens_i] (+ positions[i mod time] if `positions` is not empty).
/// Shapes: table (vocabulary, width), positions (≥ time, width) or empty, y (tokens, width).
/// Error: none, u·|y| with positions.
/// Throws: std::invalid_argument on a shape mismatch or a token outside the vocabulary, which it names.
template <class Products, class S>
void embedding_forward(CpuContext<Products>& context, std::span<const Token> tokens, Index time,
                       const ConstView<S>& table, const ConstView<S>& positions, const View<S>& y) {
  check_shape("embedding_forward", "y", y, static_cast<Index>(tokens.size()), table.cols);
  check(!positions.data || (positions.rows >= time && positions.cols == table.cols),
        "embedding_forward: positions are ", shape(positions), ", expected at least (", time, ", ", table.cols, ")");
  for (std::size_t i = 0; i < tokens.size(); ++i)
    check(tokens[i] >= 0 && tokens[i] < table.rows, "embedding_forward: token ", tokens[i], " at index ", i,
          " is outside the vocabulary of ", table.rows);
  const RowTiles tiles = RowTiles::of(y.rows, y.cols);
  parallel_for(context, tiles.count(), [&](Index t, Index) {
    const RowTile tile = tiles[t];
    for (Index i = tile.first; i < tile.first + tile.count; ++i) {
      const Index token = tokens[static_cast<std::size_t>(i)];
      if (positions.data)
        row_array(y, i) = row_array(table, token) + row_array(positions, i % time);
      else
        row_array(y, i) = row_array(table, token);
    }
  });
}

/// Backward of y_i = table[tokens_i]: the rows of dy summed by token, = or +=.
/// Tiles are runs of channels, so every sum is taken in the order of the tokens.
/// Shapes: dy (tokens, width), dtable (vocabulary, width); tokens are those of a forward pass and not checked again.
/// Error: ≤ m·u·Σ|dy| for a row that m tokens share. Throws: std::invalid_argument on a shape mismatch.
template <class Products, class S>
void embedding_backward(CpuContext<Products>& context, std::span<const Token> tokens, const ConstView<S>& dy,
                        const View<S>& dtable, Accumulate accumulate) {
  check_shape("embedding_backward", "dy", dy, static_cast<Index>(tokens.size()), dtable.cols);
  constexpr Index run = 64;
  parallel_for(context, (dy.cols + run - 1) / run, [&](Index t, Index) {
    const Index first = t * run, count = (std::min)(run, dy.cols - first);
    const View<const S> from = dy.col_range(first, count);
    const View<S> to = dtable.col_range(first, count);
    if (accumulate == Accumulate::no) map(to).setZero();
    for (Index i = 0; i < dy.rows; ++i) row_array(to, tokens[static_cast<std::size_t>(i)]) += row_array(from, i);
  });
}

/// Backward of y_i += positions[i mod time]: the rows of dy summed by position, = or +=. Positions at and after `time`
/// get no gradient.
/// Shapes: dy (sequences·time, width), dpositions (≥ time, width). Error: ≤ sequences·u·Σ|dy|.
/// Throws: std::invalid_argument on a shape mismatch.
template <class Products, class S>
void position_backward(CpuContext<Products>& context, Index time, const ConstView<S>& dy, const View<S>& dpositions,
                       Accumulate accumulate) {
  check(time >= 1 && dy.rows % time == 0 && dpositions.rows >= time && dpositions.cols == dy.cols,
        "position_backward: dpositions are ", shape(dpositions), " and dy is ", shape(dy), " for sequences of ", time);
  parallel_for(context, dpositions.rows, [&](Index t, Index) {
    Array<S> row = row_array(dpositions, t);
    if (accumulate == Accumulate::no) row.setZero();
    if (t < time)
      for (Index i = t; i < dy.rows; i += time) row += row_array(dy, i);
  });
}

}  // namespace meso
