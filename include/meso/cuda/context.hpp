#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <meso/cuda/buffer.hpp>

namespace meso::cuda {

/// Pool of scratch blocks in device memory, as meso::Workspace: a block returns to the pool when its handle dies, and may
/// be handed out again at once, because one context's work runs in the order of its stream.
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

  /// `size` uninitialized elements: the smallest free block that holds them, else a new one.
  template <class T>
  Scratch<T> take(Index size) {
    const Index bytes = (size * static_cast<Index>(sizeof(T)) + 255) / 256 * 256;
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

 private:
  struct Block {
    Buffer<std::byte> memory;
    bool taken = false;
  };
  std::vector<Block> blocks_;
};

/// Options of a Context.
struct ContextOptions {
  int device = 0;     ///< number of the GPU
  bool tf32 = false;  ///< float products may round their factors to TF32 (10 bits): faster, error ≈ 2⁻¹¹
};

/// What an op on a GPU runs with: a stream, a cuBLAS handle and scratch memory. It belongs to the user; one context
/// serves one calling thread at a time. Ops return before the device is done; download() and synchronize() wait.
/// All memory that an op is given must be on the context's device. There is no fallback to the CPU.
/// Throws: cuda::Error with the driver's error when there is no device.
class Context {
 public:
  ContextOptions options;
  Workspace workspace;
#ifdef MESO_CUDA_EMULATION
  ThreadOrder order = ThreadOrder::forward;
  unsigned seed = 1;

  explicit Context(ContextOptions context_options = {}) : options(context_options) {}
  void synchronize() {}
#else
  explicit Context(ContextOptions context_options = {}) : options(context_options) {
    if (const std::string reason = unavailable(); !reason.empty()) throw Error(reason, 0);
    check(cudaSetDevice(options.device), "cudaSetDevice ", options.device);
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    try {
      check(cublasCreate(&products_), "cublasCreate");
      check(cublasSetStream(products_, stream_), "cublasSetStream");
      product_memory_.resize(32 << 20);  // cuBLAS' own recommendation for sm_90; fixed, so that the bits are
      check(cublasSetWorkspace(products_, product_memory_.data(), static_cast<std::size_t>(product_memory_.size())),
            "cublasSetWorkspace");
    } catch (...) {
      if (products_) cublasDestroy(products_);
      cudaStreamDestroy(stream_);
      throw;
    }
  }
  ~Context() {
    cudaStreamSynchronize(stream_);
    cublasDestroy(products_);
    cudaStreamDestroy(stream_);
  }

  cudaStream_t stream() const { return stream_; }
  cublasHandle_t products() const { return products_; }
  /// Waits until the device has done all that was asked; throws the error of a kernel that failed.
  void synchronize() { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }
#endif
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

 private:
#ifndef MESO_CUDA_EMULATION
  cudaStream_t stream_ = nullptr;
  cublasHandle_t products_ = nullptr;
  Buffer<std::byte> product_memory_;
#endif
};

/// Copies `count` elements from the host; they may change as soon as it returns.
template <class T>
void upload(Context& context, const T* from, Index count, T* to) {
  if (count == 0) return;
#ifdef MESO_CUDA_EMULATION
  static_cast<void>(context);
  std::memcpy(static_cast<void*>(to), static_cast<const void*>(from), sizeof(T) * static_cast<std::size_t>(count));
#else
  check(
      cudaMemcpyAsync(to, from, sizeof(T) * static_cast<std::size_t>(count), cudaMemcpyHostToDevice, context.stream()),
      "upload of ", count, " elements");
#endif
}

/// Copies `count` elements to the host, and waits for them.
template <class T>
void download(Context& context, const T* from, Index count, T* to) {
  if (count == 0) return;
#ifdef MESO_CUDA_EMULATION
  static_cast<void>(context);
  std::memcpy(static_cast<void*>(to), static_cast<const void*>(from), sizeof(T) * static_cast<std::size_t>(count));
#else
  check(
      cudaMemcpyAsync(to, from, sizeof(T) * static_cast<std::size_t>(count), cudaMemcpyDeviceToHost, context.stream()),
      "download of ", count, " elements");
  context.synchronize();
#endif
}

/// Copies `count` elements within the device.
template <class T>
void copy(Context& context, const T* from, Index count, T* to) {
  if (count == 0) return;
#ifdef MESO_CUDA_EMULATION
  static_cast<void>(context);
  std::memcpy(static_cast<void*>(to), static_cast<const void*>(from), sizeof(T) * static_cast<std::size_t>(count));
#else
  check(cudaMemcpyAsync(to, from, sizeof(T) * static_cast<std::size_t>(count), cudaMemcpyDeviceToDevice,
                        context.stream()),
        "copy of ", count, " elements");
#endif
}

/// Sets `count` elements to zero.
template <class T>
void clear(Context& context, T* data, Index count) {
  if (count == 0) return;
#ifdef MESO_CUDA_EMULATION
  static_cast<void>(context);
  std::memset(static_cast<void*>(data), 0, sizeof(T) * static_cast<std::size_t>(count));
#else
  check(cudaMemsetAsync(data, 0, sizeof(T) * static_cast<std::size_t>(count), context.stream()), "clear of ", count,
        " elements");
#endif
}

}  // namespace meso::cuda
