#pragma once
#include <cmath>
#include <limits>

#include <meso/core/buffer.hpp>
#include <meso/core/eigen.hpp>
#include <meso/stats/sink_statistics.hpp>

namespace meso {

/// What SinkStatistics keeps of one row of weights. Shapes: weights, a vector expression over the visible keys, of which
/// the first is key `first_key`. `scratch` grows to the number of keys.
/// Error: masses none, entropy ≤ (keys + 8)·u of double, relative; NaN once a weight is negative.
template <class Derived>
AttentionRowStatistics attention_row_statistics(const Eigen::DenseBase<Derived>& weights, double null_mass,
                                                Index first_key, const SinkOptions& options, Buffer<double>& scratch) {
  const Index n = weights.size();
  if (scratch.size() < n) scratch.resize(n + n / 2);
  Array<double> p(scratch.data(), n);
  if constexpr (Derived::ColsAtCompileTime == 1)
    p = weights.derived().template cast<double>().array();
  else
    p = weights.derived().template cast<double>().array().transpose();

  AttentionRowStatistics row;
  row.null_mass = null_mass;
  row.sees_first = first_key == 0 && n > 0;
  const Index skip = row.sees_first ? 1 : 0, sink = options.sink_key - first_key;
  row.first = row.sees_first ? p[0] : 0.0;
  row.other = n > skip ? p.tail(n - skip).maxCoeff() : -std::numeric_limits<double>::infinity();
  row.sink = sink >= 0 && sink < n ? p[sink] : 0.0;
  row.entropy = std::numeric_limits<double>::quiet_NaN();
  if (n == 0 || !(p.minCoeff() < 0)) {
    row.entropy = n > 0 ? -(p * (p.max)((std::numeric_limits<double>::min)()).log()).sum() : 0.0;  // 0·ln 0 = 0
    if (null_mass > 0) row.entropy -= null_mass * std::log(null_mass);
  }
  return row;
}

}  // namespace meso
