#pragma once
#include <limits>
#include <vector>

#include <meso/cuda/math.cuh>
#include <meso/stats/hidden_states.hpp>
#include <meso/stats/power_of_two.hpp>

namespace meso::cuda {

using meso::TokenStatistics;

namespace detail {

template <class T>
__global__ void __launch_bounds__(256) token_statistics_kernel(View<const T> x, double roundoff, TokenStatistics* out) {
  MESO_DYNAMIC_SHARED(memory);
  double* const scratch = reinterpret_cast<double*>(memory);
  const Index i = static_cast<Index>(blockIdx.x), n = x.cols, step = static_cast<Index>(blockDim.x),
              start = static_cast<Index>(threadIdx.x);
  const auto number = [&](Index j) { return static_cast<double>(load(x(i, j))); };
  const double count = static_cast<double>(n);
  double sum = 0, top = 0;
  for (Index j = start; j < n; j += step) {
    sum += number(j);
    top = Maximum{}(magnitude(number(j)), top);
  }
  double center = block_reduce(sum, scratch, Sum{}) / count;
  top = block_reduce(top, scratch, Maximum{});
  // The fourth powers of all floats are in range, those of doubles are not.
  meso::detail::PowerOfTwo scale;
  if constexpr (std::is_same_v<T, double>) {
    scale = meso::detail::PowerOfTwo::of(top);
    if (scale.exponent != 0) {
      sum = 0;
      for (Index j = start; j < n; j += step) sum += scale(number(j));
      center = block_reduce(sum, scratch, Sum{}) / count;
    }
  }
  const auto value = [&](Index j) {
    if constexpr (std::is_same_v<T, double>)
      return scale(number(j));
    else
      return number(j);
  };
  double s1 = 0, s2 = 0, s3 = 0, s4 = 0, deviation = 0;
  for (Index j = start; j < n; j += step) {
    const double d = value(j) - center, square = d * d;
    s1 += d;
    s2 += square;
    s3 += square * d;
    s4 += square * square;
    deviation = Maximum{}(magnitude(d), deviation);
  }
  // Shifted by δ = Σd/n, the rounding error of the mean.
  const double shift = block_reduce(s1, scratch, Sum{}) / count;
  s2 = block_reduce(s2, scratch, Sum{});
  s3 = block_reduce(s3, scratch, Sum{});
  s4 = block_reduce(s4, scratch, Sum{});
  deviation = block_reduce(deviation, scratch, Maximum{});
  if (start != 0) return;
  const double shift2 = shift * shift;
  const double m2 = s2 - count * shift2, m4 = s4 - 4 * shift * s3 + 6 * shift2 * s2 - 3 * count * shift2 * shift2;
  const double kurtosis = count * m4 / (m2 * m2);
  out[i] = {deviation > 4 * roundoff * scale(top) ? kurtosis : static_cast<double>(NAN), top};
}

/// Unit roundoff of T.
template <class T>
constexpr double unit_roundoff() {
  if constexpr (std::is_same_v<T, bf16>)
    return 0x1p-8;
  else
    return static_cast<double>(std::numeric_limits<T>::epsilon()) / 2;
}

}  // namespace detail

/// κ over channels and max |x| of every token, in double, as meso::HiddenStateStatistics has them.
/// Shapes: x (tokens, width), out tokens entries in device memory. `roundoff`: of the scalar in which x was computed.
/// Error: of κ, relative, about 2(width/threads + 16)·2⁻⁵³ as long as σ ≫ u·top; top exact.
template <class T>
void token_statistics(Context& context, const View<const T>& x, double roundoff, TokenStatistics* out) {
  launch(context, "token_statistics", {{blocks_for(x.rows, 1)}, {detail::row_threads(x.cols)}, sizeof(double) * 32},
         detail::token_statistics_kernel<T>, x, roundoff, out);
}

/// The same in host memory; waits for them. Only these two numbers a token leave the device.
template <class T>
void token_statistics(Context& context, const View<const T>& x, std::vector<TokenStatistics>& out) {
  const auto on_device = context.workspace.template take<TokenStatistics>(x.rows);
  token_statistics<T>(context, x, detail::unit_roundoff<T>(), on_device.data());
  out.resize(static_cast<std::size_t>(x.rows));
  download(context, on_device.data(), x.rows, out.data());
}

}  // namespace meso::cuda
