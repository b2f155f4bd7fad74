#pragma once
#include <meso/core/gemm_options.hpp>
#include <meso/cuda/math.cuh>

namespace meso::cuda {

namespace detail {

#ifdef MESO_CUDA_EMULATION
/// The same product on the host, in plain loops: cuBLAS has no emulation.
template <class T, class Out>
void product(Context&, const View<const T>& a, const View<const T>& b, const View<Out>& c, const GemmOptions& o,
             Index batch, Index step_a, Index step_b, Index step_c) {
  using C = Compute<T>;
  const Index k = o.transpose_a ? a.rows : a.cols;
  const C alpha = static_cast<C>(o.alpha);
  std::vector<C> row(static_cast<std::size_t>(c.cols));
  for (Index z = 0; z < batch; ++z) {
    const T *const pa = a.data + z * step_a, *const pb = b.data + z * step_b;
    Out* const pc = c.data + z * step_c;
    for (Index i = 0; i < c.rows; ++i) {
      std::fill(row.begin(), row.end(), C(0));
      for (Index l = 0; l < k; ++l) {
        const C x = load(o.transpose_a ? pa[l * a.stride + i] : pa[i * a.stride + l]);
        for (Index j = 0; j < c.cols; ++j)
          row[static_cast<std::size_t>(j)] += x * load(o.transpose_b ? pb[j * b.stride + l] : pb[l * b.stride + j]);
      }
      for (Index j = 0; j < c.cols; ++j) {
        Out& to = pc[i * c.stride + j];
        const C value = alpha * row[static_cast<std::size_t>(j)];
        store(to, o.accumulate ? load(to) + value : value);
      }
    }
  }
}
#else
template <class T>
constexpr cudaDataType_t data_type = std::is_same_v<T, bf16>     ? CUDA_R_16BF
                                     : std::is_same_v<T, double> ? CUDA_R_64F
                                                                 : CUDA_R_32F;

template <class T, class Out>
void product(Context& context, const View<const T>& a, const View<const T>& b, const View<Out>& c, const GemmOptions& o,
             Index batch, Index step_a, Index step_b, Index step_c) {
  using C = Compute<T>;
  const auto as_int = [](Index x) {
    meso::check(x <= 0x7FFFFFFF, "gemm: a size of ", x, " is beyond cuBLAS' limit");
    return static_cast<int>(x);
  };
  // Row-major c = op(a) op(b) is column-major cᵀ = op(b)ᵀ op(a)ᵀ.
  const C alpha = static_cast<C>(o.alpha), beta = o.accumulate ? C(1) : C(0);
  const Index k = o.transpose_a ? a.rows : a.cols;
  const cublasComputeType_t type = std::is_same_v<C, double>                          ? CUBLAS_COMPUTE_64F
                                   : std::is_same_v<T, float> && context.options.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                                      : CUBLAS_COMPUTE_32F;
  const cublasStatus_t status = cublasGemmStridedBatchedEx(
      context.products(), o.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, o.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N,
      as_int(c.cols), as_int(c.rows), as_int(k), &alpha, b.data, data_type<T>, as_int(b.stride), step_b, a.data,
      data_type<T>, as_int(a.stride), step_a, &beta, c.data, data_type<Out>, as_int(c.stride), step_c, as_int(batch),
      type, CUBLAS_GEMM_DEFAULT);
  if (status != CUBLAS_STATUS_SUCCESS)
    check(status, message("gemm: c ", shape(c), " of a ", shape(a), o.transpose_a ? "ᵀ" : "", " and b ", shape(b),
                          o.transpose_b ? "ᵀ" : "", ", batch ", batch));
}
#endif

}  // namespace detail

/// Matrix product c = alpha·op(a)·op(b), or c += …, by cuBLAS, as meso::gemm. T float, double or bf16; Out is T, or float
/// for bf16 (gradients of weights). bf16 products are accumulated in float.
/// Shapes: op(a) (m, k), op(b) (k, n), c (m, n); c must not overlap a or b.
/// Error: |c − exact| ≤ |alpha|·(k + 2)·u·|a||b| element-wise with u that of the accumulator, and one rounding to Out. With
/// ContextOptions::tf32 a float product also rounds its factors, 2·2⁻¹¹·|a||b|.
/// Throws: std::invalid_argument when the shapes do not fit; cuda::Error of cuBLAS with the shapes.
template <class T, class Out>
void gemm(Context& context, const View<const T>& a, const View<const T>& b, const View<Out>& c,
          const GemmOptions& o = {}) {
  static_assert(std::is_same_v<T, Out> || (std::is_same_v<T, bf16> && std::is_same_v<Out, float>));
  meso::detail::check_gemm(a.rows, a.cols, b.rows, b.cols, c.rows, c.cols, o);
  if (c.rows == 0 || c.cols == 0) return;
  detail::product<T, Out>(context, a, b, c, o, 1, 0, 0, 0);
}

/// `batch` products of equal shapes, the operands of neighbors step elements apart. Shapes, error, throws: as gemm.
template <class T, class Out>
void batched_gemm(Context& context, const View<const T>& a, Index step_a, const View<const T>& b, Index step_b,
                  const View<Out>& c, Index step_c, Index batch, const GemmOptions& o = {}) {
  static_assert(std::is_same_v<T, Out> || (std::is_same_v<T, bf16> && std::is_same_v<Out, float>));
  meso::detail::check_gemm(a.rows, a.cols, b.rows, b.cols, c.rows, c.cols, o);
  if (c.rows == 0 || c.cols == 0 || batch == 0) return;
  detail::product<T, Out>(context, a, b, c, o, batch, step_a, step_b, step_c);
}

}  // namespace meso::cuda
