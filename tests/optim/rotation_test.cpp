#include <algorithm>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <meso/optim.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/random.hpp"
#include "support/tolerance.hpp"

using namespace meso;
using meso::test::within;
using Matrix = RowMajorMatrix<double>;

namespace {

constexpr double u64 = test::unit_roundoff<double>;

static_assert(Rotation<NoRotation, float> && Rotation<IdentityRotation, float> && Rotation<SignedPermutation, float>);
static_assert(Rotation<DenseRotation, double> && Rotation<KroneckerRotation, double> &&
              Rotation<HadamardRotation, double>);

/// A rotation of a user: any orthogonal matrix on the flattened parameter.
struct GivenRotation {
  Matrix q;

  struct Plan {
    Matrix q;
    template <class Products>
    void rotate(CpuContext<Products>&, View<const double> in, View<double> out) const {
      for (Index i = 0; i < q.rows(); ++i) {
        out.data[i] = 0;
        for (Index j = 0; j < q.cols(); ++j) out.data[i] += q(i, j) * in.data[j];
      }
    }
    template <class Products>
    void rotate_back(CpuContext<Products>&, View<const double> in, View<double> out) const {
      for (Index i = 0; i < q.rows(); ++i) {
        out.data[i] = 0;
        for (Index j = 0; j < q.cols(); ++j) out.data[i] += q(j, i) * in.data[j];
      }
    }
  };
  template <class S>
  Plan prepare(std::string_view, Index, Index) const {
    return {q};
  }
};
static_assert(Rotation<GivenRotation, double>);

/// The D × D matrix of a plan, column by column; `back` takes rotate_back.
template <class S, class Plan>
RowMajorMatrix<S> matrix_of(const Plan& plan, Index rows, Index cols, bool back = false) {
  CpuContext<> context(1);
  const Index size = rows * cols;
  RowMajorMatrix<S> q(size, size), unit(rows, cols), image(rows, cols);
  for (Index k = 0; k < size; ++k) {
    unit.setZero();
    unit.data()[k] = S(1);
    if (back)
      plan.rotate_back(context, test::cview(unit), view(image));
    else
      plan.rotate(context, test::cview(unit), view(image));
    for (Index i = 0; i < size; ++i) q(i, k) = image.data()[i];
  }
  return q;
}

template <class S, class R>
RowMajorMatrix<S> matrix_of_rotation(const R& rotation, Index rows, Index cols, std::string_view name = "theta") {
  return matrix_of<S>(rotation.template prepare<S>(name, rows, cols), rows, cols);
}

/// max |QᵀQ − I| in plain loops.
template <class S>
double defect(const RowMajorMatrix<S>& q) {
  double worst = 0;
  for (Index i = 0; i < q.cols(); ++i)
    for (Index j = 0; j < q.cols(); ++j) {
      double sum = i == j ? -1 : 0;
      for (Index k = 0; k < q.rows(); ++k) sum += static_cast<double>(q(k, i)) * static_cast<double>(q(k, j));
      worst = std::max<double>(worst, std::abs(sum));
    }
  return worst;
}

template <class S, class R>
void check_orthogonal(const R& rotation, const std::vector<std::pair<Index, Index>>& shapes) {
  for (const auto& [rows, cols] : shapes) {
    BOOST_TEST_CONTEXT("shape (" << rows << ", " << cols << ")") {
      const auto plan = rotation.template prepare<S>("w", rows, cols);
      const RowMajorMatrix<S> q = matrix_of<S>(plan, rows, cols), back = matrix_of<S>(plan, rows, cols, true);
      // Columns are computed to (rows + cols + 16)·u in norm and multiplied pairwise.
      const double tolerance = 2 * static_cast<double>(rows + cols + 16) * test::unit_roundoff<S>;
      BOOST_TEST(defect(q) <= tolerance);
      BOOST_TEST((back - RowMajorMatrix<S>(q.transpose())).cwiseAbs().maxCoeff() <= static_cast<S>(tolerance));
    }
  }
}

const std::vector<std::pair<Index, Index>> shapes = {{1, 1}, {1, 2},  {1, 7},   {1, 16}, {3, 1},
                                                     {5, 3}, {8, 16}, {20, 33}, {2, 3},  {17, 4}};

/// Gradient of a smooth function that is not separable, so that no basis is special: f = Σ cos(a·θ + k) over five a.
Matrix slope(const Matrix& theta) {
  Matrix g = Matrix::Zero(theta.rows(), theta.cols());
  for (Index k = 0; k < 5; ++k) {
    const Matrix a = test::gaussian<double>(theta.rows(), theta.cols(), static_cast<std::uint64_t>(40 + k), 0.5);
    double dot = static_cast<double>(k);
    for (Index i = 0; i < theta.size(); ++i) dot += a.data()[i] * theta.data()[i];
    for (Index i = 0; i < theta.size(); ++i) g.data()[i] -= std::sin(dot) * a.data()[i];
  }
  return g;
}

/// Q or Qᵀ times the flattened x.
Matrix times(const Matrix& q, const Matrix& x, bool transpose = false) {
  Matrix y = Matrix::Zero(x.rows(), x.cols());
  for (Index i = 0; i < q.rows(); ++i)
    for (Index j = 0; j < q.cols(); ++j) y.data()[i] += (transpose ? q(j, i) : q(i, j)) * x.data()[j];
  return y;
}

bool near(const Matrix& a, const Matrix& b, double tolerance) { return (a - b).cwiseAbs().maxCoeff() <= tolerance; }

}  // namespace

