#pragma once
#include <meso/core/accumulate.hpp>
#include <meso/core/gemm.hpp>
#include <meso/core/tiles.hpp>

namespace meso {

/// y = x wᵀ + bias; `epilogue` sees the finished tiles of y, as in gemm.
/// Shapes: x (tokens, in), w (out, in), bias null or out values, y (tokens, out).
/// Error: ≤ (in + 3)·u·(|x||w|ᵀ + |bias|). Throws: std::invalid_argument on a shape mismatch.
template <class Products, class S, class Epilogue = NoEpilogue>
void linear_forward(CpuContext<Products>& context, const ConstView<S>& x, const ConstView<S>& w,
                    const std::type_identity_t<S>* bias, const View<S>& y, const Epilogue& epilogue = {}) {
  gemm<Products, S>(context, x, w, y, {.transpose_b = true}, bias, epilogue);
}

/// sum[j] = or += Σ_i x(i, j), per fixed row tile, the tiles in order: the same bits for any number of threads.
/// Shapes: x (tokens, n), sum n values. Error: ≤ (rows of a tile + tiles)·u·Σ_i |x(i, j)|.
template <class Products, class S>
void column_sums(CpuContext<Products>& context, const ConstView<S>& x, S* sum, Accumulate accumulate) {
  const RowTiles tiles = RowTiles::of(x.rows, x.cols);
  const auto scratch = context.workspace.template take<S>(tiles.count() * padded<S>(x.cols));
  const View<S> partials{scratch.data(), tiles.count(), x.cols, padded<S>(x.cols)};
  parallel_for(context, tiles.count(), [&](Index t, Index) {
    const RowTile tile = tiles[t];
    Array<S> partial = row_array(partials, t);
    partial.setZero();
    for (Index i = tile.first; i < tile.first + tile.count; ++i) partial += row_array(x, i);
  });
  sum_partials<S>(partials, sum, accumulate == Accumulate::yes);
}

/// Backward of y = x wᵀ + bias: dx = dy w, dw = dyᵀ x, dbias = Σ_tokens dy.
/// dx is written, or skipped if empty; dw and dbias (null: none) are written or added to. `epilogue` sees the finished
/// tiles of dx, as in gemm.
/// Shapes: x, dx (tokens, in), w, dw (out, in), dy (tokens, out), dbias out values.
/// Error: dx ≤ (out + 2)·u·|dy||w|, dw ≤ (tokens + 3)·u·|dy|ᵀ|x| element-wise, dbias as column_sums.
/// Throws: std::invalid_argument on a shape mismatch.
template <class Products, class S, class Epilogue = NoEpilogue>
void linear_backward(CpuContext<Products>& context, const ConstView<S>& x, const ConstView<S>& w,
                     const ConstView<S>& dy, const View<S>& dx, const std::type_identity_t<View<S>>& dw,
                     std::type_identity_t<S>* dbias, Accumulate accumulate, const Epilogue& epilogue = {}) {
  if (dx.data) gemm<Products, S>(context, dy, w, dx, {}, nullptr, epilogue);
  gemm<Products, S>(context, dy, x, dw, {.transpose_a = true, .accumulate = accumulate == Accumulate::yes});
  if (dbias) column_sums<Products, S>(context, dy, dbias, accumulate);
}

}  // namespace meso
