#pragma once
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include <meso/core/view.hpp>

namespace meso {

/// Alignment in bytes of every buffer that the library owns on the host: a cache line, and the widest SIMD register.
inline constexpr std::size_t alignment = 64;

/// Number of elements after which the next boundary of `bytes` lies: `count` rounded up.
template <class T, std::size_t bytes = alignment>
constexpr Index padded(Index count) {
  constexpr Index step = static_cast<Index>(bytes / sizeof(T) > 0 ? bytes / sizeof(T) : 1);
  return (count + step - 1) / step * step;
}

/// Memory of the host: the allocator of Buffer and Workspace. Another one has the same members.
struct HostMemory {
  using Device = Cpu;  ///< tag of views of it
  static constexpr std::size_t alignment = meso::alignment;
  static constexpr bool copyable = true;  ///< by a copy of the owner

  /// Zeros. Throws: std::bad_alloc.
  static void* allocate(std::size_t bytes) {
    return std::memset(::operator new(bytes, std::align_val_t(alignment)), 0, bytes);
  }
  static void release(void* memory) noexcept { ::operator delete(memory, std::align_val_t(alignment)); }
};

/// Owning, aligned array of trivial scalars, zero at the start. On the host a copy is deep; elsewhere it moves alone.
/// Throws: what Memory throws when memory runs out.
template <class T, class Memory = HostMemory>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using Device = typename Memory::Device;

  Buffer() = default;
  explicit Buffer(Index size) { resize(size); }
  Buffer(const Buffer& other) requires(Memory::copyable) : Buffer(other.size_) {
    std::copy(other.data(), other.data() + size_, data());
  }
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
      const Index room = padded<T, Memory::alignment>(size);
      size_ = capacity_ = 0;
      data_.reset();
      data_.reset(static_cast<T*>(Memory::allocate(sizeof(T) * static_cast<std::size_t>(room))));
      capacity_ = room;
    }
    size_ = size;
  }
  void fill(T value) requires(std::is_same_v<Device, Cpu>) { std::fill(data_.get(), data_.get() + size_, value); }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  Index size() const { return size_; }
  View<T, Device> view(Index rows, Index cols) { return {data(), rows, cols, cols}; }
  View<const T, Device> view(Index rows, Index cols) const { return {data(), rows, cols, cols}; }

 private:
  struct Free {
    void operator()(T* p) const { Memory::release(p); }
  };
  std::unique_ptr<T, Free> data_;
  Index size_ = 0;
  Index capacity_ = 0;
};

}  // namespace meso
