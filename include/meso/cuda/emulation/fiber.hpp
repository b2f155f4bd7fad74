#pragma once
// Fibers: registers that are saved and loaded by hand where the processor is known, by ucontext elsewhere or with
// MESO_EMULATION_UCONTEXT; and what AddressSanitizer must be told of them.
#include <sys/mman.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

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

namespace meso::cuda::emulation {

#if defined(__x86_64__) && !defined(MESO_EMULATION_UCONTEXT)
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

/// What AddressSanitizer must be told; nothing without it.
namespace sanitizer {
#ifdef MESO_EMULATION_ASAN
inline void poison(const void* memory, std::size_t bytes) { __asan_poison_memory_region(memory, bytes); }
inline void unpoison(const void* memory, std::size_t bytes) { __asan_unpoison_memory_region(memory, bytes); }
/// Before a switch to the stack [bottom, bottom + size); after it, back here: finish(the pointer that start returned).
inline void* start(const void* bottom, std::size_t size) {
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, bottom, size);
  return fake;
}
inline void finish(void* fake) { __sanitizer_finish_switch_fiber(fake, nullptr, nullptr); }
/// First on a new stack: where the one that was left lies.
inline void enter(const void*& bottom, std::size_t& size) { __sanitizer_finish_switch_fiber(nullptr, &bottom, &size); }
#else
inline void poison(const void*, std::size_t) {}
inline void unpoison(const void*, std::size_t) {}
inline void* start(const void*, std::size_t) { return nullptr; }
inline void finish(void*) {}
inline void enter(const void*&, std::size_t&) {}
#endif
}  // namespace sanitizer

}  // namespace meso::cuda::emulation
