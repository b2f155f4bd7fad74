#include <Eigen/Core>
#include <boost/test/unit_test.hpp>
#include <meso/core/eigen_products.hpp>
#include <meso/core/gemm.hpp>
#ifdef MESO_WITH_OPENBLAS
#include <meso/core/blas.hpp>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

#include <tuple>

#include "tests/support/random.hpp"
#include "tests/support/tolerance.hpp"

using namespace meso;
using namespace meso::test;

namespace {

struct Case {
  Index m, n, k;
};
constexpr Case cases[] = {{1, 1, 1},
                          {3, 5, 7},
                          {1, 17, 33},
                          {64, 1, 9},
                          {63, 65, 31},
                          {5, 7, 0},
                          {0, 4, 3},
                          // up to 4 rows
                          {1, 600, 300},
                          {4, 65, 513},
                          {2, 7, 0},
                          // up to 512 rows
                          {130, 258, 5},
                          {300, 49, 3},
                          {257, 513, 2},
                          {17, 40, 700},
                          {70, 33, 257},
                          {512, 35, 9},
                          // more
                          {513, 7, 257},
                          {600, 300, 3},
                          {600, 1, 300},
                          // deeper than two runs; sides on both sides of a tile, and of the rows of a pass over it
                          {40, 30, 1030},
                          {150, 170, 530},
                          {300, 310, 7},
                          {310, 300, 7}};

template <class Products, class S>
void against_the_naive_loop(bool ta, bool tb, bool accumulate) {
  for (const Case& c : cases) {
    const RowMajorMatrix<S> a = gaussian<S>(ta ? c.k : c.m, ta ? c.m : c.k, 1);
    const RowMajorMatrix<S> b = gaussian<S>(tb ? c.n : c.k, tb ? c.k : c.n, 2);
    RowMajorMatrix<S> out = gaussian<S>(c.m, c.n, 3);
    const RowMajorMatrix<S> before = out;
    CpuContext<Products> context(2);
    gemm<Products, S>(context, cview(a), cview(b), view(out),
                      {.transpose_a = ta, .transpose_b = tb, .accumulate = accumulate, .alpha = 0.5});
    Index outside = 0;
    for (Index i = 0; i < c.m; ++i) {
      for (Index j = 0; j < c.n; ++j) {
        double sum = 0, magnitude = accumulate ? std::abs(static_cast<double>(before(i, j))) : 0;
        for (Index l = 0; l < c.k; ++l) {
          const double term =
              0.5 * static_cast<double>(ta ? a(l, i) : a(i, l)) * static_cast<double>(tb ? b(j, l) : b(l, j));
          sum += term;
          magnitude += std::abs(term);
        }
        if (accumulate) sum += static_cast<double>(before(i, j));
        // k products and k − 1 sums, the factor alpha, the sum with c: (k + 3) roundings on the longest path.
        const double tolerance = static_cast<double>(c.k + 3) * unit_roundoff<S> * magnitude;
        outside += !within(static_cast<double>(out(i, j)), sum, tolerance);
      }
    }
    BOOST_TEST(outside == 0,
               outside << " elements of (" << c.m << ", " << c.n << ", " << c.k << ") are outside their bound");
  }
}

template <class S, class Products = PackedProducts>
RowMajorMatrix<S> product(Index rows, int threads) {
  const RowMajorMatrix<S> a = gaussian<S>(97, rows, 4), b = gaussian<S>(301, 97, 5), a_rows = a.transpose();
  RowMajorMatrix<S> c(rows, 301);
  CpuContext<Products> context(threads);
  gemm<Products, S>(context, cview(a), cview(b), view(c), {.transpose_a = true, .transpose_b = true});
  gemm<Products, S>(context, cview(a_rows), cview(b), view(c), {.transpose_b = true, .accumulate = true});
  return c;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(gemm_suite)

#ifdef MESO_WITH_OPENBLAS
using Backends = std::tuple<PackedProducts, EigenProducts, Blas>;
#else
using Backends = std::tuple<PackedProducts, EigenProducts>;
#endif

BOOST_AUTO_TEST_CASE_TEMPLATE(agrees_with_the_naive_loop, Products, Backends) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      for (const bool accumulate : {false, true}) {
        against_the_naive_loop<Products, double>(ta, tb, accumulate);
        against_the_naive_loop<Products, float>(ta, tb, accumulate);
      }
}

BOOST_AUTO_TEST_CASE(writes_through_strided_views_only) {
  const RowMajorMatrix<double> a = gaussian<double>(6, 9, 1), b = gaussian<double>(7, 9, 2);
  RowMajorMatrix<double> out = RowMajorMatrix<double>::Constant(10, 12, 99.0);
  CpuContext<> context(2);
  gemm<PackedProducts, double>(context, cview(a).col_range(2, 5), cview(b).col_range(3, 5), view(out).block(2, 3, 6, 7),
                               {.transpose_b = true});
  for (Index i = 0; i < 10; ++i)
    for (Index j = 0; j < 12; ++j) {
      const bool inside = i >= 2 && i < 8 && j >= 3 && j < 10;
      double expected = inside ? 0.0 : 99.0;
      if (inside)
        for (Index l = 0; l < 5; ++l) expected += a(i - 2, 2 + l) * b(j - 3, 3 + l);
      BOOST_TEST(within(out(i, j), expected, inside ? 7 * unit_roundoff<double> * 30 : 0.0));
    }
}

BOOST_AUTO_TEST_CASE(bias_is_added_to_every_row) {
  RowMajorMatrix<float> a(2, 1), b(3, 1), c(2, 3);
  a << 1, 2;
  b << 10, 20, 30;
  const float bias[] = {1, 2, 3};
  CpuContext<> context(1);
  gemm<PackedProducts, float>(context, cview(a), cview(b), view(c), {.transpose_b = true}, bias);
  RowMajorMatrix<float> expected(2, 3);
  expected << 11, 22, 33, 21, 42, 63;
  BOOST_TEST((c.array() == expected.array()).all());
}

// The tiles cover c, each once, and the epilogue sees them finished.
BOOST_AUTO_TEST_CASE_TEMPLATE(epilogue_sees_every_finished_tile, Products, Backends) {
  for (const bool transposed : {false, true})
    for (const Index rows : {2, 150, 600}) {
      const RowMajorMatrix<float> a = gaussian<float>(transposed ? 7 : rows, transposed ? rows : 7, 1),
                                  b = gaussian<float>(7, 300, 2);
      const float bias[300] = {};
      RowMajorMatrix<float> c(rows, 300), copy = RowMajorMatrix<float>::Zero(rows, 300);
      CpuContext<Products> context(2);
      const auto add = [&](const View<float>& tile, Index i, Index j) {
        map(view(copy).block(i, j, tile.rows, tile.cols)) += map(tile);
      };
      gemm<Products, float>(context, cview(a), cview(b), view(c), {.transpose_a = transposed}, bias, add);
      BOOST_TEST((c.array() == copy.array()).all());
      BOOST_TEST(c.array().abs().minCoeff() > 0);
    }
}

BOOST_AUTO_TEST_CASE(wrong_shapes_are_named) {
  RowMajorMatrix<float> a(2, 3), b(4, 5), c(2, 5);
  CpuContext<> context(1);
  BOOST_CHECK_EXCEPTION((gemm<PackedProducts, float>(context, cview(a), cview(b), view(c))), std::invalid_argument,
                        [](const std::exception& e) {
                          return std::string(e.what()) == "gemm: c is (2, 5) but a is (2, 3) and b is (4, 5)";
                        });
}

// The bits must not depend on our threads, OpenMP's default or Eigen's setting; the user's settings stay as they were.
BOOST_AUTO_TEST_CASE(same_bits_for_any_threads) {
  constexpr Index rows[] = {3, 211, 601};
  const RowMajorMatrix<float> reference[] = {product<float>(rows[0], 1), product<float>(rows[1], 1),
                                             product<float>(rows[2], 1)};
  const int eigen_before = Eigen::nbThreads();
  for (const int eigen_threads : {0, 1, 2}) {
    Eigen::setNbThreads(eigen_threads);
    for (const int omp_threads : {1, 2}) {
#ifdef _OPENMP
      const int omp_before = omp_get_max_threads();
      omp_set_num_threads(omp_threads);
#endif
      const int setting = Eigen::nbThreads();
      for (const int threads : {1, 2, 3}) {
        for (int i = 0; i < 3; ++i)
          BOOST_TEST((product<float>(rows[i], threads).array() == reference[i].array()).all());
        BOOST_TEST(Eigen::nbThreads() == setting);
      }
#ifdef _OPENMP
      BOOST_TEST(omp_get_max_threads() == omp_threads);
      omp_set_num_threads(omp_before);
#else
      (void)omp_threads;
#endif
    }
  }
  Eigen::setNbThreads(eigen_before);
}

BOOST_AUTO_TEST_SUITE_END()
