// Linked into every example, so that a file it is redirected to holds all that it printed, or its exit status is not 0.
#include "output.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

int checked_output(int status) {
  errno = 0;
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::cout && !std::ferror(stdout)) return status;
  std::fprintf(stderr, "cannot write to standard output%s%s\n", errno ? ": " : "", errno ? std::strerror(errno) : "");
  return 1;
}

namespace {
[[maybe_unused]] const int registered = std::atexit([] {
  if (checked_output(0) != 0) std::_Exit(1);
});
}  // namespace
