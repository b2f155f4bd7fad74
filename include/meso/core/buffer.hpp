#pragma once
#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include <meso/core/view.hpp>

namespace meso {

/// Alignment in bytes of every buffer that the library owns: a cache line, and the widest SIMD register.
inline constexpr std::size_t alignment = 64;

/// Number of elements after which the next 64-byte boundary lies: `count` rounded up.
template <class T>
constexpr Index padded(Index count) {
  constexpr Index step = static_cast<Index>(alignment / sizeof(T) > 0 ? alignment / sizeof(T) : 1);
  return (count + step - 1) / step * step;
}

/// Owning, 64-byte aligned, zero-initialized array of trivial scalars. Copies are deep.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(Index size) { resize(size); }
  Buffer(const Buffer& other) : Buffer(other.size_) { std::copy(other.data(), other.data() + size_, data()); }
  Buffer(Buffer&& other) noexcept
      : data_(std::move(other.data_)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  Buffer& operator=(Buffer other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }

  /// Grows (contents lost, zeroed) when `size` exceeds the capacity; otherwise keeps memory and contents.
  void resize(Index size) {
    if (size > capacity_) {
      data_.reset();
      data_.reset(static_cast<T*>(
          ::operator new(sizeof(T) * static_cast<std::size_t>(padded<T>(size)), std::align_val_t(alignment))));
      capacity_ = padded<T>(size);
      std::fill(data_.get(), data_.get() + capacity_, T());
    }
    size_ = size;
  }
  void fill(T value) { std::fill(data_.get(), data_.get() + size_, value); }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  Index size() const { return size_; }
  View<T> view(Index rows, Index cols) { return {data(), rows, cols, cols}; }
  View<const T> view(Index rows, Index cols) const { return {data(), rows, cols, cols}; }

 private:
  struct Free {
    void operator()(T* p) const { ::operator delete(p, std::align_val_t(alignment)); }
  };
  std::unique_ptr<T, Free> data_;
  Index size_ = 0;
  Index capacity_ = 0;
};

}  // namespace meso
