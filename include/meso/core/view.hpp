#pragma once
#include <cstddef>
#include <type_traits>

/// Marks what kernels may call too.
#if defined(__CUDACC__)
#define MESO_HOST_DEVICE __host__ __device__
#else
#define MESO_HOST_DEVICE
#endif

namespace meso {

/// Signed size and index type of the whole library (the same as Eigen::Index).
using Index = std::ptrdiff_t;

/// Device tag of host memory. The device is part of a view's type and picks the overload of an op.
struct Cpu {};

/// Row-major window on somebody else's memory: element (i, j) is data[i·stride + j].
/// Shapes: (rows, cols), stride ≥ cols elements between rows. Activations are (tokens, features),
/// tokens = batch × time. A view never owns, never allocates and includes no Eigen; see core/eigen.hpp for conversions.
template <class T, class Device = Cpu>
struct View {
  using Scalar = std::remove_const_t<T>;

  T* data = nullptr;
  Index rows = 0;
  Index cols = 0;
  Index stride = 0;

  MESO_HOST_DEVICE constexpr Index size() const { return rows * cols; }
  MESO_HOST_DEVICE constexpr bool contiguous() const { return stride == cols || rows <= 1; }
  MESO_HOST_DEVICE constexpr T* row(Index i) const { return data + i * stride; }
  MESO_HOST_DEVICE constexpr T& operator()(Index i, Index j) const { return data[i * stride + j]; }

  MESO_HOST_DEVICE constexpr View block(Index row, Index col, Index block_rows, Index block_cols) const {
    return {data + row * stride + col, block_rows, block_cols, stride};
  }
  constexpr View row_range(Index first, Index count) const { return block(first, 0, count, cols); }
  constexpr View col_range(Index first, Index count) const { return block(0, first, rows, count); }

  /// A view of mutable elements is usable wherever constant ones are wanted.
  /// (A template, because nvcc warns of a conversion of View<const T> to itself, constraint or not.)
  template <class U>
  requires(std::is_same_v<U, T> && !std::is_const_v<T>) constexpr operator View<const U, Device>() const {
    return {data, rows, cols, stride};
  }
};

/// A contiguous (rows, cols) view that starts at `data`.
template <class T>
constexpr View<T> contiguous_view(T* data, Index rows, Index cols) {
  return {data, rows, cols, cols};
}

/// The argument type of an op that reads: View<const S> in a context where S must not be deduced from it.
template <class S>
using ConstView = View<const std::type_identity_t<S>>;

}  // namespace meso
