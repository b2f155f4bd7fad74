#pragma once
#include <math.h>

#include <meso/core/view.hpp>

namespace meso::detail {

/// x·2^{−exponent}: the scaling of all statistics. Fourth powers of numbers beyond 1e77 overflow, those below 1e−77
/// vanish; a power of two changes no other bit. The exponent is 0 as long as they do neither: 2^{−192} ≤ max|x| ≤ 2^{224},
/// with room for sums, and for deviations as small as the rounding errors of x.
struct PowerOfTwo {
  int exponent = 0;
  double half = 1, rest = 1;  // 2^{−exponent} itself may be no double

  /// For numbers up to `top`; what is not finite stays as it is.
  MESO_HOST_DEVICE static PowerOfTwo of(double top) {
    const bool tiny = top > 0 && top<0x1p-192, huge = top> 0x1p224 && top <= 0x1.fffffffffffffp1023;
    if (!tiny && !huge) return {};
    const int exponent = ilogb(top);
    return {exponent, ldexp(1.0, -(exponent / 2)), ldexp(1.0, exponent / 2 - exponent)};
  }
  MESO_HOST_DEVICE double operator()(double x) const { return x * half * rest; }
};

}  // namespace meso::detail
