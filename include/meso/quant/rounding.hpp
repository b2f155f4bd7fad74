#pragma once
#include <concepts>
#include <cstdint>

namespace meso {

/// A policy that rounds to an integer: any callable std::int32_t r(S x) for |x| < 2³¹ that is monotone and keeps
/// integers. Quantizers take it as their last argument.
template <class R, class S>
concept Rounding = requires(const R r, S x) {
  { r(x) } -> std::same_as<std::int32_t>;
};

/// Nearest integer, ties to even, as std::nearbyint in the default floating-point environment, which is neither read
/// nor changed. Shapes: one scalar; |x| < 2³¹.
/// Numerics: i = trunc(x), f = x − i, which is exact; then one comparison of f with ±1/2. No term can be re-associated
/// away, so that it stands -ffast-math; no branch, so that loops over it vectorize.
struct NearestEven {
  template <class S>
  constexpr std::int32_t operator()(S x) const {
    const std::int32_t i = static_cast<std::int32_t>(x);
    const S f = x - static_cast<S>(i);
    const S half = static_cast<S>(0.5);
    const std::int32_t odd = i & 1;
    const std::int32_t up = static_cast<std::int32_t>(f > half) | (static_cast<std::int32_t>(f == half) & odd);
    const std::int32_t down = static_cast<std::int32_t>(f < -half) | (static_cast<std::int32_t>(f == -half) & odd);
    return i + up - down;
  }
};

/// Nearest integer, ties away from zero, as std::round. Shapes: one scalar; |x| < 2³¹.
struct HalfAway {
  template <class S>
  constexpr std::int32_t operator()(S x) const {
    const std::int32_t i = static_cast<std::int32_t>(x);
    const S f = x - static_cast<S>(i);
    const S half = static_cast<S>(0.5);
    return i + static_cast<std::int32_t>(f >= half) - static_cast<std::int32_t>(f <= -half);
  }
};

}  // namespace meso
