#pragma once
#include <cstddef>
#include <cstring>
#include <new>

#include <meso/core/buffer.hpp>
#include <meso/cuda/error.hpp>

namespace meso::cuda {

/// Memory of the current device. Allocating waits for the device.
struct DeviceMemory {
  using Device = Cuda;
  static constexpr std::size_t alignment = 256;  // what cudaMalloc gives
  static constexpr bool copyable = false;        // see copy()

  /// Zeros. Throws: cuda::Error, which names the bytes.
  static void* allocate(std::size_t bytes) {
#ifdef MESO_CUDA_EMULATION
    return std::memset(::operator new(bytes, std::align_val_t(alignment)), 0, bytes);
#else
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), "cudaMalloc of ", bytes, " bytes");
    try {
      check(cudaMemset(memory, 0, bytes), "cudaMemset of ", bytes, " bytes");
      check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    } catch (...) {
      release(memory);
      throw;
    }
    return memory;
#endif
  }
  static void release(void* memory) noexcept {
#ifdef MESO_CUDA_EMULATION
    ::operator delete(memory, std::align_val_t(alignment));
#else
    static_cast<void>(cudaFree(memory));  // a destructor cannot throw; the next call reports the error
#endif
  }
};

/// Owning array in device memory: see meso::Buffer.
template <class T>
using Buffer = meso::Buffer<T, DeviceMemory>;

}  // namespace meso::cuda
