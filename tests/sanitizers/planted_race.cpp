// A data race that ThreadSanitizer must report: the control of the tier that runs the threaded tests under it.
#include <meso/core/context.hpp>

int main() {
  meso::CpuContext<> context(2);
  volatile long shared = 0;
  meso::parallel_for(context, 64, [&](meso::Index, meso::Index) {
    for (int i = 0; i < 10000; ++i) shared = shared + 1;
  });
  return shared == 0;
}
