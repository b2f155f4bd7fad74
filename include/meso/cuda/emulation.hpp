#pragma once
// CUDA's device language on the host, for one kernel source: each CUDA thread of a block is a fiber. Emulated: the built-in
// indices, dynamic shared memory, __syncthreads, __syncwarp, shuffles, votes, __nv_bfloat16 and the 16×16×16 subset of
// wmma. Not emulated: CUB, cooperative groups, cp.async, mma and wgmma in PTX, memory order between blocks.
// Shared memory starts as NaN. A barrier that not all threads reach, a shuffle from a lane outside its mask and a
// misaligned wmma load end the launch with EmulationFault.
// Blocks and threads run one after another, in an order of choice: a missing barrier shows in one of the three.
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#if !defined(__x86_64__) || defined(MESO_EMULATION_UCONTEXT)
#define MESO_EMULATION_USES_UCONTEXT
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#define MESO_EMULATION_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MESO_EMULATION_ASAN
#endif
#endif
#ifdef MESO_EMULATION_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define MESO_UNROLL
#define MESO_UNROLL_BY(n)
#define MESO_DYNAMIC_SHARED(name) unsigned char* const name = ::meso::cuda::emulation::current().shared

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

namespace meso::cuda {

/// A rule of CUDA that a kernel broke in emulation.
class EmulationFault : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// In which order the threads of a block, and the blocks of a grid, take their turns.
enum class ThreadOrder { forward, reverse, random };

/// Rounds to the nearest bfloat16, ties to even, as __nv_bfloat16 does.
struct bf16 {
  std::uint16_t bits;

  bf16() = default;
  explicit bf16(float value) {
    std::uint32_t u;
    std::memcpy(&u, &value, sizeof u);
    bits = value != value ? std::uint16_t{0x7FFF} : static_cast<std::uint16_t>((u + 0x7FFF + (u >> 16 & 1)) >> 16);
  }
  explicit operator float() const {
    const std::uint32_t u = std::uint32_t{bits} << 16;
    float value;
    std::memcpy(&value, &u, sizeof u);
    return value;
  }
};

namespace emulation {

enum class Status : unsigned char { fresh, ready, at_block, at_warp, done };

#ifndef MESO_EMULATION_USES_UCONTEXT
extern "C" void meso_emulation_switch(void** save, void* load);
asm(R"(
.weak meso_emulation_switch
.type meso_emulation_switch,@function
meso_emulation_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp,(%rdi); movq %rsi,%rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
.size meso_emulation_switch,.-meso_emulation_switch
)");
struct Registers {
  void* stack_pointer = nullptr;
};
inline void switch_registers(Registers& from, Registers& to) {
  meso_emulation_switch(&from.stack_pointer, to.stack_pointer);
}
inline void prepare_registers(Registers& r, char* stack, std::size_t size, void (*entry)()) {
  void** top = reinterpret_cast<void**>(reinterpret_cast<std::uintptr_t>(stack + size) & ~std::uintptr_t{15});
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  r.stack_pointer = top;
}
#else
struct Registers {
  ucontext_t context{};
};
inline void switch_registers(Registers& from, Registers& to) { swapcontext(&from.context, &to.context); }
inline void prepare_registers(Registers& r, char* stack, std::size_t size, void (*entry)()) {
  getcontext(&r.context);
  r.context.uc_stack.ss_sp = stack;
  r.context.uc_stack.ss_size = size;
  r.context.uc_link = nullptr;
  makecontext(&r.context, entry, 0);
}
#endif

/// A stack with a guard page below it.
class Fiber {
 public:
  static constexpr std::size_t size = 256 << 10, guard = 4096;

