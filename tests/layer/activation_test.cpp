#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <meso/apply.hpp>
#include <meso/layer/gelu.hpp>
#include <meso/layer/relu.hpp>
#include <meso/layer/swiglu.hpp>
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

using Elementwise = std::tuple<Gelu, GeluTanh, Relu>;
static_assert(ElementwiseActivation<Gelu, float> && ElementwiseActivation<GeluTanh, double> &&
              ElementwiseActivation<Relu, float> && GatedActivation<SwiGlu, float> && GatedActivation<SwiGlu, double>);
static_assert(!GatedActivation<Gelu, float> && !ElementwiseActivation<SwiGlu, float>);

double expected(const Gelu&, double x) { return oracle::gelu(x); }
double expected(const GeluTanh&, double x) { return oracle::gelu_tanh(x); }
double expected(const Relu&, double x) { return x > 0 ? x : 0; }

// The docstrings' absolute bounds. Gelu: x/√2 is off by u·|x/√2|, which erf' turns into at most
// (2/√π)·max t·e^{−t²}·u < u; erf to 8u; half of both in Φ, then the sum and two products: below 8.
double bound(const Gelu&, double x) { return 8 * std::abs(x); }
// 2v is off by 5 roundings, which σ' turns into 5·|2v|·σ(1 − σ) < 1.2 (max of t·σ(t)σ(−t) is 0.224); exp 5, sum and
// quotient 2: below 11.
double bound(const GeluTanh&, double x) { return 11 * std::abs(x); }
double bound(const Relu&, double) { return 0; }

template <class A, class S>
std::vector<S> forward(const A& activation, const std::vector<S>& x) {
  std::vector<S> y(x.size(), S(-7));
  activation.forward(array(x.data(), static_cast<Index>(x.size())), array(y.data(), static_cast<Index>(x.size())));
  return y;
}
template <class A, class S>
std::vector<S> backward(const A& activation, const std::vector<S>& x, const std::vector<S>& dy) {
  const Index n = static_cast<Index>(x.size());
  std::vector<S> dx(x.size(), S(-7));
  activation.backward(array(x.data(), n), array(dy.data(), n), array(dx.data(), n));
  return dx;
}

