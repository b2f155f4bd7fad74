#pragma once
#include <cstddef>
#include <cstring>

#include <meso/core/workspace.hpp>
#include <meso/cuda/staging.hpp>

namespace meso::cuda {

/// Pool of scratch blocks in device memory: see meso::MemoryPool.
using Workspace = MemoryPool<DeviceMemory>;

/// Options of a Context.
struct ContextOptions {
  int device = 0;     ///< number of the GPU
  bool tf32 = false;  ///< float products may round their factors to TF32 (10 bits): faster, error ≈ 2⁻¹¹
};

/// What an op on a GPU runs with: a stream, a cuBLAS handle and scratch memory. It belongs to the user; one context
/// serves the thread that made it; the device that it was made for must be that thread's current one (the constructor makes
/// it so; see cudaSetDevice). Ops return before the device is done; download() and synchronize() wait.
/// All memory that an op is given must be on the context's device. There is no fallback to the CPU.
/// Throws: cuda::Error with the driver's error when there is no device.
class Context {
 public:
  ContextOptions options;
  Workspace workspace;
  Staging staging;
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

/// Copies `count` elements from the host, from pageable memory; they may change as soon as it returns. Small ones
/// (Staging::most), from any memory, do not wait for the device.
template <class T>
void upload(Context& context, const T* from, Index count, T* to) {
  if (count == 0) return;
  const std::size_t bytes = sizeof(T) * static_cast<std::size_t>(count);
  const bool staged = bytes <= Staging::most;
  const void* const source = staged ? context.staging.fill(from, bytes) : static_cast<const void*>(from);
#ifdef MESO_CUDA_EMULATION
  std::memcpy(static_cast<void*>(to), source, bytes);
#else
  check(cudaMemcpyAsync(to, source, bytes, cudaMemcpyHostToDevice, context.stream()), "upload of ", count, " elements");
  if (staged) context.staging.reading(context.stream());
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
