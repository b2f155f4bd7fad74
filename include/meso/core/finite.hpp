#pragma once
#include <meso/core/eigen.hpp>
#include <meso/core/tiles.hpp>

namespace meso {

/// False if x holds a NaN or an infinity. Shapes: x (rows, cols).
template <class Products, class T>
bool all_finite(CpuContext<Products>&, const View<T>& x) {
  for (Index i = 0; i < x.rows; ++i)
    if (!row_array(x, i).isFinite().all()) return false;
  return true;
}

}  // namespace meso
