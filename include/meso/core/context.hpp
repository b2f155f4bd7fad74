#pragma once
#include <algorithm>
#include <exception>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <meso/core/workspace.hpp>

namespace meso {

/// Matrix products by the library's own kernel (see core/gemm.hpp). Other backends: EigenProducts, Blas.
struct PackedProducts {};

/// Number of threads that a fresh context uses: OpenMP's default, 1 without OpenMP.
inline int default_threads() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

/// What an op on the CPU runs with: the number of threads, scratch memory, and the product backend as a type.
/// It belongs to the user; one context serves one calling thread at a time. Results have the same bits for any `threads`.
template <class Products = PackedProducts>
struct CpuContext {
  int threads = default_threads();
  Workspace workspace{};

  CpuContext() = default;
  explicit CpuContext(int thread_count) : threads(thread_count) {}
};

/// Runs f(tile, worker) for tile = 0 … tiles−1, each once, worker < context.threads. Tiles must write disjoint memory
/// and must not depend on `worker` but for scratch. Tile boundaries never depend on the number of threads; that is what
/// keeps the bits equal. The exception of the lowest failing tile is rethrown.
template <class Products, class F>
void parallel_for([[maybe_unused]] CpuContext<Products>& context, Index tiles, F&& f) {
#ifdef _OPENMP
  const int threads = static_cast<int>(std::min<Index>(context.threads, tiles));
  if (threads > 1) {
    std::exception_ptr error;
    Index error_tile = tiles;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (Index tile = 0; tile < tiles; ++tile) {
      try {
        f(tile, static_cast<Index>(omp_get_thread_num()));
      } catch (...) {
#pragma omp critical(meso_parallel_for)
        if (tile < error_tile) {
          error_tile = tile;
          error = std::current_exception();
        }
      }
    }
    if (error) std::rethrow_exception(error);
    return;
  }
#endif
  for (Index tile = 0; tile < tiles; ++tile) f(tile, Index{0});
}

/// Number of workers that parallel_for may use: the number of scratch areas to take.
template <class Products>
Index workers(const CpuContext<Products>& context) {
  return (std::max)(1, context.threads);
}

}  // namespace meso
