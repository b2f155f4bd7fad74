#pragma once
// Gradients at the ends of the range of a scalar, and the bounds that updates keep there. No Eigen, no Boost.
#include <algorithm>
#include <cmath>
#include <limits>
#include <meso/core/random.hpp>
#include <type_traits>

namespace meso::test {

/// Number of the sequences of extreme_gradient.
inline constexpr Index extreme_sequences = 6 * 39 + 1;

/// Step t, from 1, of sequence i: sizes 1e-38 … 1e38 in float, 1e-308 … 1e308 in double; constant, of random signs, of
/// random sizes, a single huge one among small ones, few among zeros, growing; the last is the largest number.
template <class S>
S extreme_gradient(Index i, Index t) {
  if (i == 6 * 39) return (std::numeric_limits<S>::max)();
  const double top = std::is_same_v<S, float> ? 38 : 308, exponent = top * (static_cast<double>(i / 6) - 19) / 19;
  const Random random{7, static_cast<std::uint64_t>(i)};
  const auto number = static_cast<std::uint64_t>(t);
  const double sign = random.bits(2 * number) & 1 ? -1 : 1;
  const double any = 2 * random.uniform(2 * number + 1) - 1;
  const auto ten = [](double e) { return std::pow(10.0, e); };
  switch (i % 6) {
    case 0:
      return static_cast<S>(ten(exponent));
    case 1:
      return static_cast<S>(sign * ten(exponent));
    case 2:
      return static_cast<S>(sign * ten(top * any));
    case 3:
      return static_cast<S>(t == 3 ? ten(std::max<double>(exponent, top * 20 / 38)) : 1e-3);
    case 4:
      return static_cast<S>(t % 7 == 0 ? sign * ten(exponent) : 0);
    default:
      return static_cast<S>(ten(std::min<double>(top, exponent + 0.05 * static_cast<double>(t))));
  }
}

/// c(t) of meso::BasicAdamRule: the largest |m̂|/√v̂, by its sum.
inline double adam_bound(double beta1, double beta2, Index t) {
  double sum = 0;
  for (Index k = 0; k < t; ++k)  // the weights of a gradient k steps ago: (1 − β1)β1^k in m and (1 − β2)β2^k in v
    sum += std::pow((1 - beta1) * std::pow(beta1, k), 2) / ((1 - beta2) * std::pow(beta2, k));
  return std::sqrt(sum) * std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t));
}
/// The largest |g|/√v of RMSProp, centered |g|/√(v − ḡ²) with `u` the unit roundoff; with momentum the sum of t of them.
inline double rmsprop_bound(double alpha, double momentum, bool centered, double u, Index t) {
  double sum = 0;
  for (Index k = 0; k < t; ++k)
    sum += std::pow(momentum, k) *
           std::sqrt(1 / (1 - alpha) + (centered ? 1 / std::max<double>(std::pow(alpha, t - k), u) : 0));
  return sum;
}

}  // namespace meso::test
