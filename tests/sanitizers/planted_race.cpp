// A data race that ThreadSanitizer must report: the control of the tier that runs the threaded tests under it.
#include <meso/core/context.hpp>

int main() {
  meso::CpuContext<> context(2);
  int shared = 0;
  meso::parallel_for(context, 1000, [&](meso::Index, meso::Index) { ++shared; });
  return shared == 0;
}
