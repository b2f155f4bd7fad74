// One body for every normalizer: what each of them must satisfy.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <meso/normalizer.hpp>
#include <tuple>
#include <vector>

#include "support/gradient_check.hpp"
#include "support/oracle.hpp"
#include "support/tolerance.hpp"

namespace {

using namespace meso;
using namespace meso::test;
using oracle::Vector;

// Normalizers with values other than their defaults are types of their own here, so that they can be stamped.
struct Softmax4 : SoftmaxN {
  Softmax4() { n = 4; }
};
struct Softmax0 : SoftmaxN {
  Softmax0() { n = 0; }
};
struct SigmoidVisible : SigmoidAttention {
  SigmoidVisible() { bias = Bias::visible; }
};

using All = std::tuple<Softmax, Softmax1, Softmax0, Softmax4, LearnedSink, SigmoidAttention, SigmoidVisible,
                       ReluAttention, Softpick, ScalableSoftmax, Sparsemax>;

static_assert(NullLogitNormalizer<Softmax, float> && NullLogitNormalizer<SoftmaxN, float> &&
              NullLogitNormalizer<Softmax1, double> && NullLogitNormalizer<LearnedSink, double>);
static_assert(Normalizer<Softpick, float> && !NullLogitNormalizer<Softpick, float>);
static_assert(MatrixNormalizer<Sinkhorn, float> && MatrixNormalizer<Sinkhorn, double> && !Normalizer<Sinkhorn, float>);

constexpr Index model_context = 24;

Row row_of(Index n) { return {0, n > 0 ? n - 1 : 0, n, model_context}; }

template <class N>
Vector parameters(const N& normalizer) {
  Vector theta(static_cast<std::size_t>(N::parameters_per_head));
  initialize_normalizer(normalizer, 1, model_context, theta.data());
  for (double& v : theta) v = static_cast<double>(static_cast<float>(v + 0.37));  // away from the initial value
  return theta;
}

template <class S>
ConstArray<S> in(const std::vector<S>& x) {
  return array(x.data(), static_cast<Index>(x.size()));
}
template <class S>
Array<S> out(std::vector<S>& x) {
  return array(x.data(), static_cast<Index>(x.size()));
}

template <class N, class S>
std::vector<S> forward(const N& normalizer, const std::vector<S>& theta, const std::vector<S>& z) {
  std::vector<S> p(z.size(), S(-7));
  normalizer.forward(row_of(static_cast<Index>(z.size())), in(theta), in(z), out(p));
  return p;
}

template <class S>
struct Gradients {
  std::vector<S> dz, dtheta;
};

template <class N, class S>
Gradients<S> backward(const N& normalizer, const std::vector<S>& theta, const std::vector<S>& z,
                      const std::vector<S>& p, const std::vector<S>& dp, S dtheta_before = S(0)) {
  Gradients<S> g{std::vector<S>(z.size(), S(-7)), std::vector<S>(theta.size(), dtheta_before)};
  normalizer.backward(row_of(static_cast<Index>(z.size())), in(theta), in(z), in(p), in(dp), out(g.dz), out(g.dtheta));
  return g;
}

Vector expected(const Softmax&, const Vector&, const Vector& z) { return oracle::null_logit(z, 0); }
Vector expected(const Softmax1&, const Vector&, const Vector& z) { return oracle::null_logit(z, 1); }
Vector expected(const SoftmaxN& a, const Vector&, const Vector& z) { return oracle::null_logit(z, a.n); }
Vector expected(const LearnedSink&, const Vector& t, const Vector& z) { return oracle::null_logit(z, std::exp(t[0])); }
Vector expected(const SigmoidAttention& a, const Vector&, const Vector& z) {
  const double count =
      a.bias == SigmoidAttention::Bias::context ? static_cast<double>(model_context) : static_cast<double>(z.size());
  return oracle::sigmoid(z, -std::log(count));
}
Vector expected(const ReluAttention&, const Vector&, const Vector& z) { return oracle::relu_attention(z); }
Vector expected(const Softpick& a, const Vector&, const Vector& z) { return oracle::softpick(z, a.epsilon); }
Vector expected(const ScalableSoftmax&, const Vector& t, const Vector& z) { return oracle::scalable_softmax(z, t[0]); }
Vector expected(const Sparsemax&, const Vector&, const Vector& z) { return oracle::sparsemax(z); }

double largest(const Vector& z) { return *std::max_element(z.begin(), z.end()); }

// The error bounds of the docstrings, absolute, in units of u, for weight i of value p. The null-logit family: the
// shift costs |z_i − m| and, weighted over the row, at most log(n + 1); exp 5 twice, the sum n, scaling 2: below 16 + …
double bound(double s, const Vector& z, std::size_t i, double p) {
  const double n = static_cast<double>(z.size()), m = std::max<double>(s, largest(z));
  return p * (m - z[i] + std::log(n + 1) + n + 16);
}
constexpr double none = -std::numeric_limits<double>::infinity();
double bound(const Softmax&, const Vector&, const Vector& z, std::size_t i, double p) { return bound(none, z, i, p); }
double bound(const Softmax1&, const Vector&, const Vector& z, std::size_t i, double p) { return bound(0, z, i, p); }
double bound(const SoftmaxN& a, const Vector&, const Vector& z, std::size_t i, double p) {
  const double s = std::log(a.n);
  return bound(s, z, i, p) + (a.n > 0 ? std::abs(s) * p : 0);  // log n itself is rounded
}
double bound(const LearnedSink&, const Vector& t, const Vector& z, std::size_t i, double p) {
  return bound(t[0], z, i, p);
}
// σ: b and z + b are rounded, then exp 5, sum 1, quotient 1.
double bound(const SigmoidAttention& a, const Vector&, const Vector& z, std::size_t i, double p) {
  const double b = std::log(a.bias == SigmoidAttention::Bias::context ? static_cast<double>(model_context)
                                                                      : static_cast<double>(z.size()));
  return p * (std::abs(z[i] - b) + b + 8);
}
double bound(const ReluAttention&, const Vector&, const Vector&, std::size_t, double p) { return p; }
// |r| is e^{…}, 5 and the shift, times expm1, 8, twice because of the sum.
double bound(const Softpick&, const Vector&, const Vector& z, std::size_t i, double p) {
  const double n = static_cast<double>(z.size()), m = std::max<double>(0, largest(z));
  return p * (m - std::max<double>(z[i], 0) + std::log(n) + n + 32);
}
// y = s·log n·z takes 3 roundings, y and max y alike, so that y − max y is off by 6·max|y|; 2 more in the difference.
double bound(const ScalableSoftmax&, const Vector& t, const Vector& z, std::size_t, double p) {
  const double n = static_cast<double>(z.size());
  double top = 0;
  for (const double v : z) top = std::max<double>(top, std::abs(t[0] * std::log(n) * v));
  return p * (8 * top + std::log(n) + n + 16);
}
// Scores within 1 of the maximum, shifted: each within u; their sum n·u, τ and the difference.
double bound(const Sparsemax&, const Vector&, const Vector& z, std::size_t, double) {
  return static_cast<double>(z.size()) + 4;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(normalizer)

BOOST_AUTO_TEST_CASE_TEMPLATE(float_meets_its_stated_bound, N, All) {
  const N normalizer;
  const Vector theta = parameters(normalizer);
  for (const Index n : {1, 2, 3, 5, 8, 16, 17, 31, 64, 65}) {
    for (const double scale : {0.1, 1.0, 4.0}) {
      const Vector z = oracle::normal<float>(static_cast<std::uint64_t>(n), n, scale);
      const Vector exact = expected(normalizer, theta, z);
      const std::vector<float> p = forward(normalizer, oracle::as<float>(theta), oracle::as<float>(z));
      BOOST_TEST(all_within(p.data(), exact.data(), n, [&](Index i) {
        const auto k = static_cast<std::size_t>(i);
        // The oracle is a plain double computation: n·2⁻⁵³ relative, far below 2⁻²⁴; no extra term is needed.
        return unit_roundoff<float> * bound(normalizer, theta, z, k, exact[k]);
      }));
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(double_meets_the_same_bound, N, All) {
  const N normalizer;
  const Vector theta = parameters(normalizer);
  for (const Index n : {1, 2, 7, 33}) {
    const Vector z = oracle::normal(static_cast<std::uint64_t>(100 + n), n, 2.0);
    const Vector exact = expected(normalizer, theta, z);
    const Vector p = forward(normalizer, theta, z);
    // The oracle has the same kind of error as the op: twice the bound.
    BOOST_TEST(all_within(p.data(), exact.data(), n, [&](Index i) {
      const auto k = static_cast<std::size_t>(i);
      return 2 * unit_roundoff<double> * bound(normalizer, theta, z, k, exact[k]);
    }));
  }
}

// f = Σ w ∘ p as a function of z and theta at once. The weights carry at most (n + 32 + …)·u relative, the sum n·u:
// below the 256·u·Σ|w ∘ p| that the check grants for n ≤ 17.
BOOST_AUTO_TEST_CASE_TEMPLATE(gradients_agree_with_central_differences, N, All) {
  const N normalizer;
  const Vector theta = parameters(normalizer);
  for (const Index n : {1, 2, 3, 8, 17}) {
    const Vector z = oracle::normal(static_cast<std::uint64_t>(7 + n), n, 1.5);
    const Vector w = oracle::normal(static_cast<std::uint64_t>(70 + n), n);
    const Vector p = forward(normalizer, theta, z);
    const Gradients<double> g = backward(normalizer, theta, z, p, w);

    Vector x = z, analytic = g.dz;
    x.insert(x.end(), theta.begin(), theta.end());
    analytic.insert(analytic.end(), g.dtheta.begin(), g.dtheta.end());
    GradientCheck options;
    for (std::size_t i = 0; i < w.size(); ++i) options.magnitude += std::abs(w[i] * p[i]);
    const auto f = [&](const double* at) {
      const Vector scores(at, at + n), learned(at + n, at + n + N::parameters_per_head);
      const Vector weights = forward(normalizer, learned, scores);
      double sum = 0;
      for (std::size_t i = 0; i < w.size(); ++i) sum += w[i] * weights[i];
      return sum;
    };
    BOOST_TEST(
        gradient_agrees(message("n = ", n), f, x.data(), static_cast<Index>(x.size()), analytic.data(), options));
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_overwrites_dz_and_adds_to_dtheta, N, All) {
  const N normalizer;
  const Vector theta = parameters(normalizer), z = oracle::normal(1, 9), dp = oracle::normal(2, 9);
  const Vector p = forward(normalizer, theta, z);
  const Gradients<double> once = backward(normalizer, theta, z, p, dp);
  const Gradients<double> again = backward(normalizer, theta, z, p, dp, 1024.0);
  BOOST_TEST(once.dz == again.dz, boost::test_tools::per_element());
  for (std::size_t k = 0; k < theta.size(); ++k)
    BOOST_TEST(within(again.dtheta[k], 1024.0 + once.dtheta[k], unit_roundoff<double> * 1025.0 * 2));
}

using Scalars = std::tuple<float, double>;

template <class N, class S>
void check_extremes() {
  const N normalizer;
  constexpr S infinity = std::numeric_limits<S>::infinity();
  const std::vector<S> theta = oracle::as<S>(parameters(normalizer));
  const auto finite = [](const std::vector<S>& x) {
    return std::all_of(x.begin(), x.end(), [](S v) { return std::isfinite(v); });
  };
  const auto zero = [](const std::vector<S>& x) {
    return std::all_of(x.begin(), x.end(), [](S v) { return v == S(0); });
  };

  // Large logits stay finite, forward and backward.
  const std::vector<std::vector<S>> rows = {{S(1e4)},
                                            {S(-1e4)},
                                            {S(1e4), S(-1e4), S(0)},
                                            std::vector<S>(19, S(1e4)),
                                            std::vector<S>(19, S(-1e4)),
                                            {S(-1e4), S(-9999), S(-1e4), S(1), S(2)}};
  for (const std::vector<S>& z : rows) {
    const std::vector<S> p = forward(normalizer, theta, z);
    BOOST_TEST(finite(p));
    const Gradients<S> g = backward(normalizer, theta, z, p, std::vector<S>(z.size(), S(0.5)));
    BOOST_TEST(finite(g.dz));
    BOOST_TEST(finite(g.dtheta));
  }

  // −∞ gives weight 0 and gradient 0, alone or among others; at every length, so in every lane of a vector register.
  for (std::size_t n = 1; n <= 35; ++n) {
    const std::vector<S> z(n, -infinity), dp(n, S(3));
    const std::vector<S> p = forward(normalizer, theta, z);
    BOOST_TEST(zero(p));
    const Gradients<S> g = backward(normalizer, theta, z, p, dp);
    BOOST_TEST(zero(g.dz));
    BOOST_TEST(zero(g.dtheta));

    std::vector<S> mixed(n, S(0.25));
    mixed[n / 2] = -infinity;
    const std::vector<S> q = forward(normalizer, theta, mixed);
    BOOST_TEST(q[n / 2] == S(0));
    BOOST_TEST(finite(q));
    const Gradients<S> h = backward(normalizer, theta, mixed, q, dp);
    BOOST_TEST(h.dz[n / 2] == S(0));
    BOOST_TEST(finite(h.dz));
    BOOST_TEST(finite(h.dtheta));
  }

  // No visible key: nothing to write, no gradient.
  BOOST_TEST(zero(backward(normalizer, theta, {}, forward(normalizer, theta, {}), {}).dtheta));

  // A NaN is not lost.
  for (std::size_t n = 1; n <= 35; ++n) {
    for (const std::size_t at : {std::size_t{0}, n / 2, n - 1}) {
      std::vector<S> z(n, S(0.5));
      z[at] = std::numeric_limits<S>::quiet_NaN();
      BOOST_TEST(std::isnan(forward(normalizer, theta, z)[at]));
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(extremes_in_float, N, All) { check_extremes<N, float>(); }
BOOST_AUTO_TEST_CASE_TEMPLATE(extremes_in_double, N, All) { check_extremes<N, double>(); }

BOOST_AUTO_TEST_CASE_TEMPLATE(apply_takes_any_storage_order, N, All) {
  const N normalizer;
  const Eigen::MatrixXf column_major = Eigen::MatrixXf::Random(5, 7) * 2.0f;
  const RowMajorMatrix<float> row_major = column_major;
  const auto p = apply(normalizer, column_major);
  const auto q = apply(normalizer, row_major);
  static_assert(!decltype(p)::IsRowMajor && decltype(q)::IsRowMajor);
  BOOST_TEST((p.array() == q.array()).all());
  BOOST_TEST((apply(normalizer, column_major.block(1, 1, 3, 6)).rows() == 3));
  BOOST_TEST((apply(normalizer, Eigen::MatrixXf(0, 3)).size() == 0));
}

BOOST_AUTO_TEST_SUITE_END()