BOOST_AUTO_TEST_SUITE(optim_rotation)

// --- Haar

// The factorization as it is defined, one reflection at a time: the blocked one must agree.
BOOST_AUTO_TEST_CASE(haar_equals_the_unblocked_product_of_reflections) {
  for (const Index n : {1, 2, 3, 31, 32, 33, 70}) {
    const Random random{5, 9};
    Matrix q = Matrix::Zero(n, n);
    for (Index k = n - 1; k >= 0; --k) {
      std::vector<double> v;
      double norm = 0;
      for (Index i = 0; i < n - k; ++i) {
        v.push_back(random.normal(static_cast<std::uint64_t>(k * n + i)));
        norm += v.back() * v.back();
      }
      norm = std::sqrt(norm);
      const double sign = v[0] < 0 ? -1 : 1;
      q(k, k) = k == n - 1 ? sign : -sign;
      if (k == n - 1) continue;
      v[0] += sign * norm;
      double square = 0;
      for (const double x : v) square += x * x;
      for (Index j = k; j < n; ++j) {
        double dot = 0;
        for (Index i = k; i < n; ++i) dot += v[static_cast<std::size_t>(i - k)] * q(i, j);
        for (Index i = k; i < n; ++i) q(i, j) -= 2 * dot / square * v[static_cast<std::size_t>(i - k)];
      }
    }
    const Matrix fast = haar_matrix<double>(n, random);
    BOOST_TEST_CONTEXT("n " << n) {
      BOOST_TEST(near(fast, q, static_cast<double>(8 * n) * u64));
      BOOST_TEST(defect(fast) <= static_cast<double>(8 * n + 8) * u64);
    }
  }
}

// Q is the factor of a Gaussian matrix with positive diagonal of R: QᵀG is upper triangular and positive there. The
// first column of G is what the reflections start from, so it is parallel to the first column of Q.
BOOST_AUTO_TEST_CASE(first_column_of_haar_is_the_normalized_gaussian) {
  const Index n = 40;
  const Random random{6, 1};
  const Matrix q = haar_matrix<double>(n, random);
  double norm = 0;
  for (Index i = 0; i < n; ++i) norm += std::pow(random.normal(static_cast<std::uint64_t>(i)), 2);
  for (Index i = 0; i < n; ++i)
    BOOST_TEST(within(q(i, 0), random.normal(static_cast<std::uint64_t>(i)) / std::sqrt(norm), 256 * u64));
}

// For Haar on O(n) the moments of the trace are those of N(0, 1) up to order n: E t = 0, E t² = 1, E t⁴ = 3. With N
// samples the standard errors are √(1/N), √(2/N), √(96/N); the test allows five of them. Without the signs of R, E t²
// is about 0.5, ten standard errors away.
BOOST_AUTO_TEST_CASE(haar_has_the_moments_of_the_haar_measure) {
  const int samples = 2000;
  const Index n = 8;
  double sum1 = 0, sum2 = 0, sum4 = 0;
  for (int k = 0; k < samples; ++k) {
    const double t = haar_matrix<double>(n, Random{11, static_cast<std::uint64_t>(k)}).trace();
    sum1 += t;
    sum2 += t * t;
    sum4 += t * t * t * t;
  }
  BOOST_TEST(std::abs(sum1 / samples) <= 5 * std::sqrt(1.0 / samples));
  BOOST_TEST(std::abs(sum2 / samples - 1) <= 5 * std::sqrt(2.0 / samples));
  BOOST_TEST(std::abs(sum4 / samples - 3) <= 5 * std::sqrt(96.0 / samples));
}

