#pragma once
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <meso/core/eigen.hpp>
#include <meso/io/npy.hpp>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/random.hpp"
#include "tests/support/tolerance.hpp"

/// What PyTorch computed in double, from the files that generate.py wrote. Inputs are exact in float, so that every
/// case runs in float and in double.
namespace meso::test::golden {

using Scalars = std::tuple<float, double>;

/// The folder of the files: $MESO_GOLDEN, else that of a run from the project's root.
inline std::filesystem::path file(const std::string& name) {
  const char* const folder = std::getenv("MESO_GOLDEN");
  return std::filesystem::path(folder && *folder ? folder : "tests/golden/data") / (name + ".npy");
}

/// An array as a matrix: the last dimension as columns.
template <class S>
RowMajorMatrix<S> load(const std::string& name) {
  const auto array = io::read_npy<S>(file(name));
  return map(array.view());
}
inline std::vector<std::int32_t> load_integers(const std::string& name) {
  return io::read_npy<std::int32_t>(file(name)).values;
}

/// One rounding of the library and one of PyTorch: both sides of a comparison err, and by the same bounds.
template <class S>
inline constexpr double roundings = unit_roundoff<S> + unit_roundoff<double>;

/// |actual − golden| ≤ bound(i, j)·(u_S + 2⁻⁵³) + 64 of the smallest normal number, below which e^x is flushed to 0.
template <class S, class Bound>
boost::test_tools::assertion_result agrees(const std::string& name, const View<const S>& actual, Bound&& bound) {
  const RowMajorMatrix<double> expected = load<double>(name);
  std::ostringstream text;
  text.precision(17);
  text << name;
  if (expected.rows() != actual.rows || expected.cols() != actual.cols) {
    boost::test_tools::assertion_result failure(false);
    text << " is (" << expected.rows() << ", " << expected.cols() << ") but the result is (" << actual.rows << ", "
         << actual.cols << ")";
    failure.message() << text.str();
    return failure;
  }
  for (Index i = 0; i < actual.rows; ++i)
    for (Index j = 0; j < actual.cols; ++j) {
      const double a = static_cast<double>(actual(i, j)), e = expected(i, j);
      const double tolerance = bound(i, j) * roundings<S> + 64 * static_cast<double>((std::numeric_limits<S>::min)());
      if (std::abs(a - e) <= tolerance) continue;
      boost::test_tools::assertion_result failure(false);
      text << " (" << i << ", " << j << "): " << a << " against " << e << ", error " << std::abs(a - e)
           << " > tolerance " << tolerance;
      failure.message() << text.str();
      return failure;
    }
  return boost::test_tools::assertion_result(true);
}
template <class S, class Bound>
boost::test_tools::assertion_result agrees(const std::string& name, const RowMajorMatrix<S>& actual, Bound&& bound) {
  return agrees<S>(name, view(actual), bound);
}

/// The largest absolute value, 0 of nothing.
template <class Derived>
double largest(const Eigen::DenseBase<Derived>& x) {
  return x.size() ? static_cast<double>(x.derived().array().abs().maxCoeff()) : 0.0;
}

}  // namespace meso::test::golden
