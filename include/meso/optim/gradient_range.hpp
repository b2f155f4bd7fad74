#pragma once
// Where g² leaves the range of a scalar. What rules that divide by a root of averaged squares do there, on every device.
#include <limits>

namespace meso::detail {

/// Gradients beyond this size count as this size: 2⁶³ in float, 2⁵¹¹ in double. The square is a quarter of the largest
/// number, so that averages of squares stay finite whatever their weights round to.
template <class S>
inline constexpr S largest_gradient = static_cast<S>(sizeof(S) == 4 ? 0x1p63 : 0x1p511);
template <class S>
inline constexpr S largest_square = largest_gradient<S>* largest_gradient<S>;

/// The least square that enters an average with weight `weight`: times that it is twice the smallest normal number, so
/// that the average is never 0 nor subnormal, which roots and processors may take for 0. An average of larger squares is
/// no smaller than exact arithmetic has it, and a quotient by its root no larger.
template <class S>
constexpr S smallest_square(double weight) {
  return static_cast<S>(2 * static_cast<double>((std::numeric_limits<S>::min)()) / weight);
}

/// An expression of the run g within ±largest_gradient. Inf and NaN become NaN, as 0·Inf is: only finite gradients are
/// bounded.
template <class Run>
auto within_range(const Run& g) {
  using S = typename Run::Scalar;
  return ((g.max)(-largest_gradient<S>).min)(largest_gradient<S>) + S(0) * g;
}
/// An expression of the squares of the run g, not below `smallest`.
template <class Run>
auto square_within_range(const Run& g, typename Run::Scalar smallest) {
  return ((g.square().max)(smallest).min)(largest_square<typename Run::Scalar>);
}

}  // namespace meso::detail
