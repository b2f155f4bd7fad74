// expect: compile without -fno-exceptions
// flags: -fno-exceptions
#include <meso/core/check.hpp>