// Both components of O(n) have probability 1/2; for n = 1 these are the values ±1.
BOOST_AUTO_TEST_CASE(haar_reaches_both_determinants) {
  const int samples = 2000;
  int positive1 = 0, positive2 = 0;
  for (int k = 0; k < samples; ++k) {
    const Random random{12, static_cast<std::uint64_t>(k)};
    const double one = haar_matrix<double>(1, random)(0, 0);
    BOOST_REQUIRE(std::abs(one) == 1.0);
    const Matrix two = haar_matrix<double>(2, random);
    positive1 += one > 0;
    positive2 += two(0, 0) * two(1, 1) - two(0, 1) * two(1, 0) > 0;
  }
  for (const int positive : {positive1, positive2})
    BOOST_TEST(std::abs(positive - samples / 2) <= 5 * std::sqrt(samples * 0.25));
}

BOOST_AUTO_TEST_CASE(haar_in_float_is_the_rounded_one) {
  const Random random{1, 1};
  const Matrix wide = haar_matrix<double>(20, random);
  const RowMajorMatrix<float> narrow = haar_matrix<float>(20, random);
  for (Index i = 0; i < wide.size(); ++i) BOOST_TEST(narrow.data()[i] == static_cast<float>(wide.data()[i]));
}

BOOST_AUTO_TEST_CASE(haar_rejects_a_rectangle) {
  Matrix q(3, 4);
  BOOST_CHECK_THROW(haar_matrix(Random{}, view(q)), std::invalid_argument);
}

// --- orthogonality of every rotation

BOOST_AUTO_TEST_CASE(dense_is_orthogonal) {
  check_orthogonal<double>(DenseRotation{3}, shapes);
  check_orthogonal<float>(DenseRotation{3}, {{1, 1}, {5, 3}, {8, 16}});
}
BOOST_AUTO_TEST_CASE(kronecker_is_orthogonal) {
  check_orthogonal<double>(KroneckerRotation{3}, shapes);
  check_orthogonal<double>(KroneckerRotation{3, 5}, shapes);
  check_orthogonal<float>(KroneckerRotation{3, 7}, shapes);
}
BOOST_AUTO_TEST_CASE(hadamard_is_orthogonal) {
  check_orthogonal<double>(HadamardRotation{3}, shapes);
  check_orthogonal<float>(HadamardRotation{3}, shapes);
}
BOOST_AUTO_TEST_CASE(signed_permutation_is_orthogonal_and_keeps_the_axes) {
  check_orthogonal<double>(SignedPermutation{3}, shapes);
  const Matrix q = matrix_of_rotation<double>(SignedPermutation{3}, 5, 4);
  int moved = 0, negative = 0;
  for (Index i = 0; i < 20; ++i) {
    BOOST_TEST(q.row(i).cwiseAbs().sum() == 1.0);
    moved += q(i, i) == 0;
    negative += q.row(i).sum() < 0;
  }
  BOOST_TEST(moved > 10);
  BOOST_TEST(negative > 0);
  BOOST_TEST(negative < 20);
}

// --- structure

BOOST_AUTO_TEST_CASE(kronecker_is_a_product_of_one_matrix_an_axis) {
  const Index rows = 6, cols = 9;
  const auto plan = KroneckerRotation{21}.prepare<double>("w", rows, cols);
  const Matrix q = matrix_of<double>(plan, rows, cols);
  const View<const double> a = plan.rows[0].matrix(), b = plan.cols[0].matrix();
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < cols; ++j)
      for (Index k = 0; k < rows; ++k)
        for (Index l = 0; l < cols; ++l)
          BOOST_REQUIRE(within(q(i * cols + j, k * cols + l), a(i, k) * b(j, l), 4 * u64));
}

