// A data race that ThreadSanitizer must report: the control of the tier that runs the threaded tests under it.
#include <atomic>
#include <meso/core/context.hpp>
#include <thread>

int main() {
  meso::CpuContext<> context(2);
  volatile long shared = 0;
  std::atomic<int> started{0};  // relaxed: it makes both threads take part and orders nothing
  meso::parallel_for(context, 2, [&](meso::Index, meso::Index) {
    started.fetch_add(1, std::memory_order_relaxed);
    while (started.load(std::memory_order_relaxed) < 2) std::this_thread::yield();
    for (int i = 0; i < 1000; ++i) {
      shared = shared + 1;
      if (i % 10 == 0) std::this_thread::yield();  // the threads take turns even on one busy core
    }
  });
  return shared == 0;
}
