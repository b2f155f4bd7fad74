#include <Eigen/QR>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <meso/apply.hpp>
#include <meso/norm.hpp>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "support/gradient_check.hpp"
#include "support/oracle.hpp"
#include "support/tolerance.hpp"

namespace {

using namespace meso;
using namespace meso::test;
using oracle::Vector;

using All = std::tuple<LayerNorm, RmsNorm, RmsNormSingle>;
static_assert(Norm<LayerNorm, float> && Norm<LayerNorm, double> && Norm<RmsNorm, float> && Norm<RmsNormSingle, double>);

Vector expected(const LayerNorm& a, const Vector& theta, const Vector& x) {
  const auto middle = theta.begin() + static_cast<Index>(x.size());
  return oracle::layer_norm(x, Vector(theta.begin(), middle), Vector(middle, theta.end()), a.epsilon);
}
Vector expected(const RmsNorm& a, const Vector& theta, const Vector& x) {
  return oracle::rms_norm(x, theta, a.epsilon);
}
Vector expected(const RmsNormSingle& a, const Vector& theta, const Vector& x) {
  return oracle::rms_norm(x, theta, a.epsilon);
}

// The docstrings' bounds in units of u, for channel i of value y. LayerNorm: the mean is off by n·u·max|x|, which moves
// every centered value (n + 1 with its own subtraction); the variance by (n + 5)·u, half of it in r; products 3, sum 1.
double bound(const LayerNorm& a, const Vector& theta, const Vector& x, std::size_t i, double y) {
  const double n = static_cast<double>(x.size()), m = oracle::mean(x);
  double variance = 0, top = 0;
  for (const double v : x) {
    variance += (v - m) * (v - m) / n;
    top = std::max<double>(top, std::abs(v));
  }
  const double r = 1 / std::sqrt(variance + a.epsilon), normalized = r * std::abs(x[i] - m);
  return std::abs(theta[i]) * ((n + 2) * r * top + (n / 2 + 7) * normalized) + std::abs(y);
}
// Σx² is off by (n + 1)·u, half of it in r; root, quotient and products 5.
double bound(const RmsNorm&, const Vector&, const Vector& x, std::size_t, double y) {
  return (static_cast<double>(x.size()) / 2 + 5) * std::abs(y);
}
double bound(const RmsNormSingle&, const Vector&, const Vector& x, std::size_t, double y) {
  return (static_cast<double>(x.size()) / 2 + 5) * std::abs(y);
}

template <class N>
Vector parameters(const N& norm, Index width) {
  // Four to spare: g++ 12 warns of a vector store into one that holds a single number, which it cannot reach.
  Vector theta(static_cast<std::size_t>(norm.parameter_count(width) + 4));
  norm.initialize(width, array(theta.data(), norm.parameter_count(width)));
  theta.resize(static_cast<std::size_t>(norm.parameter_count(width)));
  const Vector noise = oracle::normal<float>(99, norm.parameter_count(width), 0.3);
  for (std::size_t i = 0; i < theta.size(); ++i)
    theta[i] = static_cast<double>(static_cast<float>(theta[i] + noise[i]));
  return theta;
}

template <class S>
RowMajorMatrix<S> matrix(std::uint64_t seed, Index rows, Index cols) {
  const Vector x = oracle::normal<float>(seed, rows * cols);
  return Eigen::Map<const RowMajorMatrix<double>>(x.data(), rows, cols).template cast<S>();
}

template <class S>
struct Run {
  RowMajorMatrix<S> y, saved, dx;
  std::vector<S> dtheta;
};

template <class S, class N>
Run<S> run(int threads, const N& norm, const std::vector<S>& theta, const RowMajorMatrix<S>& x,
           const RowMajorMatrix<S>& dy, const RowMajorMatrix<S>& residual, Accumulate accumulate = Accumulate::no,
           S before = S(0)) {
  CpuContext<> context(threads);
  Run<S> r{RowMajorMatrix<S>(x.rows(), x.cols()), RowMajorMatrix<S>(x.rows(), N::saved_per_row),
           RowMajorMatrix<S>::Constant(x.rows(), x.cols(), S(-7)), std::vector<S>(theta.size(), before)};
  norm_forward(context, norm, theta.data(), view(x), view(r.y), view(r.saved));
  const View<const S> around = residual.size() > 0 ? view(residual) : View<const S>{};
  norm_backward(context, norm, theta.data(), view(x), View<const S>(view(r.saved)), view(dy), around, view(r.dx),
                r.dtheta.data(), accumulate);
  return r;
}

Eigen::MatrixXd random_rotation(Index n) {
  const Eigen::MatrixXd g = matrix<double>(31, n, n);
  const Eigen::HouseholderQR<Eigen::MatrixXd> qr(g);
  return qr.householderQ();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(norm)

BOOST_AUTO_TEST_CASE_TEMPLATE(float_meets_its_stated_bound, N, All) {
  const N norm;
  for (const Index width : {1, 2, 3, 8, 17, 64, 129}) {
    for (const double scale : {1e-3, 1.0, 100.0}) {
      for (const double offset : {0.0, 3.0}) {
        const Vector theta = parameters(norm, width);
        Vector x = oracle::normal<float>(static_cast<std::uint64_t>(width), width, scale);
        for (double& v : x) v = static_cast<double>(static_cast<float>(v + offset * scale));
        const Vector exact = expected(norm, theta, x);
        const Eigen::VectorXf t =
            Eigen::Map<const Eigen::VectorXd>(theta.data(), norm.parameter_count(width)).cast<float>();
        const Eigen::MatrixXf y = apply(norm, t, Eigen::Map<const Eigen::RowVectorXd>(x.data(), width).cast<float>());
        BOOST_TEST(all_within(y.data(), exact.data(), width, [&](Index i) {
          const auto k = static_cast<std::size_t>(i);
          return unit_roundoff<float> * bound(norm, theta, x, k, exact[k]);
        }));
      }
    }
  }
}

// f = Σ dy ∘ norm(x) in x and theta; at most width + 16 roundings each, and the sum.
BOOST_AUTO_TEST_CASE_TEMPLATE(gradients_agree_with_central_differences, N, All) {
  const N norm;
  for (const Index width : {1, 2, 5, 16, 33}) {
    const Index rows = 3, count = norm.parameter_count(width);
    const Vector theta = parameters(norm, width);
    const RowMajorMatrix<double> x = matrix<double>(41, rows, width), dy = matrix<double>(42, rows, width);
    const Run<double> r = run<double>(1, norm, theta, x, dy, {});
    Vector at(x.data(), x.data() + x.size()), analytic(r.dx.data(), r.dx.data() + r.dx.size());
    at.insert(at.end(), theta.begin(), theta.end());
    analytic.insert(analytic.end(), r.dtheta.begin(), r.dtheta.end());
    const auto f = [&](const double* v) {
      const Eigen::Map<const RowMajorMatrix<double>> in(v, rows, width);
      const Eigen::Map<const Eigen::VectorXd> learned(v + rows * width, count);
      return (dy.array() * apply(norm, learned, in).array()).sum();
    };
    const GradientCheck options{.magnitude = (dy.array() * r.y.array()).abs().sum()};
    BOOST_TEST(gradient_agrees(message("width ", width), f, at.data(), static_cast<Index>(at.size()), analytic.data(),
                               options));
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_same_bits_for_any_number_of_threads, N, All) {
  const N norm;
  const Index rows = 200, width = 333;  // 49 rows a tile: 5 tiles, the last one short
  const std::vector<float> theta = oracle::as<float>(parameters(norm, width));
  const RowMajorMatrix<float> x = matrix<float>(51, rows, width), dy = matrix<float>(52, rows, width);
  const RowMajorMatrix<float> residual = matrix<float>(53, rows, width);
  const Run<float> one = run<float>(1, norm, theta, x, dy, residual);
  for (const int threads : {2, 3}) {
    const Run<float> many = run<float>(threads, norm, theta, x, dy, residual);
    BOOST_TEST((one.y.array() == many.y.array()).all());
    BOOST_TEST((one.saved.array() == many.saved.array()).all());
    BOOST_TEST((one.dx.array() == many.dx.array()).all());
    BOOST_TEST((one.dtheta == many.dtheta));
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(residual_and_accumulate, N, All) {
  const N norm;
  const Index rows = 7, width = 5;
  const Vector theta = parameters(norm, width);
  const RowMajorMatrix<double> x = matrix<double>(61, rows, width), dy = matrix<double>(62, rows, width);
  const RowMajorMatrix<double> residual = matrix<double>(63, rows, width);
  const Run<double> plain = run<double>(1, norm, theta, x, dy, {}, Accumulate::no, 512.0);
  const Run<double> with = run<double>(1, norm, theta, x, dy, residual, Accumulate::yes, 512.0);
  BOOST_TEST((with.dx.array() == plain.dx.array() + residual.array()).all());
  for (std::size_t k = 0; k < theta.size(); ++k)
    BOOST_TEST(
        within(with.dtheta[k], 512.0 + plain.dtheta[k], unit_roundoff<double> * (512 + std::abs(plain.dtheta[k]))));
}

// Strided windows of larger buffers give what contiguous ones give, and nothing outside them is written. Shapes that
// are odd, one wide, one tall and empty. (Alignment moves the order of a row's sums: twice the bound, not equal bits.)
BOOST_AUTO_TEST_CASE_TEMPLATE(strided_and_odd_shapes, N, All) {
  const N norm;
  CpuContext<> context(2);
  struct Shape {
    Index rows, cols;
  };
  for (const Shape s : {Shape{0, 4}, Shape{1, 1}, Shape{5, 1}, Shape{1, 19}, Shape{3, 7}, Shape{13, 33}}) {
    const Index rows = s.rows, cols = s.cols;
    const std::vector<double> theta = parameters(norm, cols);
    RowMajorMatrix<double> x = matrix<double>(71, rows, cols + 3), dy = matrix<double>(72, rows, cols + 5);
    RowMajorMatrix<double> y = RowMajorMatrix<double>::Constant(rows, cols + 4, -7), dx = y;
    RowMajorMatrix<double> saved = RowMajorMatrix<double>::Constant(rows, N::saved_per_row + 2, -7);
    std::vector<double> dtheta(theta.size(), -7);
    const View<const double> xv = view(x).block(0, 2, rows, cols), dyv = view(dy).block(0, 1, rows, cols);
    const View<double> sv = view(saved).block(0, 1, rows, N::saved_per_row);
    norm_forward(context, norm, theta.data(), xv, view(y).block(0, 3, rows, cols), sv);
    norm_backward(context, norm, theta.data(), xv, View<const double>(sv), dyv, View<const double>{},
                  view(dx).block(0, 3, rows, cols), dtheta.data(), Accumulate::no);

    const RowMajorMatrix<double> xc = x.middleCols(2, cols), dyc = dy.middleCols(1, cols);
    const Run<double> plain = run<double>(1, norm, theta, xc, dyc, {});
    for (Index i = 0; i < rows; ++i) {
      const Vector row(xc.data() + i * cols, xc.data() + (i + 1) * cols);
      BOOST_TEST(all_within(&y(i, 3), plain.y.data() + i * cols, cols, [&](Index j) {
        return 2 * unit_roundoff<double> * bound(norm, theta, row, static_cast<std::size_t>(j), plain.y(i, j));
      }));
      // r·|γ dy| sets the scale of dx; its two means are sums of n terms, and r itself is off by n/2 + 4; at width 1
      // the variance is 0 and r = ε^{−1/2} ≈ 316.
      const double r = saved(i, N::saved_per_row);
      const double scale = r * dyc.row(i).norm() * std::sqrt(static_cast<double>(cols)) * 4;
      BOOST_TEST(all_within(&dx(i, 3), plain.dx.data() + i * cols, cols, [&](Index) {
        return 4 * unit_roundoff<double> * (static_cast<double>(cols) + 8) * scale;
      }));
    }
    BOOST_TEST((y.leftCols(3).array() == -7).all());
    BOOST_TEST((y.rightCols(1).array() == -7).all());
    BOOST_TEST((dx.leftCols(3).array() == -7).all());
    BOOST_TEST((dx.rightCols(1).array() == -7).all());
    BOOST_TEST((saved.leftCols(1).array() == -7).all());
    BOOST_TEST((saved.rightCols(1).array() == -7).all());
    if (rows == 0) BOOST_TEST(dtheta == std::vector<double>(theta.size(), 0.0), boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(wrong_shapes_throw_and_name_both, N, All) {
  const N norm;
  CpuContext<> context(1);
  RowMajorMatrix<float> x(3, 4), y(3, 5), saved(3, N::saved_per_row);
  const std::vector<float> theta(16, 1.0f);
  const RowMajorMatrix<float>& in = x;
  BOOST_CHECK_EXCEPTION(norm_forward(context, norm, theta.data(), view(in), view(y), view(saved)),
                        std::invalid_argument, [](const std::invalid_argument& e) {
                          const std::string what = e.what();
                          return what.find("(3, 4)") != what.npos && what.find("(3, 5)") != what.npos;
                        });
  BOOST_CHECK_THROW(apply(norm, Eigen::VectorXf::Ones(77), x), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(column_major_through_apply, N, All) {
  const N norm;
  const RowMajorMatrix<float> x = matrix<float>(81, 6, 9);
  const Eigen::MatrixXf column_major = x;
  BOOST_TEST((apply(norm, x).array() == apply(norm, column_major).array()).all());
  BOOST_TEST((apply(norm, 2 * column_major).rows() == 6));
}

// A constant row: LayerNorm gives β; NaN comes out of every channel that the norm mixes it into.
BOOST_AUTO_TEST_CASE_TEMPLATE(nan_comes_out, N, All) {
  Eigen::MatrixXf x = Eigen::MatrixXf::Ones(2, 5);
  x(1, 2) = std::numeric_limits<float>::quiet_NaN();
  const Eigen::MatrixXf y = apply(N{}, x);
  BOOST_TEST(y.row(0).allFinite());
  BOOST_TEST(y.row(1).array().isNaN().all());
}

BOOST_AUTO_TEST_CASE(layer_norm_closed_forms) {
  const Eigen::RowVector2d x(1, 3);  // mean 2, variance 1
  const Eigen::MatrixXd y = apply(LayerNorm{.epsilon = 3}, x);
  BOOST_TEST((y.array() == Eigen::RowVector2d(-0.5, 0.5).array()).all());
  BOOST_TEST((apply(LayerNorm{}, Eigen::MatrixXd::Constant(2, 4, 7.0)).array() == 0).all());
  // The variance comes from centered values: an offset of 10⁴ in float leaves four correct digits, where
  // E x² − (E x)² would have none. The stated bound is (n + 2)·r·max|x|·u.
  const Eigen::RowVector4f offset(10001, 10002, 10003, 10004);
  const Eigen::MatrixXf z = apply(LayerNorm{.epsilon = 0}, offset);
  const double r = 1 / std::sqrt(1.25);
  for (Index i = 0; i < 4; ++i)
    BOOST_TEST(
        within(z(0, i), (static_cast<double>(i) - 1.5) * r, (6 * r * 10004 + 9 * 1.5 * r + 2) * unit_roundoff<float>));
}

BOOST_AUTO_TEST_CASE(layer_norm_declares_gain_and_bias_packed) {
  ParameterLayout layout;
  layout.add("before", 1, 3, ParameterKind::matrix);
  const Index first = LayerNorm{}.declare(layout, "ln", 5);
  BOOST_TEST(layout.count() == 3);
  BOOST_TEST(layout[first].name == "ln.gain");
  BOOST_TEST(layout[first + 1].name == "ln.bias");
  BOOST_TEST((layout[first].kind == ParameterKind::gain && layout[first + 1].kind == ParameterKind::bias));
  BOOST_TEST(layout[first].offset == 16);
  BOOST_TEST(layout[first + 1].offset == 16 + 5);
}

BOOST_AUTO_TEST_CASE(rms_norm_closed_forms) {
  const Eigen::RowVector2d x(1, 7);                                  // mean square 25
  const Eigen::MatrixXd y = apply(RmsNormSingle{.epsilon = 11}, x);  // root 6
  BOOST_TEST(within(y(0, 0), 1.0 / 6, 6 * unit_roundoff<double>));
  BOOST_TEST(within(y(0, 1), 7.0 / 6, 7 * unit_roundoff<double>));
  BOOST_TEST((apply(RmsNorm{}, Eigen::MatrixXd::Zero(2, 4)).array() == 0).all());
}

// norm(x Q) = norm(x) Q for every orthogonal Q, ε included, for RMSNorm-S alone.
BOOST_AUTO_TEST_CASE(only_rms_norm_single_commutes_with_rotations) {
  const Index width = 24;
  const Eigen::MatrixXd q = random_rotation(width);
  const double defect = (q.transpose() * q - Eigen::MatrixXd::Identity(width, width)).norm();
  const RowMajorMatrix<double> x = 1e-2 * matrix<double>(91, 10, width);  // small: ε counts
  const auto difference = [&](const auto& norm) {
    const Vector theta = parameters(norm, width);
    const Eigen::Map<const Eigen::VectorXd> t(theta.data(), static_cast<Index>(theta.size()));
    const Eigen::MatrixXd rotated = apply(norm, t, x * q), then = apply(norm, t, x) * q;
    return Eigen::VectorXd((rotated - then).rowwise().norm().cwiseQuotient(then.rowwise().norm()));
  };
  // Q is orthogonal to `defect`, which moves Σx² by as much; two products of n terms on vectors of norm ‖y‖, each
  // n·u·√n at worst in norm; two norms.
  const double n = static_cast<double>(width);
  const double tolerance = defect + (2 * n * std::sqrt(n) + n + 10) * unit_roundoff<double>;
  BOOST_TEST(difference(RmsNormSingle{}).maxCoeff() <= tolerance);
  BOOST_TEST(difference(RmsNorm{}).minCoeff() > 1e-2);
  BOOST_TEST(difference(LayerNorm{}).minCoeff() > 1e-2);
}

BOOST_AUTO_TEST_SUITE_END()
