#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "oracle.hpp"

/// Statistics by their definitions, in long double, about the first number: the differences are exact for numbers of
/// one magnitude, and a large mean costs nothing.
namespace meso::test::oracle {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

struct CentralMoments {
  long double mean = 0, m2 = 0, m3 = 0, m4 = 0;  // Σ (x − mean)^k
  double top = 0;                                // max|x|
};
inline CentralMoments central_moments(const Vector& x) {
  CentralMoments m;
  if (x.empty()) return m;
  const long double origin = static_cast<long double>(x.front()), n = static_cast<long double>(x.size());
  long double shift = 0;
  for (const double v : x) shift += (static_cast<long double>(v) - origin) / n;
  for (const double v : x) {
    const long double d = (static_cast<long double>(v) - origin) - shift;
    m.m2 += d * d;
    m.m3 += d * d * d;
    m.m4 += d * d * d * d;
    m.top = std::max<double>(m.top, std::abs(v));
  }
  m.mean = origin + shift;
  return m;
}

/// NaN without data or variance.
inline double kurtosis(const Vector& x) {
  const CentralMoments m = central_moments(x);
  return m.m2 > 0 ? static_cast<double>(static_cast<long double>(x.size()) * m.m4 / (m.m2 * m.m2)) : not_a_number;
}
inline double bondarenko_kurtosis(const Vector& x) {
  const CentralMoments m = central_moments(x);
  const long double n = static_cast<long double>(x.size()), s2 = m.m2 / (n - 1);
  return x.size() < 2 ? not_a_number : static_cast<double>(m.m4 / n / (s2 * s2 + 1e-6L));
}
/// mean x⁴/s⁴ − 3 of one token, not yet clipped.
inline double osp_excess(const Vector& x) {
  const CentralMoments m = central_moments(x);
  const long double n = static_cast<long double>(x.size()), s2 = m.m2 / (n - 1);
  long double fourth = 0;
  for (const double v : x) fourth += static_cast<long double>(v) * v * v * v / n;
  return s2 > 0 ? static_cast<double>(fourth / (s2 * s2) - 3) : not_a_number;
}
inline double he_kurtosis(const Matrix& x) {
  std::vector<long double> energy(at(x.cols), 0.0L);
  long double mean = 0;
  for (Index i = 0; i < x.rows; ++i) {
    const long double center = central_moments(x.row(i)).mean;
    for (Index j = 0; j < x.cols; ++j) {
      const long double d = static_cast<long double>(x(i, j)) - center;
      energy[at(j)] += d * d / static_cast<long double>(x.rows);
    }
  }
  for (const long double e : energy) mean += e / static_cast<long double>(x.cols);
  long double square = 0;
  for (const long double e : energy) square += e / mean * (e / mean) / static_cast<long double>(x.cols);
  return mean > 0 ? static_cast<double>(square) : not_a_number;
}

/// One query's weights, as SinkStatistics receives them.
struct SinkRow {
  Index sequence = 0, query = 0, first_key = 0;
  Vector p;
  double null = 0;
};
struct Sinks {
  double first = 0, first_with_null = 0, nowhere = 0, first_mass = 0, null_mass = 0, entropy = 0, sink_rate = 0;
  Index rows = 0;
};
/// The definitions, for one (layer, head): proportions and means over the rows of queries ≥ `from`.
inline Sinks sinks(const std::vector<SinkRow>& rows, Index from, Index sink_key, double threshold, Index sequences) {
  Sinks s;
  Index first = 0, first_with_null = 0, nowhere = 0, with = 0, sink = 0;
  long double first_mass = 0, null_mass = 0, entropy = 0;
  for (const SinkRow& row : rows) {
    if (row.query < from) continue;
    ++s.rows;
    const double weight = row.first_key == 0 && !row.p.empty() ? row.p[0] : 0;
    bool largest = row.first_key == 0 && !row.p.empty(), zero = true, null_largest = row.null > weight;
    const auto term = [](double p) {
      return p > 0 ? -static_cast<long double>(p) * std::log(static_cast<long double>(p)) : 0.0L;
    };
    entropy += term(row.null);
    for (std::size_t j = 0; j < row.p.size(); ++j) {
      zero = zero && row.p[j] == 0;
      if (j > 0 || row.first_key > 0) largest = largest && weight > row.p[j];
      null_largest = null_largest && row.null > row.p[j];
      entropy += term(row.p[j]);
    }
    first += largest && !zero;
    first_with_null += largest && !zero && weight > row.null;
    nowhere += null_largest;
    first_mass += static_cast<long double>(weight);
    null_mass += static_cast<long double>(row.null);
  }
  const auto share = [&](Index part) { return static_cast<double>(part) / static_cast<double>(s.rows); };
  const auto mean_of = [&](long double sum) { return static_cast<double>(sum / static_cast<long double>(s.rows)); };
  s.first = share(first), s.first_with_null = share(first_with_null), s.nowhere = share(nowhere);
  s.first_mass = mean_of(first_mass), s.null_mass = mean_of(null_mass), s.entropy = mean_of(entropy);
  for (Index q = 0; q < sequences; ++q) {
    double sum = 0, count = 0;
    for (const SinkRow& row : rows) {
      if (row.sequence != q || row.query < sink_key) continue;
      ++count;
      const Index at_key = sink_key - row.first_key;
      if (at_key >= 0 && at_key < static_cast<Index>(row.p.size())) sum += row.p[at(at_key)];
    }
    with += count > 0;
    sink += count > 0 && sum / count > threshold;
  }
  s.sink_rate = static_cast<double>(sink) / static_cast<double>(with);
  return s;
}

/// Median of |x|: of an even number the mean of the middle two.
inline double median_abs(const Vector& x) {
  Vector sorted;
  for (const double v : x) sorted.push_back(std::abs(v));
  std::sort(sorted.begin(), sorted.end());
  const std::size_t n = sorted.size();
  return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

}  // namespace meso::test::oracle