// −12 … 12, with an odd number of points so that both the vector body and the scalar ends run.
template <class S>
Vector grid() {
  Vector x;
  for (int i = -2400; i <= 2400; ++i) x.push_back(static_cast<double>(static_cast<S>(i * 0.005)));
  return x;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(activation)

template <class A, class S>
void check_bound() {
  const A activation;
  const Vector x = grid<S>();
  Vector exact;
  for (const double v : x) exact.push_back(expected(activation, v));
  const std::vector<S> y = forward(activation, oracle::as<S>(x));
  // The double oracle has the same kind of error as the op.
  BOOST_TEST(all_within(y.data(), exact.data(), static_cast<Index>(x.size()), [&](Index i) {
    const double b = bound(activation, x[static_cast<std::size_t>(i)]);
    return (unit_roundoff<S> + unit_roundoff<double>)*b;
  }));
}
BOOST_AUTO_TEST_CASE_TEMPLATE(float_meets_its_stated_bound, A, Elementwise) { check_bound<A, float>(); }
BOOST_AUTO_TEST_CASE_TEMPLATE(double_meets_its_stated_bound, A, Elementwise) { check_bound<A, double>(); }

// One coordinate at a time, f = Σ w ∘ y; each y within 16 roundings of |x|.
BOOST_AUTO_TEST_CASE_TEMPLATE(gradients_agree_with_central_differences, A, Elementwise) {
  const A activation;
  Vector x = oracle::normal(1, 41, 3);
  x.insert(x.end(), {-9.0, -4.5, 5.5, 9.0});
  const Vector w = oracle::normal(2, 45);
  const Vector dx = backward(activation, x, w);
  GradientCheck options{.magnitude = 0};
  for (std::size_t i = 0; i < x.size(); ++i) options.magnitude += std::abs(w[i] * x[i]);
  const auto f = [&](const double* v) {
    const Vector y = forward(activation, Vector(v, v + x.size()));
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += w[i] * y[i];
    return sum;
  };
  BOOST_TEST(gradient_agrees("dx", f, x.data(), static_cast<Index>(x.size()), dx.data(), options));
}

// The float derivative against the double one, on which the check above rests. |f'| < 1.2 and each of its few terms is
// below |x|·φ(x)·… < 2, with at most 16 roundings and |x|²·φ(x) < 1 for the rounded argument of the exponential.
BOOST_AUTO_TEST_CASE_TEMPLATE(float_derivative_follows_the_double_one, A, Elementwise) {
  const Vector x = grid<float>(), ones(x.size(), 1.0);
  const Vector exact = backward(A{}, x, ones);
  const std::vector<float> dx = backward(A{}, oracle::as<float>(x), oracle::as<float>(ones));
  BOOST_TEST(all_within(dx.data(), exact.data(), static_cast<Index>(x.size()),
                        [](Index) { return 40 * unit_roundoff<float>; }));
}

BOOST_AUTO_TEST_CASE(closed_forms) {
  const Vector zero = {0.0};
  BOOST_TEST(forward(Gelu{}, zero)[0] == 0);
  BOOST_TEST(forward(GeluTanh{}, zero)[0] == 0);
  BOOST_TEST(backward(Gelu{}, zero, {1.0})[0] == 0.5);
  BOOST_TEST(backward(GeluTanh{}, zero, {1.0})[0] == 0.5);
  BOOST_TEST(backward(Relu{}, zero, {1.0})[0] == 0);  // ReLU'(0) = 0
  BOOST_TEST(backward(Relu{}, Vector{-1.0, 2.0}, {3.0, 3.0})[0] == 0);
  BOOST_TEST(backward(Relu{}, Vector{-1.0, 2.0}, {3.0, 3.0})[1] == 3);
  // Φ(1) = 0.841344746068542948…
  BOOST_TEST(within(forward(Gelu{}, Vector{1.0})[0], 0.841344746068542948, 8 * unit_roundoff<double>));
  // The two forms differ by less than 5·10⁻⁴ everywhere.
  for (const double x : grid<double>())
    BOOST_TEST(std::abs(forward(Gelu{}, Vector{x})[0] - forward(GeluTanh{}, Vector{x})[0]) < 5e-4);
}

using Scalars = std::tuple<float, double>;
BOOST_AUTO_TEST_CASE_TEMPLATE(large_values_and_nan, S, Scalars) {
  constexpr S nan = std::numeric_limits<S>::quiet_NaN();
  const auto check = [&](const auto& activation) {
    for (std::size_t n = 1; n <= 19; ++n) {
      const std::vector<S> high(n, S(1e4)), low(n, S(-1e4)), bad(n, nan), ones(n, S(1));
      for (std::size_t i = 0; i < n; ++i) {
        BOOST_TEST(forward(activation, high)[i] == S(1e4));
        BOOST_TEST(forward(activation, low)[i] == S(0));
        BOOST_TEST(backward(activation, high, ones)[i] == S(1));
        BOOST_TEST(backward(activation, low, ones)[i] == S(0));
        BOOST_TEST(std::isnan(forward(activation, bad)[i]));
      }
    }
  };
  check(Gelu{});
  check(GeluTanh{});
  check(Relu{});
}

template <class S>
void check_swiglu() {
  const Vector gate = grid<S>(), up = oracle::normal<S>(3, static_cast<Index>(gate.size()), 2);
  Vector exact;
  for (std::size_t i = 0; i < gate.size(); ++i) exact.push_back(oracle::silu(gate[i]) * up[i]);
  const std::vector<S> g = oracle::as<S>(gate), v = oracle::as<S>(up);
  std::vector<S> y(g.size());
  const Index n = static_cast<Index>(g.size());
  SwiGlu{}.forward(array(g.data(), n), array(v.data(), n), array(y.data(), n));
  BOOST_TEST(all_within(y.data(), exact.data(), n, [&](Index i) {
    return 10 * (unit_roundoff<S> + unit_roundoff<double>)*std::abs(exact[static_cast<std::size_t>(i)]);
  }));
}
BOOST_AUTO_TEST_CASE(swiglu_meets_its_stated_bound) {
  check_swiglu<float>();
  check_swiglu<double>();
}

BOOST_AUTO_TEST_CASE(swiglu_gradients_agree_with_central_differences) {
  constexpr Index n = 27;
  Vector x = oracle::normal(4, 2 * n, 2);
  const Vector w = oracle::normal(5, n);
  Vector y(n), dx(2 * n, -7.0);
  const auto half = [](const double* data, Index k) { return array(data + k * n, n); };
  SwiGlu{}.backward(half(x.data(), 0), half(x.data(), 1), array(w.data(), n), array(dx.data(), n),
                    array(dx.data() + n, n));
  const auto f = [&](const double* v) {
    SwiGlu{}.forward(half(v, 0), half(v, 1), array(y.data(), n));
    double sum = 0;
    for (std::size_t i = 0; i < w.size(); ++i) sum += w[i] * y[i];
    return sum;
  };
  f(x.data());
  GradientCheck options;
  for (std::size_t i = 0; i < w.size(); ++i) options.magnitude += std::abs(w[i] * y[i]);
  BOOST_TEST(gradient_agrees("dgate, dup", f, x.data(), 2 * n, dx.data(), options));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(swiglu_saturates_without_nan, S, Scalars) {
  struct Case {
    S gate, y, dgate;
  };
  for (const Case c : {Case{S(-1e4), S(0), S(0)}, Case{S(1e4), S(1e4), S(1)}, Case{S(0), S(0), S(0.5)}}) {
    for (Index n = 1; n <= 19; ++n) {
      const std::vector<S> gate(static_cast<std::size_t>(n), c.gate), ones(gate.size(), S(1));
      std::vector<S> y(gate.size()), dgate(gate.size()), dup(gate.size());
      SwiGlu{}.forward(array(gate.data(), n), array(ones.data(), n), array(y.data(), n));
      SwiGlu{}.backward(array(gate.data(), n), array(ones.data(), n), array(ones.data(), n), array(dgate.data(), n),
                        array(dup.data(), n));
      BOOST_TEST((y == std::vector<S>(gate.size(), c.y)));
      BOOST_TEST((dgate == std::vector<S>(gate.size(), c.dgate)));
      BOOST_TEST((dup == y));
    }
  }
}

BOOST_AUTO_TEST_CASE(apply_takes_any_storage_order) {
  const Eigen::MatrixXf x = Eigen::MatrixXf::Random(5, 7), up = Eigen::MatrixXf::Random(5, 7);
  const RowMajorMatrix<float> row_major = x;
  static_assert(!decltype(apply(Gelu{}, x))::IsRowMajor && decltype(apply(Gelu{}, row_major))::IsRowMajor);
  BOOST_TEST((apply(Relu{}, x).array() == x.array().max(0.0f)).all());
  BOOST_TEST((apply(Relu{}, row_major).array() == x.array().max(0.0f)).all());
  BOOST_TEST(apply(Gelu{}, x.block(1, 2, 3, 4)).cols() == 4);
  BOOST_TEST(apply(Gelu{}, Eigen::VectorXd::Zero(3)).isZero(0));
  // silu(0) = 0; both storage orders.
  BOOST_TEST(apply(SwiGlu{}, Eigen::MatrixXf::Zero(5, 7), up).isZero(0));
  BOOST_TEST(apply(SwiGlu{}, x, RowMajorMatrix<float>(up)).isApprox(apply(SwiGlu{}, x, up), 0.0f));
  BOOST_CHECK_THROW(apply(SwiGlu{}, x, Eigen::MatrixXf(5, 6)), std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
