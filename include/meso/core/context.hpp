#pragma once
#include <algorithm>
#include <cstddef>
#include <exception>
#include <utility>
#include <vector>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <meso/core/buffer.hpp>

namespace meso {

/// Pool of scratch blocks. A block taken by `take` returns to the pool when its handle dies, so that after the first
/// step of a loop every request is served from memory that is there already.
/// Not thread-safe: ops take what they need before they start their workers.
class Workspace {
 public:
  template <class T>
  class Scratch {
   public:
    Scratch(Workspace& owner, std::size_t slot, T* data, Index size)
        : owner_(&owner), slot_(slot), data_(data), size_(size) {}
    Scratch(Scratch&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), slot_(other.slot_), data_(other.data_), size_(other.size_) {}
    Scratch& operator=(Scratch&&) = delete;
    ~Scratch() {
      if (owner_) owner_->blocks_[slot_].taken = false;
    }
    T* data() const { return data_; }
    Index size() const { return size_; }
    View<T> view(Index rows, Index cols) const { return {data_, rows, cols, cols}; }

   private:
    Workspace* owner_;
    std::size_t slot_;
    T* data_;
    Index size_;
  };

  /// `size` uninitialized elements, 64-byte aligned: the smallest free block that holds them, else a new one.
  template <class T>
  Scratch<T> take(Index size) {
    const Index bytes = padded<std::byte>(size * static_cast<Index>(sizeof(T)));
    std::size_t best = blocks_.size();
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (!blocks_[i].taken && blocks_[i].memory.size() >= bytes &&
          (best == blocks_.size() || blocks_[i].memory.size() < blocks_[best].memory.size()))
        best = i;
    }
    if (best == blocks_.size()) blocks_.push_back({Buffer<std::byte>(bytes), false});
    blocks_[best].taken = true;
    return Scratch<T>(*this, best, reinterpret_cast<T*>(blocks_[best].memory.data()), size);
  }

  /// Bytes held by the pool, taken or free.
  Index bytes() const {
    Index sum = 0;
    for (const Block& block : blocks_) sum += block.memory.size();
    return sum;
  }
  void release() { blocks_.clear(); }

 private:
  struct Block {
    Buffer<std::byte> memory;
    bool taken = false;
  };
  std::vector<Block> blocks_;
};

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
