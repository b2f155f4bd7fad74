#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <meso/core/check.hpp>
#include <meso/quant/quantized_matrix.hpp>

namespace meso {

/// Symmetric b-bit quantization: s = max|x| / (2^{b−1} − 1), q = round(x/s), x̂ = s·q, finite; the extremes are
/// ±(2^{b−1} − 1).
/// Source: Dettmers et al., "LLM.int8()" (2022), §2.
/// Degenerate: s zero or below the smallest normal number gives s = 1, q = 0, x̂ = 0.
/// Error: |x − x̂| ≤ s/2 + 3u·max|x| (division and product); max|x| and with it a block of equal numbers is exact to
/// 1 ulp. Degenerate: |x − x̂| = |x| ≤ (2^{b−1} − 1)·2⁻¹²⁶ in float.
/// Throws: std::invalid_argument unless 2 ≤ bits ≤ 8.
struct Absmax {
  int bits = 8;

  using Storage = std::int8_t;

  template <class S, class R>
  QuantizationGrid<S> grid(S lo, S hi, const R&) const {
    check(bits >= 2 && bits <= 8, "Absmax: ", bits, " bits, expected 2 … 8");
    const std::int32_t top = (1 << (bits - 1)) - 1;
    const S scale = std::fmax(std::abs(lo), std::abs(hi)) / static_cast<S>(top);
    if (!(scale >= (std::numeric_limits<S>::min)())) return {};
    return {scale, 0, -top, top};
  }
};

}  // namespace meso
