#pragma once
#include <meso/core/eigen.hpp>
#include <meso/core/random.hpp>

namespace meso::test {

/// A matrix of independent Gaussian numbers, a pure function of its arguments.
template <class S>
RowMajorMatrix<S> gaussian(Index rows, Index cols, std::uint64_t seed, double scale = 1.0) {
  RowMajorMatrix<S> x(rows, cols);
  fill_normal(view(x), Random{seed, stream_of("test")}, scale);
  return x;
}

/// Read-only view of a matrix.
template <class S>
View<const S> cview(const RowMajorMatrix<S>& x) {
  return view(x);
}

}  // namespace meso::test
