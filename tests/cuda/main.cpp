#ifndef MESO_TEST_OWN_RUNNER
#define BOOST_TEST_MODULE meso_cuda
#include <boost/test/unit_test.hpp>
#else
#include <meso/cuda/error.hpp>

#include "tests/support/check.hpp"

// Exit status 77, which CTest shows as skipped, where there is no GPU.
int main(int argc, char** argv) {
  if (const std::string reason = meso::cuda::unavailable(); !reason.empty()) {
    std::printf("skipped: %s\n", reason.c_str());
    return 77;
  }
  return meso::test::run_cases(argc > 1 ? argv[1] : "") == 0 ? 0 : 1;
}
#endif
