#pragma once
#include <cstdint>
#include <limits>

#include <meso/cuda/math.cuh>

namespace meso::cuda {

/// Blocks that share one scale: rows × cols coefficients, 0 = all; as meso::Granularity.
struct Granularity {
  Index rows = 0;
  Index cols = 0;
};

/// Integer grid of one block, as meso::QuantizationGrid.
template <class S>
struct QuantizationGrid {
  S scale = S(1);
  std::int32_t zero = 0, low = 0, high = 0;
};

/// Ties to even, as meso::NearestEven: exact, hence bit-equal.
struct NearestEven {
  static __device__ std::int32_t round(float x) { return static_cast<std::int32_t>(rintf(x)); }
  static __device__ std::int32_t round(double x) { return static_cast<std::int32_t>(rint(x)); }
};
/// Ties away from zero, as meso::HalfAway.
struct HalfAway {
  static __device__ std::int32_t round(float x) { return static_cast<std::int32_t>(roundf(x)); }
  static __device__ std::int32_t round(double x) { return static_cast<std::int32_t>(::round(x)); }
};

namespace detail {
/// The smallest normal number.
__device__ __forceinline__ float smallest_normal(float) { return 1.17549435e-38f; }
__device__ __forceinline__ double smallest_normal(double) { return 2.2250738585072014e-308; }
/// The largest finite number.
__device__ __forceinline__ float largest(float) { return 3.40282347e38f; }
__device__ __forceinline__ double largest(double) { return 1.7976931348623157e308; }
}  // namespace detail

/// Symmetric b-bit quantization, the arithmetic of meso::Absmax, operation by operation.
struct Absmax {
  int bits = 8;
  using Storage = std::int8_t;
  static constexpr int least_bits = 2;

  template <class Rounding, class S>
  __device__ QuantizationGrid<S> grid(S lo, S hi) const {
    const std::int32_t top = (1 << (bits - 1)) - 1;
    const S a = detail::magnitude(lo), b = detail::magnitude(hi);
    const S scale = (a > b ? a : b) / static_cast<S>(top);
    if (!(scale >= detail::smallest_normal(S(0)))) return {};
    return {scale, 0, -top, top};
  }
};

/// Asymmetric b-bit quantization, the arithmetic of meso::Zeropoint, operation by operation.
struct Zeropoint {
  int bits = 4;
  using Storage = std::uint8_t;
  static constexpr int least_bits = 1;

  template <class Rounding, class S>
  __device__ QuantizationGrid<S> grid(S lo, S hi) const {
    const std::int32_t top = (1 << bits) - 1;
    const S steps = static_cast<S>(top);
    const S bottom = lo < S(0) ? lo : S(0), peak = hi > S(0) ? hi : S(0);
    const S scale = (peak - bottom) / steps;
    if (!detail::finite(scale)) {
      const S half = (peak / 2 - bottom / 2) / steps, most = detail::largest(S(0)) / 2;
      const std::int32_t zero = Rounding::round(-bottom / 2 / half);
      return {(half < most ? half : most) * 2, zero < top ? zero : top, 0, top};
    }
    if (!(scale >= detail::smallest_normal(S(0)))) return {};
    const std::int32_t zero = Rounding::round(-bottom / scale);
    return {scale, zero < top ? zero : top, 0, top};
  }
};

namespace detail {

/// Extremes of a block, or NaN; one CUDA block each.
template <class Scheme, class Rounding, class S>
__global__ void __launch_bounds__(256)
    quantization_grid_kernel(Scheme scheme, View<const S> x, Index block_rows, Index block_cols, Index across,
                             QuantizationGrid<S>* grids, int* not_finite) {
  MESO_DYNAMIC_SHARED(memory);
  S* const scratch = reinterpret_cast<S*>(memory);
  const Index b = static_cast<Index>(blockIdx.x), row = b / across * block_rows, col = b % across * block_cols;
  const Index rows = row + block_rows < x.rows ? block_rows : x.rows - row;
  const Index cols = col + block_cols < x.cols ? block_cols : x.cols - col;
  S low = x(row, col), high = low;
  for (Index k = static_cast<Index>(threadIdx.x); k < rows * cols; k += 256) {
    const S value = x(row + k / cols, col + k % cols);
    low = Minimum{}(value, low);
    high = Maximum{}(value, high);
  }
  low = block_reduce(low, scratch, Minimum{});
  high = block_reduce(high, scratch, Maximum{});
  if (threadIdx.x != 0) return;
  if (!finite(low) || !finite(high)) *not_finite = 1;
  grids[b] = scheme.template grid<Rounding>(low, high);
}

template <class Scheme, class Rounding, class S>
struct QuantizeElement {
  View<const S> x;
  Index block_rows, block_cols, across;
  const QuantizationGrid<S>* grids;
  View<typename Scheme::Storage> values;

