#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <meso/core/check.hpp>
#include <meso/quant/quantized_matrix.hpp>

namespace meso {

/// Asymmetric b-bit quantization on [lo, hi] = [min(0, min x), max(0, max x)]: s = (hi − lo)/(2^b − 1),
/// z = round(−lo/s), q = clip(round(x/s) + z, 0, 2^b − 1), x̂ = s·(q − z), finite. Zero is exact.
/// Source: Dettmers et al., "LLM.int8()" (2022), §2; the range holds zero, as in common implementations.
/// Degenerate: s zero or below the smallest normal number gives s = 1, z = q = 0, x̂ = 0.
/// Error: |x − x̂| ≤ s/2 + 2^{b+2}·u·s: s, lo/s, x/s and the product are rounded, at magnitudes up to 2^b; where both
/// −lo/s and hi/s round up, the clip costs s/2. A block of equal numbers is exact to 1 ulp. It holds up to the largest
/// numbers, where hi − lo overflows; with one bit s itself may, the grid then has the largest number for it. Degenerate:
/// |x − x̂| = |x| ≤ (2^b − 1)·2⁻¹²⁶ in float.
/// Throws: std::invalid_argument unless 1 ≤ bits ≤ 8.
struct Zeropoint {
  int bits = 4;

  using Storage = std::uint8_t;

  template <class S, class R>
  QuantizationGrid<S> grid(S lo, S hi, const R& rounding) const {
    check(bits >= 1 && bits <= 8, "Zeropoint: ", bits, " bits, expected 1 … 8");
    const std::int32_t top = (1 << bits) - 1;
    const S steps = static_cast<S>(top);
    const S bottom = std::fmin(lo, S(0)), peak = std::fmax(hi, S(0));
    const S scale = (peak - bottom) / steps;
    if (!std::isfinite(scale)) {  // hi − lo overflows; its half does not
      const S half = (peak / 2 - bottom / 2) / steps;
      const std::int32_t zero = rounding(-bottom / 2 / half);
      return {std::fmin(half, (std::numeric_limits<S>::max)() / 2) * 2, zero < top ? zero : top, 0, top};
    }
    if (!(scale >= (std::numeric_limits<S>::min)())) return {};
    const std::int32_t zero = rounding(-bottom / scale);
    return {scale, zero < top ? zero : top, 0, top};
  }
};

}  // namespace meso
