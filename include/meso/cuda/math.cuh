#pragma once
// What kernels share: conversions, reductions over a warp and a block in a fixed order, sums over columns.
#include <math.h>

#include <meso/core/accumulate.hpp>
#include <meso/cuda/launch.hpp>

namespace meso {

/// bf16 has float masters and gradients, and kernels compute in float.
template <>
struct AccumulatorOf<cuda::bf16> {
  using type = float;
};

namespace cuda {

/// Type in which a kernel computes: float for bf16, else the type itself.
template <class T>
using Compute = Accumulator<std::remove_const_t<T>>;

namespace detail {

template <class T>
__device__ __forceinline__ Compute<T> load(const T& x) {
  return static_cast<Compute<T>>(x);
}
template <class T>
__device__ __forceinline__ void store(T& to, Compute<T> x) {
  to = static_cast<T>(x);
}

__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }
__device__ __forceinline__ float logarithm(float x) { return logf(x); }
__device__ __forceinline__ double logarithm(double x) { return log(x); }
__device__ __forceinline__ float root(float x) { return sqrtf(x); }
__device__ __forceinline__ double root(double x) { return sqrt(x); }
__device__ __forceinline__ float error_function(float x) { return erff(x); }
__device__ __forceinline__ double error_function(double x) { return erf(x); }
__device__ __forceinline__ float magnitude(float x) { return fabsf(x); }
__device__ __forceinline__ double magnitude(double x) { return fabs(x); }
__device__ __forceinline__ bool finite(float x) { return x - x == 0; }
__device__ __forceinline__ bool finite(double x) { return x - x == 0; }
template <class C>
__device__ __forceinline__ C minus_infinity() {
  return -static_cast<C>(HUGE_VALF);
}

struct Sum {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a + b;
  }
};
/// NaN if either is.
struct Maximum {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a > b || a != a ? a : b;
  }
};
struct Minimum {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a < b || a != a ? a : b;
  }
};

/// The same value in every lane, combined in a fixed order.
template <class C, class F>
__device__ __forceinline__ C warp_reduce(C value, F f) {
  MESO_UNROLL
  for (int bits = 16; bits > 0; bits /= 2) value = f(value, __shfl_xor_sync(0xFFFFFFFFu, value, bits));
  return value;
}

/// The same value in every thread of a block of whole warps; `scratch` holds one value a warp. Ends with a barrier.
template <class C, class F>
__device__ __forceinline__ C block_reduce(C value, C* scratch, F f) {
  value = warp_reduce(value, f);
  const unsigned warps = blockDim.x / 32;
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  C total = scratch[0];
  for (unsigned w = 1; w < warps; ++w) total = f(total, scratch[w]);
  __syncthreads();
  return total;
}

/// Threads for a block that walks along a row of n elements.
inline unsigned row_threads(Index n) { return n <= 256 ? 64 : n <= 1024 ? 128 : 256; }

/// out[k·cols + j] of chunk b = Σ over the rows i of the chunk of terms(i, j)[k], k < K. Blocks of 32 × 8 threads.
inline constexpr int column_block_rows = 8;
inline constexpr Index rows_per_chunk = 128;

template <int K, class C, class Terms>
__global__ void __launch_bounds__(256) column_partials_kernel(Terms terms, Index rows, Index cols, C* out) {
  MESO_DYNAMIC_SHARED(memory);
  C* const shared = reinterpret_cast<C*>(memory);  // K × 8 × 32
  const int lane = static_cast<int>(threadIdx.x), line = static_cast<int>(threadIdx.y);
  const Index j = static_cast<Index>(blockIdx.x) * 32 + lane, first = static_cast<Index>(blockIdx.y) * rows_per_chunk;
  const Index last = first + rows_per_chunk < rows ? first + rows_per_chunk : rows;
  C sum[K];
  MESO_UNROLL
  for (int k = 0; k < K; ++k) sum[k] = C(0);
  if (j < cols) {
    for (Index i = first + line; i < last; i += column_block_rows) {
      C term[K];
      terms(i, j, term);
      MESO_UNROLL
      for (int k = 0; k < K; ++k) sum[k] += term[k];
    }
  }
  MESO_UNROLL
  for (int k = 0; k < K; ++k) shared[(k * column_block_rows + line) * 32 + lane] = sum[k];
  __syncthreads();
  if (line == 0 && j < cols) {
    MESO_UNROLL
    for (int k = 0; k < K; ++k) {
      C total = C(0);
      for (int l = 0; l < column_block_rows; ++l) total += shared[(k * column_block_rows + l) * 32 + lane];
      out[(static_cast<Index>(blockIdx.y) * K + k) * cols + j] = total;
    }
  }
}

/// sum[j] = or += Σ_t partials[t·n + j], in the order of t.
template <class C>
__global__ void __launch_bounds__(256)
    sum_partials_kernel(const C* partials, Index count, Index n, C* sum, bool accumulate) {
  const Index j = static_cast<Index>(blockIdx.x) * 256 + static_cast<Index>(threadIdx.x);
  if (j >= n) return;
  C total = accumulate ? sum[j] : C(0);
  for (Index t = 0; t < count; ++t) total += partials[t * n + j];
  sum[j] = total;
}

/// sum[k·cols + j] = or += Σ_i terms(i, j)[k]: the same bits in every run.
template <int K, class C, class Terms>
void sum_columns(Context& context, const char* op, const Terms& terms, Index rows, Index cols, C* sum,
                 Accumulate accumulate) {
  const unsigned chunks = blocks_for(rows, rows_per_chunk);
  const auto partials = context.workspace.template take<C>(static_cast<Index>(chunks) * K * cols);
  launch(context, op, {{blocks_for(cols, 32), chunks}, {32, column_block_rows}, sizeof(C) * 32 * column_block_rows * K},
         column_partials_kernel<K, C, Terms>, terms, rows, cols, partials.data());
  launch(context, op, {{blocks_for(K * cols, 256)}, {256}}, sum_partials_kernel<C>, partials.data(),
         static_cast<Index>(chunks), K * cols, sum, accumulate == Accumulate::yes);
}

/// f(i, j) for every element of a (rows, cols) matrix.
template <class F>
__global__ void __launch_bounds__(256) elements_kernel(F f, Index rows, Index cols) {
  const Index j = static_cast<Index>(blockIdx.x) * 256 + static_cast<Index>(threadIdx.x);
  if (j >= cols) return;
  for (Index i = static_cast<Index>(blockIdx.y); i < rows; i += static_cast<Index>(gridDim.y)) f(i, j);
}
template <class F>
void for_elements(Context& context, const char* op, const F& f, Index rows, Index cols) {
  const Index most = 32768;  // below the limit of a grid's y
  launch(context, op, {{blocks_for(cols, 256), static_cast<unsigned>(rows < most ? rows : most)}, {256}},
         elements_kernel<F>, f, rows, cols);
}

}  // namespace detail
}  // namespace cuda
}  // namespace meso
