#pragma once
#include <cstddef>
#include <utility>
#include <vector>

#include <meso/core/buffer.hpp>

namespace meso {

/// Pool of scratch blocks. A block taken by `take` returns to the pool when its handle dies, so that after the first
/// step of a loop every request is served from memory that is there already.
/// Not thread-safe: ops take what they need before they start their workers. On a device a block may be handed out again
/// at once, because one context's work runs in the order of its stream.
template <class Memory>
class MemoryPool {
 public:
  template <class T>
  class Scratch {
   public:
    Scratch(MemoryPool& owner, std::size_t slot, T* data, Index size)
        : owner_(&owner), slot_(slot), data_(data), size_(size) {}
    Scratch(Scratch&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), slot_(other.slot_), data_(other.data_), size_(other.size_) {}
    Scratch& operator=(Scratch&&) = delete;
    ~Scratch() {
      if (owner_) owner_->blocks_[slot_].taken = false;
    }
    T* data() const { return data_; }
    Index size() const { return size_; }
    View<T, typename Memory::Device> view(Index rows, Index cols) const { return {data_, rows, cols, cols}; }

   private:
    MemoryPool* owner_;
    std::size_t slot_;
    T* data_;
    Index size_;
  };

  /// `size` uninitialized, aligned elements: the smallest free block that holds them, else a new one.
  template <class T>
  Scratch<T> take(Index size) {
    const Index bytes = padded<std::byte, Memory::alignment>(size * static_cast<Index>(sizeof(T)));
    std::size_t best = blocks_.size();
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (!blocks_[i].taken && blocks_[i].memory.size() >= bytes &&
          (best == blocks_.size() || blocks_[i].memory.size() < blocks_[best].memory.size()))
        best = i;
    }
    if (best == blocks_.size()) blocks_.push_back({Buffer<std::byte, Memory>(bytes), false});
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
    Buffer<std::byte, Memory> memory;
    bool taken = false;
  };
  std::vector<Block> blocks_;
};

/// The pool of the host.
using Workspace = MemoryPool<HostMemory>;

}  // namespace meso
