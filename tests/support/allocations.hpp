#pragma once
// Replaces operator new by one that counts; include it in one source of a binary. Eigen's products and OpenMP take what they
// need from malloc, which is not counted. ThreadSanitizer has an operator new of its own: there nothing is counted.
#include <atomic>
#include <cstdlib>
#include <new>

#ifdef __has_feature
#if __has_feature(thread_sanitizer)
#define MESO_TEST_OWN_OPERATOR_NEW 0
#endif
#endif
#ifndef MESO_TEST_OWN_OPERATOR_NEW
#define MESO_TEST_OWN_OPERATOR_NEW 1
#endif

namespace meso::test {

inline constexpr bool counts_allocations = MESO_TEST_OWN_OPERATOR_NEW == 1;
inline std::atomic<long> allocations{0};

inline void* counted(std::size_t size, std::size_t alignment = alignof(std::max_align_t)) {
  ++allocations;
  void* p = std::aligned_alloc(alignment, (size + alignment) / alignment * alignment);
  if (!p) throw std::bad_alloc();
  return p;
}

}  // namespace meso::test

#if MESO_TEST_OWN_OPERATOR_NEW
void* operator new(std::size_t size) { return meso::test::counted(size); }
void* operator new[](std::size_t size) { return meso::test::counted(size); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return meso::test::counted(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return meso::test::counted(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return meso::test::counted(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return meso::test::counted(size); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
#endif
