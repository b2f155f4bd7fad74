#pragma once
// A block of threads, each a fiber, run for every block of a grid; barriers, shuffles and votes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <meso/cuda/emulation/fiber.hpp>

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

namespace emulation {

enum class Status : unsigned char { fresh, ready, at_block, at_warp, done };

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
    sanitizer::poison(shared + shared_bytes,
                      static_cast<std::size_t>(memory_.data() + memory_.size() - shared) - shared_bytes);
    shared_bytes_ = shared_bytes;
    while (fibers().size() < count_) fibers().push_back(std::make_unique<Fiber>());
  }
  ~Block() { sanitizer::unpoison(memory_.data(), memory_.size()); }
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
    any_ = false;
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

  /// A barrier that tells whether any thread came with true.
  int sync_or(int line, bool predicate) {
    any_ = any_ || predicate;
    sync(line);
    const bool any = any_;
    sync(line);
    any_ = false;
    sync(line);
    return any;
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
      sanitizer::unpoison(fiber.stack(), Fiber::size);
      prepare_registers(fiber.registers, fiber.stack(), Fiber::size, &Block::entry);
    }
    status_[i] = Status::ready;
    void* const fake = sanitizer::start(fiber.stack(), Fiber::size);
    switch_registers(scheduler_, fiber.registers);
    sanitizer::finish(fake);
  }
  void yield() {
    Fiber& fiber = *fibers()[current_];
    void* const fake = sanitizer::start(host_stack_, host_size_);
    switch_registers(fiber.registers, scheduler_);
    sanitizer::finish(fake);
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
  bool any_ = false;
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
  const void* host_stack_ = nullptr;
  std::size_t host_size_ = 0;
};

/// The block that runs on this host thread.
inline Block*& current_pointer() {
  static thread_local Block* block = nullptr;
  return block;
}
inline Block& current() { return *current_pointer(); }

inline void Block::entry() {
  Block& b = current();
  sanitizer::enter(b.host_stack_, b.host_size_);
  try {
    b.call_(b.body_);
  } catch (...) {
    if (!b.error_) b.error_ = std::current_exception();
  }
  b.status_[b.current_] = Status::done;
  b.yield();
}

inline void sync_warp(unsigned mask) {
  int nothing = 0;
  current().together(mask, &nothing, [](void**, unsigned) {});
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