BOOST_AUTO_TEST_CASE(kronecker_cuts_long_axes_into_nearly_equal_blocks) {
  for (const Index max_dim : {3, 4, 8, 100})
    for (Index size = 1; size <= 40; ++size) {
      const auto plan = KroneckerRotation{1, max_dim}.prepare<float>("w", 1, size);
      BOOST_TEST(plan.rows.empty());
      BOOST_TEST(static_cast<Index>(plan.cols.size()) == (size + max_dim - 1) / max_dim);
      Index next = 0, smallest = size, largest = 0;
      for (const auto& block : plan.cols) {
        BOOST_TEST(block.first == next);
        next += block.size;
        smallest = std::min<Index>(smallest, block.size);
        largest = std::max<Index>(largest, block.size);
      }
      BOOST_TEST(next == size);
      BOOST_TEST(largest <= max_dim);
      BOOST_TEST(largest - smallest <= 1);
      BOOST_TEST((smallest > 1 || size == 1));
    }
  // Blocks of one axis are independent of each other.
  const auto plan = KroneckerRotation{1, 8}.prepare<double>("w", 1, 16);
  BOOST_TEST(plan.cols[0].matrix()(0, 0) != plan.cols[1].matrix()(0, 0));
}

// On a power of two Q = H·diag(signs)/√p, with the Sylvester matrix H_ij = (−1)^popcount(i & j).
BOOST_AUTO_TEST_CASE(hadamard_of_a_power_of_two_is_sylvesters) {
  for (const Index p : {1, 2, 4, 8, 64}) {
    const Matrix q = matrix_of_rotation<double>(HadamardRotation{4}, 1, p);
    int negative = 0;
    for (Index j = 0; j < p; ++j) {
      BOOST_REQUIRE(within(std::abs(q(0, j)), 1 / std::sqrt(static_cast<double>(p)), 8 * u64));
      negative += q(0, j) < 0;
      for (Index i = 0; i < p; ++i) {
        const double sign = std::popcount(static_cast<unsigned>(i & j)) % 2 ? -1 : 1;
        BOOST_REQUIRE(within(q(i, j), sign * q(0, j), 8 * u64));
      }
    }
    if (p == 64) BOOST_TEST(std::abs(negative - 32) <= 20);  // signs are fair: five standard deviations
  }
}

