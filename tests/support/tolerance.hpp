#pragma once
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <meso/core/view.hpp>
#include <sstream>

namespace meso::test {

/// Unit roundoff of S, half the distance from 1 to the next number: 2⁻²⁴ for float, 2⁻⁵³ for double.
/// Every tolerance is a derived multiple of it.
template <class S>
inline constexpr double unit_roundoff = static_cast<double>(std::numeric_limits<S>::epsilon()) / 2;

/// |actual − expected| ≤ tolerance, in double; NaN never passes.
inline boost::test_tools::assertion_result within(double actual, double expected, double tolerance) {
  const double error = std::abs(actual - expected);
  if (actual == expected || error <= tolerance) return boost::test_tools::assertion_result(true);
  boost::test_tools::assertion_result result(false);
  std::ostringstream text;
  text.precision(17);
  text << actual << " against " << expected << ": error " << error << " > tolerance " << tolerance;
  result.message() << text.str();
  return result;
}

/// |actual_i − expected_i| ≤ tolerance(i) for i < size; one assertion for the whole run, which names the first failure.
template <class S, class T, class Tolerance>
boost::test_tools::assertion_result all_within(const S* actual, const T* expected, Index size, Tolerance&& tolerance) {
  for (Index i = 0; i < size; ++i) {
    const double a = static_cast<double>(actual[i]), e = static_cast<double>(expected[i]), bound = tolerance(i);
    if (a == e || std::abs(a - e) <= bound) continue;
    boost::test_tools::assertion_result failure(false);
    std::ostringstream text;
    text.precision(17);
    text << "element " << i << " of " << size << ": " << a << " against " << e << ", error " << std::abs(a - e)
         << " > tolerance " << bound;
    failure.message() << text.str();
    return failure;
  }
  return boost::test_tools::assertion_result(true);
}

}  // namespace meso::test
