#pragma once
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <meso/core/view.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace meso::test {

/// How a gradient is compared with central differences.
struct GradientCheck {
  /// Roundings along the longest path through f: f is taken to carry an error of rounding·u·max(magnitude, |f|).
  double rounding = 256;
  /// Σ|terms| of the scalar that f returns. Raise it where f is a sum of large terms that cancel.
  double magnitude = 1;
  /// Coordinates to check; empty: all of them.
  std::vector<Index> indices = {};
  /// Coordinates that may be unresolved, because a kink lies within 2h of x.
  Index allowed_unresolved = 0;
};

struct GradientReport {
  Index checked = 0;
  Index unresolved = 0;  ///< the quotient's truncation exceeds 10⁻³ of the largest gradient: a kink is near
  double max_error = 0;  ///< max |analytic − numeric| over the resolved coordinates
  double max_ratio = 0;  ///< max |analytic − numeric| / tolerance: at most 1 in a passing check
  Index worst = -1;      ///< the coordinate of max_ratio, with its values
  double analytic = 0, numeric = 0, tolerance = 0;
};

/// Compares `analytic` with central differences of f at x, one coordinate at a time.
/// f takes const double* and returns double. x is perturbed in place and restored bit for bit, so f may as well ignore
/// its argument and read a model whose parameters start at x.
///
/// Tolerance, derived for each coordinate: with h = ∛(3u)·max(1, |x_i|),
///   D(h) = (f(x+h) − f(x−h)) / 2h = f' + h²f'''/6 + O(h⁴),  D(2h) − D(h) = h²f'''/2 + O(h⁴):
///   truncation = |D(2h) − D(h)| / 3, doubled for the O(h⁴) term;
///   rounding   = 2·(error of f) / 2h = rounding·u·max(magnitude, |f|) / h;
///   analytic   = rounding·u·|D|.
/// The bound depends on f alone, never on `analytic`.
template <class F>
GradientReport check_gradient(F&& f, double* x, Index size, const double* analytic, const GradientCheck& options = {}) {
  constexpr double u = std::numeric_limits<double>::epsilon() / 2;
  std::vector<Index> indices = options.indices;
  if (indices.empty())
    for (Index i = 0; i < size; ++i) indices.push_back(i);

  struct Quotient {
    double value, truncation, rounding;
  };
  std::vector<Quotient> quotients;
  double largest = 0;
  for (const Index i : indices) {
    const double saved = x[i];
    // u = 2⁻⁵³: h is rounded to a power of two, so that x ± h is exact wherever x has few enough bits; the exact
    // spacing is used anyway.
    const double h = std::exp2(std::round(std::log2(std::cbrt(3 * u) * std::max<double>(1, std::abs(saved)))));
    double scale = options.magnitude;
    const auto difference = [&](double step) {
      x[i] = saved + step;
      const double right = x[i], f_right = f(static_cast<const double*>(x));
      x[i] = saved - step;
      const double left = x[i], f_left = f(static_cast<const double*>(x));
      x[i] = saved;
      scale = std::max<double>(scale, std::max<double>(std::abs(f_right), std::abs(f_left)));
      return (f_right - f_left) / (right - left);
    };
    const double near = difference(h), far = difference(2 * h);
    quotients.push_back({near, 2 * std::abs(far - near) / 3, options.rounding * u * (scale / h + std::abs(near))});
    if (std::isfinite(near)) largest = std::max<double>(largest, std::abs(near));
  }

  GradientReport report;
  report.checked = static_cast<Index>(indices.size());
  for (std::size_t k = 0; k < indices.size(); ++k) {
    const auto [numeric, truncation, rounding] = quotients[k];
    const double exact = analytic[indices[k]], error = std::abs(exact - numeric), bound = truncation + rounding;
    // For a smooth f the truncation is about 10⁻¹¹.
    if (truncation > 1e-3 * largest && truncation > 10 * rounding && std::isfinite(exact)) {
      ++report.unresolved;
      continue;
    }
    const double ratio = std::isfinite(error) ? error / bound : std::numeric_limits<double>::infinity();
    if (std::isfinite(error)) report.max_error = std::max<double>(report.max_error, error);
    if (report.worst < 0 || ratio > report.max_ratio) {
      report.max_ratio = ratio;
      report.worst = indices[k];
      report.analytic = exact;
      report.numeric = numeric;
      report.tolerance = bound;
    }
  }
  return report;
}

/// The same as a Boost.Test assertion: BOOST_TEST(gradient_agrees("dz", f, z.data(), z.size(), dz.data())).
template <class F>
boost::test_tools::assertion_result gradient_agrees(const std::string& name, F&& f, double* x, Index size,
                                                    const double* analytic, const GradientCheck& options = {}) {
  const GradientReport report = check_gradient(f, x, size, analytic, options);
  boost::test_tools::assertion_result result(report.max_ratio <= 1 && report.unresolved <= options.allowed_unresolved);
  std::ostringstream text;
  text.precision(17);
  text << name << ": " << report.checked << " coordinates, " << report.unresolved << " unresolved";
  if (report.worst >= 0)
    text << "; worst at " << report.worst << ": analytic " << report.analytic << ", numeric " << report.numeric
         << ", tolerance " << report.tolerance << ", error/tolerance " << report.max_ratio;
  result.message() << text.str();
  return result;
}

}  // namespace meso::test
