#pragma once
#include <stdexcept>
#include <string>

namespace meso::test {

/// The message of the std::invalid_argument that f throws, or "no error".
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace meso::test
