#pragma once
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include <meso/core/buffer.hpp>
#include <meso/cuda/error.hpp>

namespace meso::cuda {

/// Owning array of trivial scalars in device memory, zero at the start. It moves and does not copy: see copy().
/// Throws: cuda::Error, which names the bytes, when memory runs out.
template <class T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Buffer() = default;
  explicit Buffer(Index size) { resize(size); }
  Buffer(Buffer&& other) noexcept
      : data_(std::move(other.data_)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }

  /// Grows (contents lost, zeroed) when `size` exceeds the capacity; otherwise keeps memory and contents.
  /// Growing waits for the device.
  void resize(Index size) {
    if (size > capacity_) {
      data_.reset();
      const std::size_t bytes = sizeof(T) * static_cast<std::size_t>(padded<T>(size));
#ifdef MESO_CUDA_EMULATION
      data_.reset(static_cast<T*>(::operator new(bytes, std::align_val_t(256))));
      std::memset(static_cast<void*>(data_.get()), 0, bytes);
#else
      void* memory = nullptr;
      check(cudaMalloc(&memory, bytes), "cudaMalloc of ", bytes, " bytes");
      data_.reset(static_cast<T*>(memory));
      check(cudaMemset(memory, 0, bytes), "cudaMemset of ", bytes, " bytes");
      check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
#endif
      capacity_ = padded<T>(size);
    }
    size_ = size;
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  Index size() const { return size_; }
  View<T> view(Index rows, Index cols) { return {data(), rows, cols, cols}; }
  View<const T> view(Index rows, Index cols) const { return {data(), rows, cols, cols}; }

 private:
  struct Free {
    void operator()(T* p) const {
#ifdef MESO_CUDA_EMULATION
      ::operator delete(static_cast<void*>(p), std::align_val_t(256));
#else
      static_cast<void>(cudaFree(p));  // a destructor cannot throw; the next call reports the error
#endif
    }
  };
  std::unique_ptr<T, Free> data_;
  Index size_ = 0;
  Index capacity_ = 0;
};

}  // namespace meso::cuda
