#pragma once
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "draw.hpp"
#include "tolerance.hpp"

namespace meso::test {

/// Roundings that a result may be off by: those of the op in its unit u, and those of the oracle in 2⁻⁵³.
/// An oracle in long double errs by nothing that counts.
struct Roundings {
  double op = 0;
  double oracle = 0x1p-53;
};
template <class S>
inline constexpr Roundings in_scalar{unit_roundoff<S>};
/// Of ops that work in double whatever their input, against an oracle in long double.
inline constexpr Roundings in_double{0x1p-53, 0};

/// One result of a study, as a line of the table: the op and its error bound as in the docstring.
struct Quantity {
  std::string op;
  std::string bound;
  Roundings roundings;
};

/// The worst of many comparisons of |actual − exact| with bound·u.
class Comparison {
 public:
  explicit Comparison(Roundings roundings) : roundings_(roundings) {}

  /// `bound` and `scale` are absolute, in roundings; the error is reported in roundings of `scale`.
  /// Results are normal numbers or flushed to zero: 64 of float's smallest normal number are granted.
  void add(double actual, double exact, double bound, double scale) {
    ++count_;
    if (actual == exact || (std::isnan(actual) && std::isnan(exact))) return;
    const double error = std::abs(actual - exact);
    if (error <= 64 * static_cast<double>((std::numeric_limits<float>::min)())) return;
    const double tolerance = bound * (roundings_.op + roundings_.oracle);
    const double ratio = std::isfinite(error) ? error / tolerance : std::numeric_limits<double>::infinity();
    if (scale > 0) error_ = std::max<double>(error_, error / scale / roundings_.op);
    if (ratio <= ratio_) return;
    ratio_ = ratio;
    worst_ = message(actual, " against ", exact, ", error ", error, ", tolerance ", tolerance);
  }
  /// Relative to the exact value.
  void add_relative(double actual, double exact, double bound) {
    add(actual, exact, bound * std::abs(exact), std::abs(exact));
  }
  /// What is exact.
  void add_exact(double actual, double exact) { add(actual, exact, 0, std::abs(exact)); }
  void require(bool condition, const char* what) {
    if (condition) return;
    ratio_ = std::numeric_limits<double>::infinity();
    worst_ = what;
  }

  Index count() const { return count_; }
  double largest_error() const { return error_; }
  double largest_ratio() const { return ratio_; }
  const std::string& worst() const { return worst_; }

 private:
  Roundings roundings_;
  Index count_ = 0;
  double error_ = 0, ratio_ = 0;
  std::string worst_;
};

/// An op, or a few that belong together, on random input against its oracle. run adds to one comparison a quantity.
struct Study {
  std::string name;
  std::string range;  ///< of the input
  std::vector<Quantity> quantities;
  std::function<void(Draw&, std::vector<Comparison>&)> run;

  std::vector<Comparison> comparisons() const {
    std::vector<Comparison> c;
    for (const Quantity& q : quantities) c.emplace_back(q.roundings);
    return c;
  }
};

/// Every quantity of the study is within its bound in `draws` random cases. The message holds the seed and the shape.
inline boost::test_tools::assertion_result holds(const Study& study, Index draws) {
  boost::test_tools::assertion_result result(true);
  for (Index number = 0; number < draws; ++number) {
    Draw draw(test_seed(), study.name, number);
    std::vector<Comparison> comparisons = study.comparisons();
    study.run(draw, comparisons);
    for (std::size_t k = 0; k < comparisons.size(); ++k) {
      if (comparisons[k].largest_ratio() <= 1) continue;
      result = boost::test_tools::assertion_result(false);
      result.message() << study.quantities[k].op << ": error/bound " << comparisons[k].largest_ratio() << ": "
                       << comparisons[k].worst() << "; MESO_TEST_SEED=" << test_seed() << ", case " << number << ": "
                       << draw.notes();
      return result;
    }
  }
  return result;
}

}  // namespace meso::test