// Two passes that overlap: every output mixes at least p/2 inputs, and so no channel stays an axis.
BOOST_AUTO_TEST_CASE(hadamard_of_other_lengths_leaves_no_channel_alone) {
  for (const Index d : {3, 5, 7, 9, 12, 31, 33, 48, 100}) {
    const Matrix q = matrix_of_rotation<double>(HadamardRotation{4}, 1, d);
    BOOST_TEST_CONTEXT("d " << d) {
      BOOST_TEST(defect(q) <= 64 * u64);
      for (Index i = 0; i < d; ++i) {
        // Entries are sums of at most p products ±1/p, each of the first pass alone 1/√p: none reaches 1 when p ≥ 2.
        BOOST_TEST(q.row(i).cwiseAbs().maxCoeff() < 0.9999);
        BOOST_TEST(q.col(i).cwiseAbs().maxCoeff() < 0.9999);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(hadamard_transforms_both_axes) {
  const Index rows = 20, cols = 33;  // neither a power of two nor a multiple of a cache line
  const Matrix q = matrix_of_rotation<double>(HadamardRotation{4}, rows, cols);
  const Matrix b = matrix_of_rotation<double>(HadamardRotation{4}, 1, cols);
  // Q = A ⊗ B, where B is the map of a vector of that name; A follows from any entry of B.
  const Matrix a = [&] {
    Matrix m(rows, rows);
    for (Index i = 0; i < rows; ++i)
      for (Index k = 0; k < rows; ++k) m(i, k) = q(i * cols, k * cols) / b(0, 0);
    return m;
  }();
  BOOST_TEST(std::abs(b(0, 0)) > 0.1);
  BOOST_TEST(defect(a) <= 4096 * u64);
  double worst = 0;
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < cols; ++j)
      for (Index k = 0; k < rows; ++k)
        for (Index l = 0; l < cols; ++l)
          worst = std::max<double>(worst, std::abs(q(i * cols + j, k * cols + l) - a(i, k) * b(j, l)));
  BOOST_TEST(worst <= 256 * u64);
}

template <class R>
void check_key() {
  const auto q = [](std::uint64_t seed, std::string_view name) {
    return matrix_of_rotation<double>(R{seed}, 4, 4, name);
  };
  BOOST_TEST((q(1, "a") == q(1, "a")));
  BOOST_TEST((q(1, "a") != q(2, "a")));
  BOOST_TEST((q(1, "a") != q(1, "b")));
}
BOOST_AUTO_TEST_CASE(q_depends_on_seed_name_and_axis) {
  check_key<DenseRotation>();
  check_key<KroneckerRotation>();
  check_key<HadamardRotation>();
  check_key<SignedPermutation>();
  const auto plan = KroneckerRotation{1}.prepare<double>("a", 4, 4);
  BOOST_TEST((map(plan.rows[0].matrix()) != map(plan.cols[0].matrix())));
  // … and on nothing else: the axis of columns is the same whatever the rows are.
  const auto wide = KroneckerRotation{1}.prepare<double>("a", 9, 4);
  BOOST_TEST((map(wide.cols[0].matrix()) == map(plan.cols[0].matrix())));
}

BOOST_AUTO_TEST_CASE(one_element_is_plus_or_minus_one) {
  int positive[3] = {};
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    const double q[] = {matrix_of_rotation<double>(DenseRotation{seed}, 1, 1)(0, 0),
                        matrix_of_rotation<double>(KroneckerRotation{seed}, 1, 1)(0, 0),
                        matrix_of_rotation<double>(HadamardRotation{seed}, 1, 1)(0, 0)};
    for (int k = 0; k < 3; ++k) {
      BOOST_TEST(std::abs(q[k]) == 1.0);
      positive[k] += q[k] > 0;
    }
  }
  for (const int count : positive) BOOST_TEST(std::abs(count - 32) <= 20);  // five standard deviations
}

BOOST_AUTO_TEST_CASE(a_dense_rotation_too_large_to_store_says_so) {
  const auto message_of = [](const auto& f) -> std::string {
    try {
      f();
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "";
  };
  const std::string what = message_of([] { DenseRotation{}.prepare<float>("block0.up", 128, 64); });
  for (const char* part :
       {"block0.up", "(128, 64)", "8192 elements", "2.68435e+08 bytes", "too large to store", "4096"})
    BOOST_TEST(what.find(part) != std::string::npos, what << " lacks " << part);
  // The first step fails as a whole: nothing has moved.
  OrthoAdam<DenseRotation> optimizer({}, {.max_elements = 8});
  ParameterLayout layout;
  layout.add("small", 2, 4, ParameterKind::matrix);
  layout.add("large", 3, 3, ParameterKind::matrix);
  Parameters<double> theta(layout), g(layout);
  g["small"](0, 0) = 1;
  CpuContext<> context(2);
  BOOST_CHECK_THROW(optimizer.step(context, theta, g), std::invalid_argument);
  BOOST_TEST(map(theta["small"]).isZero());
  BOOST_TEST(optimizer.steps() == 0);
  theta.layout["large"].frozen = true;  // a frozen parameter needs no rotation
  optimizer.step(context, theta, g);
  BOOST_TEST(!map(theta["small"]).isZero());
}

// --- what rotations mean for optimizers

template <class R>
void check_sgd_invariant(const R& rotation) {
  Matrix a = test::gaussian<double>(5, 4, 1), b = a;
  const SgdRule rule{.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true};
  Sgd plain(rule);
  Optimizer<SgdRule, R> rotated(rule, rotation);
  for (int step = 0; step < 20; ++step) {
    plain.step(a, slope(a));
    rotated.step(b, slope(b));
  }
  BOOST_TEST(near(a, b, 1e-13));
}
BOOST_AUTO_TEST_CASE(sgd_is_invariant_under_every_rotation) {
  check_sgd_invariant(DenseRotation{2});
  check_sgd_invariant(KroneckerRotation{2});
  check_sgd_invariant(KroneckerRotation{2, 3});
  check_sgd_invariant(HadamardRotation{2});
  check_sgd_invariant(SignedPermutation{2});
}

// OrthoAdam on f is Adam on f(Qᵀφ) from φ₀ = Qθ₀: φ_t = Qθ_t. With ε large enough to keep the map well conditioned.
template <class R>
void check_adam_in_the_rotated_basis(const R& rotation) {
  const Matrix q = matrix_of_rotation<double>(rotation, 5, 4);
  Matrix theta = test::gaussian<double>(5, 4, 1), phi = times(q, theta);
  OrthoAdam<R> ortho({.learning_rate = 0.01, .beta2 = 0.95, .epsilon = 1e-3}, rotation);
  Adam adam({.learning_rate = 0.01, .beta2 = 0.95, .epsilon = 1e-3});
  const Matrix before = theta;
  for (int step = 0; step < 20; ++step) {
    ortho.step(theta, slope(theta));
    adam.step(phi, times(q, slope(times(q, phi, true))));
    BOOST_TEST(near(phi, times(q, theta), 1e-13));
  }
  BOOST_TEST(!near(theta, before, 1e-2));
}
BOOST_AUTO_TEST_CASE(ortho_adam_is_adam_in_the_rotated_basis) {
  check_adam_in_the_rotated_basis(DenseRotation{2});
  check_adam_in_the_rotated_basis(KroneckerRotation{2});
  check_adam_in_the_rotated_basis(KroneckerRotation{2, 3});
  check_adam_in_the_rotated_basis(HadamardRotation{2});
}

// OrthoAdam with QRᵀ on the R-rotated problem f(Rᵀψ) gives ψ_t = Rθ_t.
BOOST_AUTO_TEST_CASE(ortho_adam_is_covariant) {
  const Matrix q = haar_matrix<double>(20, Random{1, 1}), r = haar_matrix<double>(20, Random{1, 2});
  Matrix qrt = Matrix::Zero(20, 20);
  for (Index i = 0; i < 20; ++i)
    for (Index j = 0; j < 20; ++j)
      for (Index k = 0; k < 20; ++k) qrt(i, j) += q(i, k) * r(j, k);
  Matrix theta = test::gaussian<double>(5, 4, 1), psi = times(r, theta);
  const OrthoAdamRule rule{.learning_rate = 0.01, .epsilon = 1e-3, .weight_decay = 0.1};
  OrthoAdam<GivenRotation> a(rule, {q}), b(rule, {qrt});
  for (int step = 0; step < 20; ++step) {
    a.step(theta, slope(theta));
    b.step(psi, times(r, slope(times(r, psi, true))));
    BOOST_TEST(near(psi, times(r, theta), 1e-13));
  }
}

// Identity and signed permutations only relabel what Adam does; a Haar rotation does something else.
template <class S, class R>
double largest_difference_in_ulp(const R& rotation) {
  RowMajorMatrix<S> a = test::gaussian<S>(13, 11, 1), b = a;
  Adam adam({.learning_rate = 1e-3});
  Optimizer<AdamRule, R> rotated({.learning_rate = 1e-3}, rotation);
  for (int step = 0; step < 10; ++step) {
    const RowMajorMatrix<S> g = test::gaussian<S>(13, 11, static_cast<std::uint64_t>(100 + step));
    adam.step(a, g);
    rotated.step(b, g);
  }
  double worst = 0;
  for (Index i = 0; i < a.size(); ++i) {
    // ulp of |θ| or of lr, whichever is larger: an element may pass through 0
    const double x = static_cast<double>(a.data()[i]), scale = std::max<double>(std::abs(x), 1e-2);
    const double ulp = std::exp2(std::floor(std::log2(scale))) * 2 * test::unit_roundoff<S>;
    worst = std::max<double>(worst, std::abs(x - static_cast<double>(b.data()[i])) / ulp);
  }
  return worst;
}
BOOST_AUTO_TEST_CASE(identity_and_signed_permutation_equal_adam) {
  BOOST_TEST(largest_difference_in_ulp<double>(IdentityRotation{}) <= 4);
  BOOST_TEST(largest_difference_in_ulp<float>(IdentityRotation{}) <= 4);
  BOOST_TEST(largest_difference_in_ulp<double>(SignedPermutation{8}) <= 4);
  BOOST_TEST(largest_difference_in_ulp<float>(SignedPermutation{8}) <= 4);
  BOOST_TEST(largest_difference_in_ulp<float>(KroneckerRotation{8}) > 1000);
  BOOST_TEST(largest_difference_in_ulp<float>(DenseRotation{8}) > 1000);
  BOOST_TEST(largest_difference_in_ulp<float>(HadamardRotation{8}) > 1000);
}

// A column-major matrix is the same parameter: Q's axes are the matrix's, not the storage's.
BOOST_AUTO_TEST_CASE(storage_order_does_not_matter) {
  Matrix a = test::gaussian<double>(6, 9, 1);
  Eigen::MatrixXd b = a;
  OrthoAdam<> x, y;
  for (int step = 0; step < 3; ++step) {
    const Matrix g = test::gaussian<double>(6, 9, static_cast<std::uint64_t>(step));
    x.step(a, g);
    y.step(b, Eigen::MatrixXd(g));
  }
  BOOST_TEST((a == b));
}

BOOST_AUTO_TEST_SUITE_END()