  Fiber() {
    void* const memory =
        mmap(nullptr, size + guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<char*>(memory);
    mprotect(memory_, guard, PROT_NONE);
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber() { munmap(memory_, size + guard); }
  char* stack() const { return memory_ + guard; }

  Registers registers;

 private:
  char* memory_;
};

/// Fibers that launches of this host thread share.
inline std::vector<std::unique_ptr<Fiber>>& fibers() {
  static thread_local std::vector<std::unique_ptr<Fiber>> pool;
  return pool;
}

struct Warp {
  unsigned arrived = 0;
  void* slots[32];  // each lane's argument block, on its own stack
};

/// One block of threads, run again for every block of a grid.
class Block {
 public:
  dim3 grid, size;
  uint3 block{}, thread{};
  unsigned char* shared = nullptr;

  Block(dim3 grid_size, dim3 block_size, std::size_t shared_bytes, ThreadOrder order, unsigned seed)
      : grid(grid_size), size(block_size), order_(order), random_(seed), count_(size.x * size.y * size.z) {
    status_.resize(count_);
    site_.resize(count_);
    warps_.resize((count_ + 31) / 32);
    turns_.resize(count_);
    for (unsigned i = 0; i < count_; ++i) turns_[i] = order == ThreadOrder::reverse ? count_ - 1 - i : i;
    memory_.resize(shared_bytes + 128);
    shared = reinterpret_cast<unsigned char*>((reinterpret_cast<std::uintptr_t>(memory_.data()) + 127) &
                                              ~std::uintptr_t{127});
#ifdef MESO_EMULATION_ASAN
    __asan_poison_memory_region(shared + shared_bytes,
                                static_cast<std::size_t>(memory_.data() + memory_.size() - shared) - shared_bytes);
#endif
    shared_bytes_ = shared_bytes;
    while (fibers().size() < count_) fibers().push_back(std::make_unique<Fiber>());
  }
  ~Block() {
#ifdef MESO_EMULATION_ASAN
    __asan_unpoison_memory_region(memory_.data(), memory_.size());
#endif
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  template <class Body>
  void run(uint3 index, Body& body) {
    block = index;
    body_ = &body;
    call_ = [](void* b) { (*static_cast<Body*>(b))(); };
    std::memset(shared, 0xFF, shared_bytes_);  // NaN in every floating-point type
    std::fill(status_.begin(), status_.end(), Status::fresh);
    for (Warp& w : warps_) w.arrived = 0;
    live_ = count_;
    waiting_ = 0;
    while (live_ > 0) {
      bool moved = false;
      if (order_ == ThreadOrder::random) std::shuffle(turns_.begin(), turns_.end(), random_);
      for (const unsigned i : turns_) {
        if (status_[i] != Status::fresh && status_[i] != Status::ready) continue;
        moved = true;
        resume(i);
        if (status_[i] == Status::done) --live_;
        if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
      }
      if (waiting_ > 0 && waiting_ == live_) {
        release_block();
        moved = true;
      }
      if (live_ > 0 && !moved) fail("deadlock: not all threads reach a barrier");
    }
  }

  unsigned lane() const { return current_ & 31; }

  /// `line` tells barriers apart; an address would not, because compilers duplicate code.
  void sync(int line) {
    status_[current_] = Status::at_block;
    site_[current_] = line;
    ++waiting_;
    yield();
  }

  /// All lanes of `mask` come with an argument block; the last one runs f(slots, mask) for all.
  template <class F>
  void together(unsigned mask, void* argument, F&& f) {
    const unsigned base = current_ & ~31u, present = count_ - base;
    if (present < 32) mask &= (1u << present) - 1;
    Warp& warp = warps_[current_ >> 5];
    if (!(mask >> lane() & 1)) fail("a lane is not in its own mask");
    for (unsigned l = 0; l < 32; ++l)
      if ((mask >> l & 1) && status_[base + l] == Status::done) fail("a mask names a lane that has exited");
    warp.slots[lane()] = argument;
    warp.arrived |= 1u << lane();
    if ((warp.arrived & mask) == mask) {
      f(warp.slots, mask);
      warp.arrived &= ~mask;
      for (unsigned l = 0; l < 32; ++l)
        if ((mask >> l & 1) && base + l != current_) status_[base + l] = Status::ready;
    } else {
      status_[current_] = Status::at_warp;
      yield();
    }
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw EmulationFault("emulation: " + what + " (block " + std::to_string(block.x) + ", " + std::to_string(block.y) +
                         ", " + std::to_string(block.z) + ", thread " + std::to_string(current_) + ")");
  }

 private:
  static void entry();

  void resume(unsigned i) {
    current_ = i;
    thread = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
    Fiber& fiber = *fibers()[i];
    if (status_[i] == Status::fresh) {
#ifdef MESO_EMULATION_ASAN
      __asan_unpoison_memory_region(fiber.stack(), Fiber::size);
#endif
      prepare_registers(fiber.registers, fiber.stack(), Fiber::size, &Block::entry);
    }
    status_[i] = Status::ready;
#ifdef MESO_EMULATION_ASAN
    void* fake;
    __sanitizer_start_switch_fiber(&fake, fiber.stack(), Fiber::size);
#endif
    switch_registers(scheduler_, fiber.registers);
#ifdef MESO_EMULATION_ASAN
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
  }
  void yield() {
    Fiber& fiber = *fibers()[current_];
#ifdef MESO_EMULATION_ASAN
    void* fake;
    __sanitizer_start_switch_fiber(&fake, host_stack_, host_size_);
#endif
    switch_registers(fiber.registers, scheduler_);
#ifdef MESO_EMULATION_ASAN
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
  }
  void release_block() {
    int line = 0;
    for (unsigned i = 0; i < count_; ++i) {
      current_ = i;
      if (status_[i] == Status::done) fail("__syncthreads after a thread has exited");
      if (line && line != site_[i]) fail("threads wait at different __syncthreads");
      line = site_[i];
    }
    std::fill(status_.begin(), status_.end(), Status::ready);
    waiting_ = 0;
  }

  ThreadOrder order_;
  std::mt19937 random_;
  unsigned count_, live_ = 0, waiting_ = 0, current_ = 0;
  std::vector<Status> status_;
  std::vector<int> site_;
  std::vector<Warp> warps_;
  std::vector<unsigned> turns_;
  std::vector<unsigned char> memory_;
  std::size_t shared_bytes_ = 0;
  Registers scheduler_;
  void* body_ = nullptr;
  void (*call_)(void*) = nullptr;
  std::exception_ptr error_;
#ifdef MESO_EMULATION_ASAN
  const void* host_stack_ = nullptr;
  std::size_t host_size_ = 0;
#endif
};

/// The block that runs on this host thread.
inline Block*& current_pointer() {
  static thread_local Block* block = nullptr;
  return block;
}
inline Block& current() { return *current_pointer(); }

inline void Block::entry() {
  Block& b = current();
#ifdef MESO_EMULATION_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &b.host_stack_, &b.host_size_);
#endif
  try {
    b.call_(b.body_);
  } catch (...) {
    if (!b.error_) b.error_ = std::current_exception();
  }
  b.status_[b.current_] = Status::done;
  b.yield();
}

template <class T>
T shuffle(unsigned mask, T value, int source) {  // source: a lane of the warp
  struct Argument {
    T in, out;
    int source;
  } a{value, value, source};
  current().together(mask, &a, [](void** slots, unsigned m) {
    for (unsigned l = 0; l < 32; ++l) {
      if (!(m >> l & 1)) continue;
      Argument& x = *static_cast<Argument*>(slots[l]);
      if (!(m >> x.source & 1)) current().fail("a shuffle reads a lane outside its mask");
      x.out = static_cast<Argument*>(slots[x.source])->in;
    }
  });
  return a.out;
}

inline unsigned ballot(unsigned mask, bool predicate) {
  struct Argument {
    bool in;
    unsigned out;
  } a{predicate, 0};
  current().together(mask, &a, [](void** slots, unsigned m) {
    unsigned votes = 0;
    for (unsigned l = 0; l < 32; ++l)
      if (m >> l & 1) votes |= static_cast<unsigned>(static_cast<Argument*>(slots[l])->in) << l;
    for (unsigned l = 0; l < 32; ++l)
      if (m >> l & 1) static_cast<Argument*>(slots[l])->out = votes;
  });
  return a.out;
}

/// Runs kernel(arguments...) for every thread of the grid.
template <class... P, class... A>
void launch(ThreadOrder order, unsigned seed, void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes,
            A&&... arguments) {
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  const std::tuple<P...> values(static_cast<P>(arguments)...);
  auto body = [&] { std::apply(kernel, values); };
  Block runner(grid, block, shared_bytes, order, seed);
  Block* const outer = std::exchange(current_pointer(), &runner);
  std::vector<std::uint64_t> turns(blocks);
  for (std::uint64_t i = 0; i < blocks; ++i) turns[i] = order == ThreadOrder::reverse ? blocks - 1 - i : i;
  if (order == ThreadOrder::random) std::shuffle(turns.begin(), turns.end(), std::mt19937(seed));
  try {
    for (const std::uint64_t i : turns)
      runner.run({static_cast<unsigned>(i % grid.x), static_cast<unsigned>(i / grid.x % grid.y),
                  static_cast<unsigned>(i / (std::uint64_t{grid.x} * grid.y))},
                 body);
  } catch (...) {
    current_pointer() = outer;
    throw;
  }
  current_pointer() = outer;
}

}  // namespace emulation
}  // namespace meso::cuda

#define threadIdx (::meso::cuda::emulation::current().thread)
#define blockIdx (::meso::cuda::emulation::current().block)
#define blockDim (::meso::cuda::emulation::current().size)
#define gridDim (::meso::cuda::emulation::current().grid)
#define __syncthreads() ::meso::cuda::emulation::current().sync(__LINE__)

inline void __syncwarp(unsigned mask = ~0u) {
  int nothing = 0;
  meso::cuda::emulation::current().together(mask, &nothing, [](void**, unsigned) {});
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source) {
  return meso::cuda::emulation::shuffle(mask, value, source & 31);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return meso::cuda::emulation::shuffle(mask, value, static_cast<int>(meso::cuda::emulation::current().lane()) ^ bits);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return meso::cuda::emulation::ballot(mask, predicate != 0);
}

/// The 16×16×16 subset of nvcuda::wmma; which lane holds which element is, on purpose, not what the hardware does.
namespace nvcuda::wmma {

struct row_major {};
struct col_major {};
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  static_assert(M == 16 && N == 16 && K == 16, "only 16×16×16 is emulated");
  static constexpr int num_elements = 8;
  T x[8];
};

namespace detail {
// Element e of a tile is x[e % 8] of lane owner(e): a permutation that no kernel may rely on.
constexpr int element(int lane, int i) { return (lane * 8 + i) * 37 % 256; }
struct Place {
  int lane, index;
};
constexpr Place place(int e) {
  const int k = e * 173 % 256;  // 37·173 = 1 mod 256
  return {k / 8, k % 8};
}
template <class T>
void check(const T* p, unsigned stride) {
  if (stride * sizeof(T) % 16 != 0 || reinterpret_cast<std::uintptr_t>(p) % 32 != 0)
    meso::cuda::emulation::current().fail(
        "wmma: a stride that is no multiple of 16 bytes or a pointer not aligned to 32");
}
inline int lane() { return static_cast<int>(meso::cuda::emulation::current().lane()); }
}  // namespace detail

template <class Use, class T, class Layout, class V>
void fill_fragment(fragment<Use, 16, 16, 16, T, Layout>& f, V value) {
  for (T& e : f.x) e = static_cast<T>(value);
}
template <class Use, class T, class Layout>
void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout>& f, const T* p, unsigned stride) {
  detail::check(p, stride);
  __syncwarp();
  for (int i = 0; i < 8; ++i) {
    const int e = detail::element(detail::lane(), i), r = e / 16, c = e % 16;
    f.x[i] =
        std::is_same_v<Layout, row_major> ? p[r * static_cast<int>(stride) + c] : p[c * static_cast<int>(stride) + r];
  }
}
template <class T>
void load_matrix_sync(fragment<accumulator, 16, 16, 16, T>& f, const T* p, unsigned stride, layout_t layout) {
  detail::check(p, stride);
  __syncwarp();
  for (int i = 0; i < 8; ++i) {
    const int e = detail::element(detail::lane(), i), r = e / 16, c = e % 16;
    f.x[i] = layout == mem_row_major ? p[r * static_cast<int>(stride) + c] : p[c * static_cast<int>(stride) + r];
  }
}
template <class T>
void store_matrix_sync(T* p, const fragment<accumulator, 16, 16, 16, T>& f, unsigned stride, layout_t layout) {
  detail::check(p, stride);
  for (int i = 0; i < 8; ++i) {
    const int e = detail::element(detail::lane(), i), r = e / 16, c = e % 16;
    p[layout == mem_row_major ? r * static_cast<int>(stride) + c : c * static_cast<int>(stride) + r] = f.x[i];
  }
  __syncwarp();
}
template <class TA, class LA, class TB, class LB, class TC>
void mma_sync(fragment<accumulator, 16, 16, 16, TC>& d, const fragment<matrix_a, 16, 16, 16, TA, LA>& a,
              const fragment<matrix_b, 16, 16, 16, TB, LB>& b, const fragment<accumulator, 16, 16, 16, TC>& c) {
  struct Argument {
    TC* d;
    const TA* a;
    const TB* b;
    const TC* c;
  } mine{d.x, a.x, b.x, c.x};
  meso::cuda::emulation::current().together(~0u, &mine, [](void** slots, unsigned) {
    TC left[256], right[256], out[256];
    for (int e = 0; e < 256; ++e) {
      const detail::Place p = detail::place(e);
      const Argument& from = *static_cast<Argument*>(slots[p.lane]);
      left[e] = static_cast<TC>(from.a[p.index]);
      right[e] = static_cast<TC>(from.b[p.index]);
      out[e] = from.c[p.index];
    }
    for (int i = 0; i < 16; ++i)
      for (int k = 0; k < 16; ++k)
        for (int j = 0; j < 16; ++j) out[i * 16 + j] += left[i * 16 + k] * right[k * 16 + j];
    for (int e = 0; e < 256; ++e) {
      const detail::Place p = detail::place(e);
      static_cast<Argument*>(slots[p.lane])->d[p.index] = out[e];
    }
  });
}

}  // namespace nvcuda::wmma
