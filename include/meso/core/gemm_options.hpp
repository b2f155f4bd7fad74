#pragma once
#include <meso/core/check.hpp>

namespace meso {

/// Options of a product; the defaults give c = a b.
struct GemmOptions {
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;  ///< c += … instead of c = …
  double alpha = 1.0;
};

namespace detail {

inline void check_gemm(Index ar, Index ac, Index br, Index bc, Index cr, Index cc, const GemmOptions& o) {
  const Index m = o.transpose_a ? ac : ar, ka = o.transpose_a ? ar : ac;
  const Index kb = o.transpose_b ? bc : br, n = o.transpose_b ? br : bc;
  check(ka == kb && cr == m && cc == n, "gemm: c is (", cr, ", ", cc, ") but a", o.transpose_a ? "ᵀ" : "", " is (", m,
        ", ", ka, ") and b", o.transpose_b ? "ᵀ" : "", " is (", kb, ", ", n, ")");
}

}  // namespace detail
}  // namespace meso
