#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <meso/normalizer.hpp>
#include <stdexcept>
#include <vector>

#include "support/gradient_check.hpp"
#include "support/oracle.hpp"
#include "support/tolerance.hpp"

namespace {

using namespace meso;
using namespace meso::test;

template <class S>
RowMajorMatrix<S> matrix(const oracle::Vector& x, Index rows, Index cols) {
  return Eigen::Map<const RowMajorMatrix<double>>(x.data(), rows, cols).template cast<S>();
}

struct Shape {
  Index rows, cols;
};
constexpr Shape shapes[] = {{1, 1}, {1, 5}, {5, 1}, {4, 4}, {3, 7}, {17, 9}, {33, 33}};

template <class S>
void check_against_oracle() {
  for (const Shape s : shapes) {
    for (const Index iterations : {1, 2, 3, 4, 10}) {
      for (const double epsilon : {1.0, 0.5}) {
        const oracle::Vector z = oracle::normal<S>(static_cast<std::uint64_t>(s.rows * 100 + s.cols), s.rows * s.cols);
        const oracle::Vector exact = oracle::sinkhorn(z, s.rows, s.cols, epsilon, iterations);
        const RowMajorMatrix<S> p =
            apply(Sinkhorn{.epsilon = epsilon, .iterations = iterations}, matrix<S>(z, s.rows, s.cols));
        double top = 0;
        for (const double v : z) top = std::max<double>(top, std::abs(v) / epsilon);
        // The docstring's bound; the oracle itself rounds twice a step, and each sum n.
        const double steps = static_cast<double>(iterations + 1), sums = static_cast<double>(s.rows + s.cols);
        const double relative =
            steps * (4 * top + sums + 24) * unit_roundoff<S> + steps * (sums + 2) * unit_roundoff<double>;
        BOOST_TEST(all_within(p.data(), exact.data(), p.size(),
                              [&](Index i) { return relative * exact[static_cast<std::size_t>(i)]; }));
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sinkhorn)

BOOST_AUTO_TEST_CASE(float_meets_its_stated_bound) { check_against_oracle<float>(); }
BOOST_AUTO_TEST_CASE(double_meets_its_stated_bound) { check_against_oracle<double>(); }

// x·(1/ε) is exact for ε = 1; both sides are within |x| + log n + n + 24 of the exact weight.
BOOST_AUTO_TEST_CASE(one_iteration_is_softmax) {
  const RowMajorMatrix<double> z = matrix<double>(oracle::normal(3, 9 * 14, 2), 9, 14);
  const RowMajorMatrix<double> p = apply(Sinkhorn{.iterations = 1}, z), q = apply(Softmax{}, z);
  BOOST_TEST(all_within(p.data(), q.data(), p.size(), [&](Index i) {
    return 2 * (4 * z.cwiseAbs().maxCoeff() + 14 + 14 + 24) * unit_roundoff<double> * q.data()[i];
  }));
}

// After an odd number of half-steps rows sum to 1, after an even number columns sum to rows/cols; in the end both.
BOOST_AUTO_TEST_CASE(marginals) {
  const Index rows = 12, cols = 8;
  const RowMajorMatrix<double> z = matrix<double>(oracle::normal(4, rows * cols), rows, cols);
  const double tolerance = 64 * unit_roundoff<double> * (4 * z.cwiseAbs().maxCoeff() + 20 + 24);
  for (const Index iterations : {3, 4, 400, 401}) {
    const RowMajorMatrix<double> p = apply(Sinkhorn{.iterations = iterations}, z);
    if (iterations % 2 == 1 || iterations > 100)
      for (Index i = 0; i < rows; ++i) BOOST_TEST(within(p.row(i).sum(), 1, tolerance));
    if (iterations % 2 == 0 || iterations > 100)
      for (Index j = 0; j < cols; ++j) BOOST_TEST(within(p.col(j).sum(), 1.5, tolerance));
  }
}

BOOST_AUTO_TEST_CASE(gradients_agree_with_central_differences) {
  for (const Shape s : {Shape{1, 1}, Shape{1, 4}, Shape{4, 1}, Shape{4, 4}, Shape{3, 5}}) {
    for (const Index iterations : {1, 2, 3, 6}) {
      const Sinkhorn normalizer{.epsilon = 0.7, .iterations = iterations};
      oracle::Vector z = oracle::normal(5, s.rows * s.cols);
      const oracle::Vector w = oracle::normal(6, s.rows * s.cols);
      const ScoreMatrix score_matrix{0, s.cols};
      const ConstArray<double> theta = array(static_cast<const double*>(nullptr), 0);
      oracle::Vector p(z.size()), dz(z.size(), -7.0);
      const View<double> pv = contiguous_view(p.data(), s.rows, s.cols);
      const auto f = [&](const double* at) {
        normalizer.forward_matrix(score_matrix, theta, contiguous_view(at, s.rows, s.cols), pv);
        double sum = 0;
        for (std::size_t i = 0; i < w.size(); ++i) sum += w[i] * p[i];
        return sum;
      };
      f(z.data());
      // Each step is a softmax: at most 7 × 64 roundings; Σ|w ∘ p| ≤ max|w|·rows.
      GradientCheck options{.rounding = 512, .magnitude = 4.0 * static_cast<double>(s.rows)};
      normalizer.backward_matrix(score_matrix, theta, contiguous_view<const double>(z.data(), s.rows, s.cols),
                                 View<const double>(pv), contiguous_view<const double>(w.data(), s.rows, s.cols),
                                 contiguous_view(dz.data(), s.rows, s.cols), array(static_cast<double*>(nullptr), 0));
      BOOST_TEST(gradient_agrees(message(s.rows, " × ", s.cols, ", ", iterations, " iterations"), f, z.data(),
                                 static_cast<Index>(z.size()), dz.data(), options));
    }
  }
}

BOOST_AUTO_TEST_CASE(strides_are_respected) {
  RowMajorMatrix<float> z = RowMajorMatrix<float>::Random(6, 11), p = RowMajorMatrix<float>::Constant(6, 13, -7.0f);
  Sinkhorn{}.forward_matrix(ScoreMatrix{0, 9}, array(static_cast<const float*>(nullptr), 0),
                            View<const float>(view(z).block(0, 1, 6, 9)), view(p).block(0, 2, 6, 9));
  const RowMajorMatrix<float> expected = apply(Sinkhorn{}, z.middleCols(1, 9));
  // The alignment of a row moves the order of its sum: both are within the stated bound, 4 steps of 4·1 + 15 + 24.
  BOOST_TEST(((p.middleCols(2, 9) - expected).array().abs() <=
              expected.array() * static_cast<float>(2 * 4 * 43 * unit_roundoff<float>))
                 .all());
  BOOST_TEST((p.leftCols(2).array() == -7.0f).all());
  BOOST_TEST((p.rightCols(2).array() == -7.0f).all());
}

BOOST_AUTO_TEST_CASE(extremes) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const auto p = [](const Eigen::MatrixXf& z) { return apply(Sinkhorn{}, z); };
  BOOST_TEST(p(Eigen::MatrixXf::Constant(5, 5, 1e4f)).allFinite());
  BOOST_TEST(p(Eigen::MatrixXf::Constant(5, 5, -1e4f)).allFinite());
  BOOST_TEST((p(Eigen::MatrixXf::Constant(18, 19, -infinity)).array() == 0.0f).all());
  Eigen::MatrixXf z = Eigen::MatrixXf::Random(20, 21);
  z.row(3).setConstant(-infinity);
  z.col(4).setConstant(-infinity);
  const Eigen::MatrixXf q = p(z);
  BOOST_TEST(q.allFinite());
  BOOST_TEST((q.row(3).array() == 0.0f).all());
  BOOST_TEST((q.col(4).array() == 0.0f).all());
  z(1, 1) = std::numeric_limits<float>::quiet_NaN();
  BOOST_TEST(std::isnan(p(z)(1, 1)));
  BOOST_TEST(p(Eigen::MatrixXf(0, 4)).size() == 0);
  BOOST_TEST(p(Eigen::MatrixXf(4, 0)).size() == 0);
}

BOOST_AUTO_TEST_CASE(bad_arguments_throw) {
  const Eigen::MatrixXf z = Eigen::MatrixXf::Zero(2, 2);
  BOOST_CHECK_THROW(apply(Sinkhorn{.iterations = 0}, z), std::invalid_argument);
  BOOST_CHECK_THROW(apply(Sinkhorn{.epsilon = 0}, z), std::invalid_argument);
  RowMajorMatrix<float> p(2, 3);
  const RowMajorMatrix<float> scores = z;
  BOOST_CHECK_THROW(
      Sinkhorn{}.forward_matrix(ScoreMatrix{}, array(static_cast<const float*>(nullptr), 0), view(scores), view(p)),
      std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