  __device__ void operator()(Index i, Index j) const {
    const QuantizationGrid<S> g = grids[i / block_rows * across + j / block_cols];
    std::int32_t q = g.low;
    if (g.low < g.high) {
      q = Rounding::round(x(i, j) / g.scale) + g.zero;
      q = q < g.low ? g.low : q > g.high ? g.high : q;
    }
    values(i, j) = static_cast<typename Scheme::Storage>(q);
  }
};

template <class S, class Storage>
struct DequantizeElement {
  View<const Storage> values;
  Index block_rows, block_cols, across;
  const QuantizationGrid<S>* grids;
  View<S> x;

  __device__ void operator()(Index i, Index j) const {
    const QuantizationGrid<S> g = grids[i / block_rows * across + j / block_cols];
    const S value = g.scale * static_cast<S>(static_cast<std::int32_t>(values(i, j)) - g.zero), most = largest(S(0));
    x(i, j) = value > most ? most : value < -most ? -most : value;
  }
};

}  // namespace detail

/// A matrix in integers in device memory: x̂(i, j) = scale·(values(i, j) − zero) with the grid of the block of (i, j).
template <class S, class Storage>
struct QuantizedMatrix {
  Index rows = 0, cols = 0, block_rows = 1, block_cols = 1, down = 0, across = 0;
  Buffer<Storage> values;
  Buffer<QuantizationGrid<S>> grids;  ///< (down, across)
};

/// q = x on the grids of its blocks; the integers, scales and zeros of meso::quantize, bit for bit.
/// Waits for the device, which reports whether all numbers are finite. S float or double.
/// Throws: std::invalid_argument on a NaN or infinity, a negative block, or bits that the scheme does not have.
template <class Rounding = NearestEven, class Scheme, class S>
void quantize(Context& context, const View<const S>& x, const Scheme& scheme, const Granularity& granularity,
              QuantizedMatrix<S, typename Scheme::Storage>& q) {
  meso::check(granularity.rows >= 0 && granularity.cols >= 0, "quantize: a block of (", granularity.rows, ", ",
              granularity.cols, ") is negative");
  meso::check(scheme.bits >= Scheme::least_bits && scheme.bits <= 8, "quantize: ", scheme.bits, " bits, expected ",
              Scheme::least_bits, " … 8");
  q.rows = x.rows;
  q.cols = x.cols;
  q.block_rows = granularity.rows > 0 ? granularity.rows : x.rows > 0 ? x.rows : 1;
  q.block_cols = granularity.cols > 0 ? granularity.cols : x.cols > 0 ? x.cols : 1;
  q.down = (x.rows + q.block_rows - 1) / q.block_rows;
  q.across = (x.cols + q.block_cols - 1) / q.block_cols;
  q.values.resize(x.size());
  q.grids.resize(q.down * q.across);
  if (x.size() == 0) return;
  const auto flag = context.workspace.template take<int>(1);
  clear(context, flag.data(), 1);
  launch(context, "quantize", {{blocks_for(q.down * q.across, 1)}, {256}, sizeof(S) * 32},
         detail::quantization_grid_kernel<Scheme, Rounding, S>, scheme, x, q.block_rows, q.block_cols, q.across,
         q.grids.data(), flag.data());
  detail::for_elements(context, "quantize",
                       detail::QuantizeElement<Scheme, Rounding, S>{x, q.block_rows, q.block_cols, q.across,
                                                                    q.grids.data(), q.values.view(x.rows, x.cols)},
                       x.rows, x.cols);
  int not_finite = 0;
  download(context, flag.data(), 1, &not_finite);
  if (not_finite == 0) return;
  std::vector<S> row(static_cast<std::size_t>(x.cols));
  for (Index i = 0; i < x.rows; ++i) {
    download(context, x.row(i), x.cols, row.data());
    for (Index j = 0; j < x.cols; ++j) {
      const S value = row[static_cast<std::size_t>(j)];
      meso::check(value - value == 0, "quantize: x(", i, ", ", j, ") is ", value,
                  "; a quantized matrix must be finite");
    }
  }
}

/// x̂ = s·(q − z), finite, bit-equal to meso::dequantize. Shapes: x (q.rows, q.cols). Error: one rounding, u·|x̂|.
template <class S, class Storage>
void dequantize(Context& context, const QuantizedMatrix<S, Storage>& q, const View<S>& x) {
  check_shape("dequantize", "x", x, q.rows, q.cols);
  detail::for_elements(context, "dequantize",
                       detail::DequantizeElement<S, Storage>{q.values.view(q.rows, q.cols), q.block_rows, q.block_cols,
                                                             q.across, q.grids.data(), x},
                       x.rows, x.cols);
}

}  // namespace meso::cuda
