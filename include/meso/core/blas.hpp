#pragma once
#include <cblas.h>

#include <meso/core/gemm.hpp>

namespace meso {

/// Matrix products by a BLAS with the C interface, one call a tile: CpuContext<Blas>. Link the BLAS yourself.
/// The BLAS must run each call on the calling thread: its own threads would nest in ours and change the bits. OpenBLAS
/// is held to one thread for the duration of a call to gemm; set others to one thread before (BLIS_NUM_THREADS=1,
/// MKL_NUM_THREADS=1).
struct Blas {
#ifdef OPENBLAS_VERSION
  class Scope {
   public:
    Scope() { openblas_set_num_threads(1); }
    ~Scope() { openblas_set_num_threads(before_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    int before_ = openblas_get_num_threads();
  };
#else
  struct Scope {};
#endif
};

/// c = [c +] alpha·op(a)·op(b) on the calling thread. Shapes and error as for gemm; nothing is checked here.
template <class S>
void serial_gemm(Blas, const ConstView<S>& a, const ConstView<S>& b, const View<S>& c, const GemmOptions& o) {
  const auto side = [](bool transposed) { return transposed ? CblasTrans : CblasNoTrans; };
  const auto size = [](Index x) { return static_cast<int>(x); };
  const auto run = [&](auto* product) {
    product(CblasRowMajor, side(o.transpose_a), side(o.transpose_b), size(c.rows), size(c.cols),
            size(o.transpose_a ? a.rows : a.cols), static_cast<S>(o.alpha), a.data, size(a.stride), b.data,
            size(b.stride), o.accumulate ? S(1) : S(0), c.data, size(c.stride));
  };
  if constexpr (std::is_same_v<S, float>)
    run(&cblas_sgemm);
  else
    run(&cblas_dgemm);
}

}  // namespace meso
