#pragma once
#include <Eigen/Core>

#include <meso/core/check.hpp>
#include <meso/core/context.hpp>
#include <meso/core/eigen.hpp>
#include <meso/core/gemm_options.hpp>

namespace meso {

namespace detail {

template <int OrderA, int OrderB, class S>
void eigen_product(Index m, Index n, Index k, S alpha, const S* a, Index lda, const S* b, Index ldb, S* c, Index ldc) {
  // Eigen's own entry to its blocked kernel, with no parallelization info: a product through the expression
  // templates would start OpenMP threads of its own, which changes the bits and nests the parallelism.
  Eigen::internal::gemm_blocking_space<Eigen::RowMajor, S, S, Eigen::Dynamic, Eigen::Dynamic, Eigen::Dynamic> blocking(
      m, n, k, 1, true);
  Eigen::internal::general_matrix_matrix_product<Index, S, OrderA, false, S, OrderB, false, Eigen::RowMajor, 1>::run(
      m, n, k, a, lda, b, ldb, c, 1, ldc, alpha, blocking, nullptr);
}

}  // namespace detail

/// c = [c +] alpha·op(a)·op(b) on the calling thread: what runs inside a tile.
/// Shapes and error as for gemm; nothing is checked here.
template <class S>
void serial_gemm(const EigenProducts&, const ConstView<S>& a, const ConstView<S>& b, const View<S>& c,
                 const GemmOptions& o = {}) {
  if (!o.accumulate) map(c).setZero();
  const Index k = o.transpose_a ? a.rows : a.cols;
  if (c.rows == 0 || c.cols == 0 || k == 0) return;
  const S alpha = static_cast<S>(o.alpha);
  const auto run = [&](auto order_a, auto order_b) {
    detail::eigen_product<order_a.value, order_b.value>(c.rows, c.cols, k, alpha, a.data, a.stride, b.data, b.stride,
                                                        c.data, c.stride);
  };
  using InRows = std::integral_constant<int, Eigen::RowMajor>;
  using InColumns = std::integral_constant<int, Eigen::ColMajor>;
  if (o.transpose_a)
    o.transpose_b ? run(InColumns{}, InColumns{}) : run(InColumns{}, InRows{});
  else
    o.transpose_b ? run(InRows{}, InColumns{}) : run(InRows{}, InRows{});
}

/// Matrix product c = alpha·op(a)·op(b), or c += … ; op is the identity or the transpose.
/// Shapes: op(a) (m, k), op(b) (k, n), c (m, n); c must not overlap a or b.
/// `bias`, if not null, holds n values added to every row: c = bias + … (not with accumulate).
/// Numerics: c is cut into fixed tiles, each computed by one thread: the same bits for any number of threads.
/// Error: |c − exact| ≤ |alpha|·(k + 2)·u·|a||b| element-wise (k + 3 with a bias).
/// Throws: std::invalid_argument when the shapes do not fit.
template <class Products, class S>
void gemm(CpuContext<Products>& context, const ConstView<S>& a, const ConstView<S>& b, const View<S>& c,
          const GemmOptions& o = {}, const S* bias = nullptr) {
  detail::check_gemm(a.rows, a.cols, b.rows, b.cols, c.rows, c.cols, o);
  if (c.rows == 0 || c.cols == 0) return;
  const auto round_up = [](Index x) { return (x + 15) / 16 * 16; };
  const auto tiles_of = [](Index x, Index tile) { return (x + tile - 1) / tile; };
  Index tile_rows = std::min<Index>(c.rows, 256), tile_cols = std::min<Index>(c.cols, 512);
  while (tiles_of(c.rows, tile_rows) * tiles_of(c.cols, tile_cols) < 8 && tile_rows * tile_cols > 48 * 48) {
    if (tile_rows >= tile_cols)
      tile_rows = round_up((tile_rows + 1) / 2);
    else
      tile_cols = round_up((tile_cols + 1) / 2);
  }
  const Index down = tiles_of(c.rows, tile_rows), across = tiles_of(c.cols, tile_cols);
  parallel_for(context, down * across, [&](Index tile, Index) {
    const Index i = tile / across * tile_rows, j = tile % across * tile_cols;
    const Index m = (std::min)(tile_rows, c.rows - i), n = (std::min)(tile_cols, c.cols - j);
    const View<S> out = c.block(i, j, m, n);
    GemmOptions options = o;
    if (bias) {
      map(out).rowwise() = Eigen::Map<const Eigen::Matrix<S, 1, Eigen::Dynamic>>(bias + j, n);
      options.accumulate = true;
    }
    serial_gemm<S>(Products{}, o.transpose_a ? a.col_range(i, m) : a.row_range(i, m),
                   o.transpose_b ? b.row_range(j, n) : b.col_range(j, n), out, options);
  });
}

}  // namespace meso
