#pragma once
#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <meso/core/check.hpp>
#include <meso/core/context.hpp>
#include <meso/core/eigen.hpp>
#include <meso/core/tiles.hpp>
#include <meso/quant/rounding.hpp>
#include <type_traits>

namespace meso {

/// Blocks of a matrix that share one scale: rows × cols coefficients, 0 = all. The last block may be smaller.
struct Granularity {
  Index rows = 0;
  Index cols = 0;
};
/// One scale for the matrix.
inline constexpr Granularity per_tensor{0, 0};
/// One scale a row: an output channel of a weight (out, in), a token of activations (tokens, width).
inline constexpr Granularity per_row{1, 0};
/// One scale for each `group` adjacent coefficients of a row.
constexpr Granularity per_group(Index group) { return {1, group}; }

/// Integer grid of one block: q = clip(round(x/scale) + zero, low, high), x̂ = scale·(q − zero), or the largest number of
/// that sign where the product overflows, which is nearer to any finite x.
/// low = high makes every coefficient x̂ = 0 (with zero = low).
template <class S>
struct QuantizationGrid {
  S scale = S(1);
  std::int32_t zero = 0;
  std::int32_t low = 0;
  std::int32_t high = 0;
};

/// A policy that fits a grid to a block. Members of a scheme Q, for scalar S and a rounding policy R:
///   using Storage = std::int8_t;               an integer type that holds low … high
///   grid(lo, hi, rounding) → QuantizationGrid<S>;   lo and hi: finite minimum and maximum of the block
template <class Q, class S, class R = NearestEven>
concept QuantizationScheme = std::integral<typename Q::Storage> && requires(const Q q, S x, const R rounding) {
  { q.grid(x, x, rounding) } -> std::same_as<QuantizationGrid<S>>;
};

/// A matrix in integers: x̂(i, j) = scales(g)·(values(i, j) − zero_points(g)), g the block of (i, j).
/// Shapes: values (rows, cols); scales and zero_points (blocks down, blocks across).
template <class S, class Integer = std::int8_t>
struct QuantizedMatrix {
  RowMajorMatrix<Integer> values;
  RowMajorMatrix<S> scales;
  RowMajorMatrix<std::int32_t> zero_points;
  Granularity granularity;

