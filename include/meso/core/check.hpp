#pragma once
#include <sstream>
#include <stdexcept>
#include <string>

#include <meso/core/view.hpp>

#ifndef __cpp_exceptions
#error "Meso reports errors by exceptions: compile without -fno-exceptions"
#endif

namespace meso {

/// Concatenates its arguments as an output stream prints them.
template <class... Parts>
std::string message(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// Throws std::invalid_argument with the concatenated parts unless `condition` holds.
/// The parts are formatted only on failure: pass values, not ready-made strings.
template <class... Parts>
void check(bool condition, const Parts&... parts) {
  if (!condition) throw std::invalid_argument(message(parts...));
}

namespace detail {
/// Prints as "(rows, cols)"; formatted only when a message is.
struct ShapeText {
  Index rows = 0;
  Index cols = 0;
  friend std::ostream& operator<<(std::ostream& out, const ShapeText& s) {
    return out << '(' << s.rows << ", " << s.cols << ')';
  }
};
}  // namespace detail

/// "(rows, cols)" of a view, for a message.
template <class T, class Device>
detail::ShapeText shape(const View<T, Device>& view) {
  return {view.rows, view.cols};
}

/// Throws std::invalid_argument that names both operands and both shapes unless they agree.
template <class A, class B, class Device>
void check_same_shape(const char* op, const char* name_a, const View<A, Device>& a, const char* name_b,
                      const View<B, Device>& b) {
  if (a.rows != b.rows || a.cols != b.cols)
    throw std::invalid_argument(message(op, ": ", name_a, " is ", shape(a), " but ", name_b, " is ", shape(b),
                                        "; they must have the same shape"));
}

/// Throws std::invalid_argument unless the view has the expected shape.
template <class A, class Device>
void check_shape(const char* op, const char* name, const View<A, Device>& a, Index rows, Index cols) {
  if (a.rows != rows || a.cols != cols)
    throw std::invalid_argument(message(op, ": ", name, " is ", shape(a), ", expected (", rows, ", ", cols, ")"));
}

}  // namespace meso
