#pragma once
#include <Eigen/Core>
#include <type_traits>

#include <meso/core/gemm.hpp>

namespace meso {

/// Matrix products by Eigen's blocked kernel, one single-threaded call a tile: CpuContext<EigenProducts>.
struct EigenProducts {
  struct Scope {};
};

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

/// c = [c +] alpha·op(a)·op(b) on the calling thread. Shapes and error as for gemm; nothing is checked here.
template <class S>
void serial_gemm(EigenProducts, const ConstView<S>& a, const ConstView<S>& b, const View<S>& c, const GemmOptions& o) {
  if (!o.accumulate) map(c).setZero();
  const Index k = o.transpose_a ? a.rows : a.cols;
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

}  // namespace meso