  Index rows() const { return values.rows(); }
  Index cols() const { return values.cols(); }
  /// Scale of coefficient (i, j).
  S scale(Index i, Index j) const {
    return scales(granularity.rows ? i / granularity.rows : 0, granularity.cols ? j / granularity.cols : 0);
  }
  std::int32_t zero_point(Index i, Index j) const {
    return zero_points(granularity.rows ? i / granularity.rows : 0, granularity.cols ? j / granularity.cols : 0);
  }
};

namespace detail {

/// s·n, or the largest number of that sign.
template <class S>
S finite_product(S s, S n) {
  constexpr S largest = (std::numeric_limits<S>::max)();
  return (std::max)((std::min)(s * n, largest), -largest);
}

/// Matrix of the argument's scalar and storage order.
template <class Derived>
using SameOrderMatrix = Eigen::Matrix<typename Derived::Scalar, Eigen::Dynamic, Eigen::Dynamic,
                                      Derived::IsRowMajor ? Eigen::RowMajor : Eigen::ColMajor>;

/// The cut of a (rows, cols) matrix into blocks.
struct QuantizationBlocks {
  Index rows, cols;    // of one block
  Index down, across;  // number of blocks
  QuantizationBlocks(const Granularity& g, Index matrix_rows, Index matrix_cols) {
    check(g.rows >= 0 && g.cols >= 0, "quantize: a block of (", g.rows, ", ", g.cols, ") is negative");
    rows = std::max<Index>(1, g.rows ? g.rows : matrix_rows);
    cols = std::max<Index>(1, g.cols ? g.cols : matrix_cols);
    down = (matrix_rows + rows - 1) / rows;
    across = (matrix_cols + cols - 1) / cols;
  }
};

template <class S>
[[noreturn]] void throw_not_finite(const View<const S>& x, Index row) {
  Index col = 0;
  while (std::isfinite(x(row, col))) ++col;
  throw std::invalid_argument(
      message("quantize: x(", row, ", ", col, ") is ", x(row, col), "; a quantized matrix must be finite"));
}

/// values, scales, zeros = x on the grids of its blocks. Shapes: x, values (rows, cols); scales, zeros (down, across).
/// The minima and maxima of rows are combined by min and max alone: the same bits for any number of threads.
template <class Products, class S, class Scheme, class R>
void quantize_blocks(CpuContext<Products>& context, const View<const S>& x, const Scheme& scheme,
                     const QuantizationBlocks& blocks, const R& rounding, const View<typename Scheme::Storage>& values,
                     const View<S>& scales, const View<std::int32_t>& zeros) {
  static_assert(std::is_floating_point_v<S>, "meso::quantize takes real numbers: float or double");
  static_assert(Rounding<R, S>, "the rounding does not satisfy meso::Rounding (see meso/quant/rounding.hpp)");
  static_assert(QuantizationScheme<Scheme, S, R>,
                "the scheme does not satisfy meso::QuantizationScheme (see meso/quant/quantized_matrix.hpp)");
  if (x.rows == 0 || x.cols == 0) return;
  const auto ranges = context.workspace.template take<S>(2 * x.rows * blocks.across);
  const auto grid_scratch = context.workspace.template take<QuantizationGrid<S>>(blocks.down * blocks.across);
  const View<S> low{ranges.data(), x.rows, blocks.across, 2 * blocks.across};
  const View<S> high{ranges.data() + blocks.across, x.rows, blocks.across, 2 * blocks.across};
  const View<QuantizationGrid<S>> grids = grid_scratch.view(blocks.down, blocks.across);
  const RowTiles tiles = RowTiles::of(x.rows, x.cols);
  parallel_for(context, tiles.count(), [&](Index t, Index) {
    for (Index i = tiles[t].first; i < tiles[t].first + tiles[t].count; ++i)
      for (Index b = 0; b < blocks.across; ++b) {
        const Index first = b * blocks.cols, count = std::min<Index>(blocks.cols, x.cols - first);
        const ConstArray<S> run = array(x.row(i) + first, count);
        low(i, b) = run.template minCoeff<Eigen::PropagateNaN>();
        high(i, b) = run.template maxCoeff<Eigen::PropagateNaN>();
        if (!std::isfinite(low(i, b)) || !std::isfinite(high(i, b))) throw_not_finite(x, i);
      }
  });
  for (Index a = 0; a < blocks.down; ++a) {
    const Index first = a * blocks.rows, count = std::min<Index>(blocks.rows, x.rows - first);
    for (Index b = 0; b < blocks.across; ++b) {
      const QuantizationGrid<S> grid = scheme.grid(map(low).col(b).segment(first, count).minCoeff(),
                                                   map(high).col(b).segment(first, count).maxCoeff(), rounding);
      grids(a, b) = grid;
      scales(a, b) = grid.scale;
      zeros(a, b) = grid.zero;
    }
  }
  parallel_for(context, tiles.count(), [&](Index t, Index) {
    for (Index i = tiles[t].first; i < tiles[t].first + tiles[t].count; ++i)
      for (Index b = 0; b < blocks.across; ++b) {
        const QuantizationGrid<S> grid = grids(i / blocks.rows, b);
        const Index first = b * blocks.cols, count = std::min<Index>(blocks.cols, x.cols - first);
        const S* from = x.row(i) + first;
        typename Scheme::Storage* to = values.row(i) + first;
        // clip(round(v) + zero, low, high) = round(clip(v, low − zero, high − zero)) + zero: rounding is monotone.
        const S bottom = static_cast<S>(grid.low - grid.zero), top = static_cast<S>(grid.high - grid.zero);
        for (Index j = 0; j < count; ++j) {
          S v = from[j] / grid.scale;
          v = v < bottom ? bottom : v;
          v = v > top ? top : v;
          to[j] = static_cast<typename Scheme::Storage>(rounding(v) + grid.zero);
        }
      }
  });
}

}  // namespace detail

/// Quantized copy of a view: one grid per block, q = clip(round(x/s) + z), a true division.
/// Errors and degenerate blocks are the scheme's: see Absmax and Zeropoint. An empty matrix gives an empty one.
/// Numerics: the same bits for any number of threads.
/// Throws: std::invalid_argument on NaN or an infinity, which it names with its position, and on bad options.
template <class Products, class T, class Scheme, class R = NearestEven>
QuantizedMatrix<typename View<T>::Scalar, typename Scheme::Storage> quantize(
    CpuContext<Products>& context, const View<T>& x, const Scheme& scheme, const Granularity& granularity = per_tensor,
    const R& rounding = {}) {
  using S = typename View<T>::Scalar;
  const detail::QuantizationBlocks blocks(granularity, x.rows, x.cols);
  QuantizedMatrix<S, typename Scheme::Storage> q;
  q.values.resize(x.rows, x.cols);
  q.scales.resize(blocks.down, blocks.across);
  q.zero_points.resize(blocks.down, blocks.across);
  q.granularity = granularity;
  detail::quantize_blocks<Products, S>(context, x, scheme, blocks, rounding, view(q.values), view(q.scales),
                                       view(q.zero_points));
  return q;
}

/// The same for any dense expression, in any storage order, on the calling thread.
template <class Derived, class Scheme, class R = NearestEven>
QuantizedMatrix<typename Derived::Scalar, typename Scheme::Storage> quantize(
    const Eigen::DenseBase<Derived>& x, const Scheme& scheme, const Granularity& granularity = per_tensor,
    const R& rounding = {}) {
  const RowMajorMatrix<typename Derived::Scalar> values = x.derived();
  CpuContext<> context(1);
  return quantize(context, view(values), scheme, granularity, rounding);
}

/// x̂ = s·(q − z), finite. Shapes: those of the matrix that was quantized. Error: one rounding, u·|x̂|.
template <class S, class Integer>
RowMajorMatrix<S> dequantize(const QuantizedMatrix<S, Integer>& q) {
  RowMajorMatrix<S> x(q.rows(), q.cols());
  const detail::QuantizationBlocks blocks(q.granularity, q.rows(), q.cols());
  for (Index i = 0; i < q.rows(); ++i)
    for (Index b = 0; b < blocks.across; ++b) {
      const S scale = q.scales(i / blocks.rows, b);
      const std::int32_t zero = q.zero_points(i / blocks.rows, b);
      const Index end = std::min<Index>((b + 1) * blocks.cols, q.cols());
      for (Index j = b * blocks.cols; j < end; ++j)
        x(i, j) = detail::finite_product(scale, static_cast<S>(static_cast<std::int32_t>(q.values(i, j)) - zero));
    }
  return x;
}

/// dequantize(quantize(x)) with the same bits: what a computation in integers would see, in floating point.
/// Takes any dense expression and returns a matrix of the same storage order. Throws as quantize does.
template <class Derived, class Scheme, class R = NearestEven>
detail::SameOrderMatrix<Derived> fake_quantize(const Eigen::DenseBase<Derived>& x, const Scheme& scheme,
                                               const Granularity& granularity = per_tensor, const R& rounding = {}) {
  return dequantize(quantize(x, scheme, granularity, rounding));
}

}  // namespace meso
