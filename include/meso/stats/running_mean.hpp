#pragma once
#include <cmath>
#include <limits>

#include <meso/core/view.hpp>

namespace meso {

/// Mean of a stream by a compensated sum.
/// Source: A. Neumaier, "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen" (1974).
/// Error of the sum: ≤ (u + n²u²)·Σ|x|, so that neither order nor merges show in a mean of numbers of one sign.
/// No number gives NaN; NaN and infinities come out as such.
struct RunningMean {
  Index count = 0;
  double sum = 0;
  double correction = 0;

  MESO_HOST_DEVICE void add(double x) {
    ++count;
    accumulate(x);
  }
  void merge(const RunningMean& other) {
    count += other.count;
    accumulate(other.sum);
    accumulate(other.correction);
  }
  double value() const {
    if (count == 0) return std::numeric_limits<double>::quiet_NaN();
    return (std::isfinite(sum) ? sum + correction : sum) / static_cast<double>(count);
  }

 private:
  MESO_HOST_DEVICE static double magnitude(double x) { return x < 0 ? -x : x; }
  MESO_HOST_DEVICE void accumulate(double x) {
    const double total = sum + x;
    correction += magnitude(sum) >= magnitude(x) ? (sum - total) + x : (x - total) + sum;
    sum = total;
  }
};

}  // namespace meso
