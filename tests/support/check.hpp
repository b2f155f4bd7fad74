#pragma once
// Tests that run with Boost.Test and, where there is none (a GPU machine with the toolkit alone), with a runner of their
// own. MESO_TEST_OWN_RUNNER picks the second; one source of the binary then defines MESO_TEST_MAIN before the include.
//   MESO_TEST_SUITE(name) … MESO_TEST_SUITE_END()
//   MESO_TEST(name) { … }                  one case
//   MESO_CHECK(condition)                  goes on after a failure
//   MESO_CHECK_WITHIN(actual, expected, tolerance)   in double; NaN never passes unless both are NaN
//   MESO_CHECK_THROWS(expression, Type)
#include <cmath>
#include <sstream>
#include <string>

#ifndef MESO_TEST_OWN_RUNNER

#include <boost/test/unit_test.hpp>
#define MESO_TEST_SUITE(name) BOOST_AUTO_TEST_SUITE(name)
#define MESO_TEST_SUITE_END() BOOST_AUTO_TEST_SUITE_END()
#define MESO_TEST(name) BOOST_AUTO_TEST_CASE(name)
#define MESO_CHECK(...) BOOST_CHECK((__VA_ARGS__))
#define MESO_CHECK_MESSAGE(condition, text) BOOST_CHECK_MESSAGE(condition, text)
#define MESO_CHECK_THROWS(expression, type) BOOST_CHECK_THROW(expression, type)

#else

#include <cstdio>
#include <exception>
#include <vector>

namespace meso::test {

struct Case {
  const char* name;
  void (*run)();
};
inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}
inline int& failures() {
  static int count = 0;
  return count;
}
inline bool add_case(const char* name, void (*run)()) {
  cases().push_back({name, run});
  return true;
}
inline void report(bool passed, const char* file, int line, const std::string& text) {
  if (passed) return;
  ++failures();
  std::printf("%s:%d: failed: %s\n", file, line, text.c_str());
}
/// Runs the cases whose names contain `filter`; returns the number of failures.
inline int run_cases(const std::string& filter = {}) {
  int ran = 0;
  for (const Case& c : cases()) {
    if (std::string(c.name).find(filter) == std::string::npos) continue;
    ++ran;
    const int before = failures();
    try {
      c.run();
    } catch (const std::exception& e) {
      report(false, c.name, 0, e.what());
    }
    std::printf("%-7s %s\n", failures() == before ? "ok" : "FAILED", c.name);
    std::fflush(stdout);
  }
  std::printf("%d test cases, %d failures\n", ran, failures());
  return failures();
}

}  // namespace meso::test

#define MESO_TEST_SUITE(name) namespace name {
#define MESO_TEST_SUITE_END() }
#define MESO_TEST(name)                                                                  \
  static void name();                                                                    \
  [[maybe_unused]] static const bool name##_added = ::meso::test::add_case(#name, name); \
  static void name()
#define MESO_CHECK(...) ::meso::test::report(static_cast<bool>(__VA_ARGS__), __FILE__, __LINE__, #__VA_ARGS__)
#define MESO_CHECK_MESSAGE(condition, text) ::meso::test::report(static_cast<bool>(condition), __FILE__, __LINE__, text)
#define MESO_CHECK_THROWS(expression, type)                                                 \
  do {                                                                                      \
    bool thrown = false;                                                                    \
    try {                                                                                   \
      static_cast<void>(expression);                                                        \
    } catch (const type&) {                                                                 \
      thrown = true;                                                                        \
    }                                                                                       \
    ::meso::test::report(thrown, __FILE__, __LINE__, #expression " does not throw " #type); \
  } while (false)

#endif

namespace meso::test {

/// Text of a failed comparison; empty if |actual − expected| ≤ tolerance, or both are NaN.
inline std::string outside(double actual, double expected, double tolerance) {
  if (actual == expected || std::abs(actual - expected) <= tolerance) return {};
  if (actual != actual && expected != expected) return {};
  std::ostringstream text;
  text.precision(17);
  text << actual << " against " << expected << ": error " << std::abs(actual - expected) << " > tolerance "
       << tolerance;
  return text.str();
}

}  // namespace meso::test

#define MESO_CHECK_WITHIN(actual, expected, tolerance)                                   \
  do {                                                                                   \
    const std::string meso_outside = ::meso::test::outside(actual, expected, tolerance); \
    MESO_CHECK_MESSAGE(meso_outside.empty(), meso_outside);                              \
  } while (false)
