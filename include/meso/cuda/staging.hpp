#pragma once
#include <array>
#include <cstddef>
#include <cstring>

#include <meso/cuda/buffer.hpp>

namespace meso::cuda {

/// Page-locked memory of the host, which the device copies from while the host goes on.
struct PinnedMemory {
  using Device = Cpu;
  static constexpr std::size_t alignment = meso::alignment;
  static constexpr bool copyable = false;

  /// Zeros. Throws: cuda::Error, which names the bytes.
  static void* allocate(std::size_t bytes) {
#ifdef MESO_CUDA_EMULATION
    return HostMemory::allocate(bytes);
#else
    void* memory = nullptr;
    check(cudaMallocHost(&memory, bytes), "cudaMallocHost of ", bytes, " bytes");
    std::memset(memory, 0, bytes);
    return memory;
#endif
  }
  static void release(void* memory) noexcept {
#ifdef MESO_CUDA_EMULATION
    HostMemory::release(memory);
#else
    static_cast<void>(cudaFreeHost(memory));  // a destructor cannot throw; the next call reports the error
#endif
  }
};

/// A ring of page-locked blocks for small uploads, those of tokens and targets: the driver may make a copy from other
/// memory wait for the stream. A block is written again when the device has read it.
class Staging {
 public:
  static constexpr std::size_t blocks = 8;       ///< more than the uploads of a training step
  static constexpr std::size_t most = 4u << 20;  ///< bytes of an upload; others go directly

  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// The next block with `bytes` of `from` in it; waits for the device if it has not read the block yet.
  const std::byte* fill(const void* from, std::size_t bytes) {
    next_ = (next_ + 1) % blocks;
    Block& block = ring_[next_];
    block.wait();
    block.memory.resize(static_cast<Index>(bytes));
    std::memcpy(block.memory.data(), from, bytes);
    return block.memory.data();
  }
#ifndef MESO_CUDA_EMULATION
  /// Marks that `stream` reads the block of the last fill() no later than here.
  void reading(cudaStream_t stream) { check(cudaEventRecord(ring_[next_].read, stream), "cudaEventRecord"); }
#endif

 private:
  struct Block {
    meso::Buffer<std::byte, PinnedMemory> memory;
#ifdef MESO_CUDA_EMULATION
    void wait() {}
#else
    cudaEvent_t read = nullptr;

    Block() = default;
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    ~Block() {
      if (read) cudaEventDestroy(read);
    }
    void wait() {
      if (!read) check(cudaEventCreateWithFlags(&read, cudaEventDisableTiming), "cudaEventCreate");
      check(cudaEventSynchronize(read), "cudaEventSynchronize");
    }
#endif
  };
  std::array<Block, blocks> ring_;
  std::size_t next_ = 0;
};

}  // namespace meso::cuda
