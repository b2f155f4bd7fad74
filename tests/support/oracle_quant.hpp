#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "oracle.hpp"

namespace meso::test::oracle {

/// One block quantized, in double. Quotients are rounded to S, as the definition says: a true division of numbers of S.
struct QuantizedBlock {
  double scale = 1, zero = 0;
  Vector q, back;
};

template <class S>
double round_to(double x) {
  return static_cast<double>(static_cast<S>(x));
}

/// s = max|x|/(2^{b−1} − 1), q = round-half-even(x/s).
template <class S>
QuantizedBlock absmax(const Vector& x, int bits) {
  QuantizedBlock block;
  double top = 0;
  for (const double v : x) top = std::max<double>(top, std::abs(v));
  const double levels = std::exp2(bits - 1) - 1;
  if (top > 0) block.scale = round_to<S>(top / levels);
  for (const double v : x) {
    const double q = std::nearbyint(round_to<S>(v / block.scale));
    block.q.push_back(std::max<double>(-levels, std::min<double>(levels, q)));
    block.back.push_back(block.scale * block.q.back());
  }
  return block;
}

/// lo = min(0, min x), hi = max(0, max x), s = (hi − lo)/(2^b − 1), z = round(−lo/s), q = clip(round(x/s) + z).
template <class S>
QuantizedBlock zeropoint(const Vector& x, int bits) {
  QuantizedBlock block;
  double low = 0, high = 0;
  for (const double v : x) low = std::min<double>(low, v), high = std::max<double>(high, v);
  const double levels = std::exp2(bits) - 1;
  if (high > low) block.scale = round_to<S>(round_to<S>(high - low) / levels);
  block.zero = std::min<double>(levels, std::nearbyint(round_to<S>(-low / block.scale)));
  for (const double v : x) {
    const double q = std::nearbyint(round_to<S>(v / block.scale)) + block.zero;
    block.q.push_back(std::max<double>(0, std::min<double>(levels, q)));
    block.back.push_back(block.scale * (block.q.back() - block.zero));
  }
  return block;
}

/// c = a bᵀ in 64-bit integers.
inline std::vector<std::int64_t> integer_product(const std::vector<std::int8_t>& a, const std::vector<std::int8_t>& b,
                                                 Index m, Index n, Index k) {
  std::vector<std::int64_t> c(at(m * n), 0);
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < n; ++j)
      for (Index p = 0; p < k; ++p) c[at(i * n + j)] += std::int64_t{a[at(i * k + p)]} * std::int64_t{b[at(j * k + p)]};
  return c;
}

}  // namespace meso::test::oracle
