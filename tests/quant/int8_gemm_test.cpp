#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <meso/core/eigen.hpp>
#include <meso/core/random.hpp>
#include <meso/quant/int8_gemm.hpp>
#include <stdexcept>
#include <vector>

namespace {

using namespace meso;

using Int8Matrix = RowMajorMatrix<std::int8_t>;
using Int32Matrix = RowMajorMatrix<std::int32_t>;

Int8Matrix random_matrix(Index rows, Index cols, std::uint64_t stream) {
  const Random random{5, stream};
  Int8Matrix x(rows, cols);
  for (Index i = 0; i < x.size(); ++i)
    x.data()[i] = static_cast<std::int8_t>(random.below(static_cast<std::uint64_t>(i), 255) - 127);
  return x;
}

/// Sums in int64.
void check_product(const View<const std::int8_t>& a, const View<const std::int8_t>& b,
                   const View<const std::int32_t>& c) {
  for (Index i = 0; i < a.rows; ++i)
    for (Index j = 0; j < b.rows; ++j) {
      std::int64_t sum = 0;
      for (Index p = 0; p < a.cols; ++p) sum += std::int64_t{a(i, p)} * b(j, p);
      if (sum != c(i, j)) {
        BOOST_ERROR("c(" << i << ", " << j << ") = " << c(i, j) << " instead of " << sum);
        return;
      }
    }
  BOOST_TEST(true);
}

BOOST_AUTO_TEST_SUITE(int8_products)

BOOST_AUTO_TEST_CASE(exact_on_odd_shapes_and_for_any_number_of_threads) {
  const Index shapes[][3] = {{1, 1, 1}, {3, 5, 7},    {4, 4, 32},    {5, 9, 33},    {64, 64, 512},
                             {0, 3, 4}, {3, 0, 4},    {65, 63, 513}, {67, 130, 31}, {2, 3, 1100},
                             {7, 2, 0}, {129, 1, 64}, {1, 200, 96}};
  for (const auto& [m, n, k] : shapes) {
    const Int8Matrix a = random_matrix(m, k, 1), b = random_matrix(n, k, 2);
    Int32Matrix expected;
    for (const int threads : {1, 2, 3}) {
      CpuContext<> context(threads);
      Int32Matrix c = Int32Matrix::Constant(m, n, 77);
      int8_gemm(context, view(a), view(b), view(c));
      check_product(view(a), view(b), view(std::as_const(c)));
      if (threads == 1) expected = c;
      BOOST_TEST((c == expected));
    }
  }
}

BOOST_AUTO_TEST_CASE(windows_with_a_stride) {
  const Int8Matrix a = random_matrix(40, 90, 3), b = random_matrix(50, 80, 4);
  Int32Matrix c = Int32Matrix::Constant(45, 60, -5);
  CpuContext<> context(2);
  const View<const std::int8_t> left = view(a).block(2, 5, 33, 70), right = view(b).block(7, 1, 41, 70);
  const View<std::int32_t> window = view(c).block(3, 4, 33, 41);
  int8_gemm(context, left, right, window);
  check_product(left, right, window);
  c.block(3, 4, 33, 41).setConstant(-5);
  BOOST_TEST((c.array() == -5).all());  // nothing else was written
}

BOOST_AUTO_TEST_CASE(the_largest_depth_is_exact) {
  // 127²·133,144 = 2,147,479,576 ≤ 2³¹ − 1, but 127²·133,145 is not.
  const Index k = int8_gemm_max_depth;
  static_assert(127LL * 127 * int8_gemm_max_depth <= 2147483647LL);
  static_assert(127LL * 127 * (int8_gemm_max_depth + 1) > 2147483647LL);
  const Int8Matrix a = Int8Matrix::Constant(1, k, 127);
  Int8Matrix b = Int8Matrix::Constant(2, k, 127);
  b.row(1) *= std::int8_t{-1};
  Int32Matrix c(1, 2);
  CpuContext<> context(1);
  int8_gemm(context, view(a), view(b), view(c));
  BOOST_TEST(c(0, 0) == 2147479576);
  BOOST_TEST(c(0, 1) == -2147479576);
  const Int8Matrix deep = Int8Matrix::Zero(1, k + 1);
  Int32Matrix one(1, 1);
  BOOST_CHECK_THROW(int8_gemm(context, view(deep), view(deep), view(one)), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(shapes_must_fit) {
  const Int8Matrix a = random_matrix(2, 3, 1), b = random_matrix(4, 3, 2), other = random_matrix(4, 2, 2);
  Int32Matrix c(2, 4), wrong(4, 2);
  CpuContext<> context(1);
  BOOST_CHECK_THROW(int8_gemm(context, view(a), view(other), view(c)), std::invalid_argument);
  BOOST_CHECK_THROW(int8_gemm(context, view(a), view(b), view(wrong)), std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
