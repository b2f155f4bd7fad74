#pragma once
#include <Eigen/Core>
#include <type_traits>

#include <meso/core/view.hpp>

namespace meso {

/// Row-major dynamic matrix: the storage order of every matrix that the library returns on its own account.
template <class S>
using RowMajorMatrix = Eigen::Matrix<S, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Row-major Eigen map of a view; no copy. Use map(v).array() for element-wise work.
template <class T>
using ViewMap = Eigen::Map<std::conditional_t<std::is_const_v<T>, const RowMajorMatrix<std::remove_const_t<T>>,
                                              RowMajorMatrix<std::remove_const_t<T>>>,
                           0, Eigen::OuterStride<>>;

template <class T>
ViewMap<T> map(const View<T>& view) {
  return ViewMap<T>(view.data, view.rows, view.cols, Eigen::OuterStride<>(view.stride));
}

/// One contiguous run of scalars as an Eigen column array: what row-wise policies read and write.
/// Pass and take it by value: it is a pointer and a length.
template <class S>
using Array = Eigen::Map<Eigen::Array<S, Eigen::Dynamic, 1>>;
template <class S>
using ConstArray = Eigen::Map<const Eigen::Array<S, Eigen::Dynamic, 1>>;

template <class S>
Array<S> array(S* data, Index size) {
  return Array<S>(data, size);
}
template <class S>
ConstArray<S> array(const S* data, Index size) {
  return ConstArray<S>(data, size);
}

/// Row i of a view as an array.
template <class T>
auto row_array(const View<T>& view, Index i) {
  return array(view.row(i), view.cols);
}

namespace detail {
template <class Derived>
constexpr bool is_row_major = Derived::IsRowMajor || Derived::ColsAtCompileTime == 1;
}

/// View of a row-major matrix, map or block (or of a vector: n × 1); no copy.
/// A column-major matrix is rejected at compile time, because a view of it would be its transpose.
template <class Derived>
View<typename Derived::Scalar> view(Eigen::PlainObjectBase<Derived>& x) {
  static_assert(detail::is_row_major<Derived>,
                "meso::view needs a row-major matrix (Eigen::RowMajor); the in-place entries do not copy");
  return {x.derived().data(), x.rows(), x.cols(), Derived::ColsAtCompileTime == 1 ? 1 : x.derived().outerStride()};
}
template <class Derived>
View<const typename Derived::Scalar> view(const Eigen::PlainObjectBase<Derived>& x) {
  static_assert(detail::is_row_major<Derived>,
                "meso::view needs a row-major matrix (Eigen::RowMajor); the in-place entries do not copy");
  return {x.derived().data(), x.rows(), x.cols(), Derived::ColsAtCompileTime == 1 ? 1 : x.derived().outerStride()};
}

}  // namespace meso
