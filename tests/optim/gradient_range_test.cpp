#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <meso/optim.hpp>
#include <vector>

#include "support/extreme_gradients.hpp"
#include "support/tolerance.hpp"

using namespace meso;
using namespace meso::test;

namespace {

template <class S>
using Vector = Eigen::Matrix<S, Eigen::Dynamic, 1>;
template <class S>
constexpr double u = unit_roundoff<S>;

/// Steps at rate 1 from 0, so that θ is minus the direction: never more than bound(t).
template <class S, class O, class Bound>
void check_bound(O optimizer, Index steps, Bound&& bound) {
  Vector<S> theta(extreme_sequences), g(extreme_sequences);
  for (Index t = 1; t <= steps; ++t) {
    theta.setZero();
    for (Index i = 0; i < extreme_sequences; ++i) g[i] = extreme_gradient<S>(i, t);
    optimizer.step(theta, g);
    const double most = bound(t);
    for (Index i = 0; i < extreme_sequences; ++i)
      BOOST_REQUIRE_MESSAGE(std::abs(static_cast<double>(theta[i])) <= most,
                            "sequence " << i << ", step " << t << ": " << theta[i] << ", bound " << most);
  }
}

template <class S, class Rule>
void check_adam(double beta1, double beta2) {
  for (const double epsilon : {0.0, 1e-50, 1e-30, 1e-8})
    BOOST_TEST_CONTEXT("beta1 " << beta1 << ", beta2 " << beta2 << ", epsilon " << epsilon)
  check_bound<S>(
      Optimizer<Rule>({.learning_rate = 1, .beta1 = beta1, .beta2 = beta2, .epsilon = epsilon, .weight_decay = 0}), 200,
      [&](Index t) { return adam_bound(beta1, beta2, t) * (1 + (4.5 * static_cast<double>(t) + 8) * u<S>); });
}
template <class S>
void check_rmsprop(double alpha, double momentum, bool centered) {
  for (const double epsilon : {0.0, 1e-50, 1e-30, 1e-8})
    BOOST_TEST_CONTEXT("alpha " << alpha << ", momentum " << momentum << ", centered " << centered << ", epsilon "
                                << epsilon)
  check_bound<S>(
      RmsProp({.learning_rate = 1, .alpha = alpha, .epsilon = epsilon, .momentum = momentum, .centered = centered}),
      200, [&](Index t) {  // a sum of momentum adds 3 roundings a step
        const double roundings = 6 + (momentum > 0 ? 3 * static_cast<double>(t) : 0);
        return rmsprop_bound(alpha, momentum, centered, u<S>, t) * (1 + roundings * u<S>);
      });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(optim_gradient_range)

BOOST_AUTO_TEST_CASE(adam_keeps_the_bound_of_exact_arithmetic) {
  check_adam<float, AdamRule>(0.9, 0.999);
  check_adam<double, AdamRule>(0.9, 0.999);
  check_adam<float, AdamWRule>(0.8, 0.97);
  check_adam<float, OrthoAdamRule>(0.9, 0.8);  // β1² > β2: c grows with t
  check_adam<double, OrthoAdamRule>(0.9, 0.8);
  check_adam<float, AdamRule>(0, 0.999);
  check_adam<float, AdamRule>(0.9, 1 - 1e-7);
  check_adam<double, AdamRule>(0.9, 1 - 1e-7);
}

BOOST_AUTO_TEST_CASE(rmsprop_keeps_the_bound_of_exact_arithmetic) {
  for (const double momentum : {0.0, 0.9})
    for (const bool centered : {false, true}) {
      check_rmsprop<float>(0.99, momentum, centered);
      check_rmsprop<double>(0.99, momentum, centered);
      check_rmsprop<float>(0.5, momentum, centered);
      check_rmsprop<float>(0, momentum, centered);
    }
}

// The gradients that reach it: (β1/β2)^k for that of k steps ago.
BOOST_AUTO_TEST_CASE(adams_bound_is_the_least) {
  for (const Index steps : {1, 2, 10, 100}) {
    Vector<double> theta = Vector<double>::Zero(1);
    Adam adam({.learning_rate = 1, .epsilon = 0});
    for (Index t = 1; t <= steps; ++t) {
      theta.setZero();
      adam.step(theta, Vector<double>::Constant(1, std::pow(0.9 / 0.999, steps - t)));
    }
    const double bound = adam_bound(0.9, 0.999, steps);
    BOOST_TEST(within(-theta[0], bound, bound * (4.5 * static_cast<double>(steps) + 8) * u<double>));
  }
  BOOST_TEST(within(adam_bound(0.9, 0.999, 20000), 7.27, 0.005));  // what the docstring says
}

// And RMSProp's: the first gradient after zeros; centered, also what lies between them at the mean ḡ.
BOOST_AUTO_TEST_CASE(rmsprops_bound_is_the_least) {
  for (const bool centered : {false, true}) {
    const double alpha = 0.9, zeros = std::pow(alpha, 6);
    Vector<double> theta = Vector<double>::Zero(1);
    RmsProp rmsprop({.learning_rate = 1, .alpha = alpha, .epsilon = 0, .centered = centered});
    const double between = centered ? (1 - alpha) / (1 - alpha + zeros) : 0;
    for (int t = 1; t <= 5; ++t) rmsprop.step(theta, Vector<double>::Constant(1, between));
    theta.setZero();
    rmsprop.step(theta, Vector<double>::Constant(1, 1.0));
    const double bound = rmsprop_bound(alpha, 0, centered, u<double>, 6);
    // 12 roundings of v, times v/(v − ḡ²) ≤ bound²
    BOOST_TEST(within(-theta[0], bound, 12 * bound * bound * bound * u<double>));
  }
}

template <class S, class O>
void check_zeros(O optimizer) {
  Vector<S> theta = Vector<S>::Ones(37);
  Vector<S> g = Vector<S>::Zero(37);
  for (int t = 0; t < 3; ++t) optimizer.step(theta, g);
  BOOST_TEST((theta.array() == 1).all());
  g.setConstant(S(-0.5));  // seen at last
  optimizer.step(theta, g);
  BOOST_TEST((theta.array() > 1).all());
  BOOST_TEST(theta.allFinite());
}
BOOST_AUTO_TEST_CASE(zero_over_zero_is_zero) {
  for (const double epsilon : {0.0, 1e-50}) {
    check_zeros<float>(Adam({.epsilon = epsilon}));
    check_zeros<double>(Adam({.epsilon = epsilon}));
    check_zeros<float>(RmsProp({.epsilon = epsilon}));
    check_zeros<float>(RmsProp({.epsilon = epsilon, .momentum = 0.9, .centered = true}));
    check_zeros<double>(RmsProp({.alpha = 0, .epsilon = epsilon, .centered = true}));
  }
  OrthoAdam<> rotated({.epsilon = 0});
  Vector<float> theta = Vector<float>::Ones(37);
  rotated.step(theta, Vector<float>::Zero(37));
  BOOST_TEST((theta.array() == 1).all());
}

// ε = 1e-30, g = 1e-22: g² = 1e-44 is next to nothing in float, and m is not.
BOOST_AUTO_TEST_CASE(squares_that_underflow_do_not_throw_theta_away) {
  Vector<float> theta = Vector<float>::Zero(37);
  Adam adam({.learning_rate = 1e-3, .epsilon = 1e-30});
  for (int t = 0; t < 3; ++t) adam.step(theta, Vector<float>::Constant(37, 1e-22f));
  BOOST_TEST((theta.array() < 0).all());
  BOOST_TEST((theta.array() >= -3.004e-3f).all());  // c(1) + c(2) + c(3) = 3.0040
}

BOOST_AUTO_TEST_CASE(v_recovers_from_a_huge_gradient) {
  const auto v = [](const auto& optimizer) {
    const Buffer<float>& moment = optimizer.template state<float>().moments.back();
    return array(moment.data(), 37).eval();
  };
  // As the docstring has it: 1e20 counts as 2⁶³.
  Vector<float> theta = Vector<float>::Zero(37);
  Adam adam({.learning_rate = 1}), fast({.learning_rate = 1, .beta2 = 0.9});
  adam.step(theta, Vector<float>::Constant(37, -1e20f));
  BOOST_TEST((theta.array() - 1).abs().maxCoeff() < 12 * u<float>);
  BOOST_TEST((v(adam) / (0.001f * 0x1p126f) - 1).abs().maxCoeff() < 4 * u<float>);
  for (int t = 0; t < 100; ++t) {
    const auto before = v(adam);
    adam.step(theta, Vector<float>::Constant(37, 1e-3f));
    BOOST_TEST((v(adam) < before).all());
  }
  // 0.9^1500·2¹²⁶ is below 1e-30: the small gradients count in full again, u = 1.
  fast.step(theta, Vector<float>::Constant(37, 1e20f));
  for (int t = 0; t < 1500; ++t) fast.step(theta, Vector<float>::Constant(37, 1e-3f));
  theta.setZero();
  fast.step(theta, Vector<float>::Constant(37, 1e-3f));
  BOOST_TEST((theta.array() + 1).abs().maxCoeff() < 2e-5f);  // ε/g = 1e-5
}

// Gradients whose norm is beyond the largest number, and of the smallest numbers: |u| ≤ c(t) in the rotated basis, so that
// the norm of the step is at most c(t)·√n.
template <class S, class O>
void check_rotated(O optimizer, Index rows, Index cols) {
  using Matrix = Eigen::Matrix<S, Eigen::Dynamic, Eigen::Dynamic>;
  Matrix theta(rows, cols), g(rows, cols);
  const double n = static_cast<double>(rows * cols);
  for (const Index kind : {Index{1}, Index{38 * 6 + 1}, Index{2}}) {  // the smallest, the largest, all sizes
    optimizer.reset();
    for (Index t = 1; t <= 20; ++t) {
      theta.setZero();
      for (Index i = 0; i < g.size(); ++i)
        g.data()[i] =
            kind == 2 ? extreme_gradient<S>(i % extreme_sequences, t) : extreme_gradient<S>(kind, 100 * t + i);
      optimizer.step(theta, g);
      const double roundings = 4.5 * static_cast<double>(t) + 8 + 8 * static_cast<double>(rows + cols + 4);
      BOOST_TEST(theta.template cast<double>().norm() <=
                 adam_bound(0.9, 0.999, t) * std::sqrt(n) * (1 + roundings * u<S>));
    }
  }
}
BOOST_AUTO_TEST_CASE(a_rotation_keeps_the_bound) {
  const OrthoAdamRule rule{.learning_rate = 1, .epsilon = 0};
  for (const auto& [rows, cols] : std::vector<std::pair<Index, Index>>{{20, 33}, {1, 70}, {16, 16}}) {
    check_rotated<float>(OrthoAdam<KroneckerRotation>(rule), rows, cols);
    check_rotated<float>(OrthoAdam<HadamardRotation>(rule), rows, cols);
    check_rotated<float>(OrthoAdam<DenseRotation>(rule), rows, cols);
    check_rotated<double>(OrthoAdam<KroneckerRotation>(rule), rows, cols);
    check_rotated<double>(OrthoAdam<HadamardRotation>(rule), rows, cols);
  }
}

// What is not finite is not bounded: it shows.
template <class O>
void check_shows(O optimizer) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    optimizer.reset();
    Vector<float> theta = Vector<float>::Ones(37), g = theta;
    for (Index i = 0; i < 37; i += 3) g[i] = bad;  // in packets and in the rest
    optimizer.step(theta, g);
    for (Index i = 0; i < 37; i += 3) BOOST_TEST(!std::isfinite(theta[i]));
  }
}
BOOST_AUTO_TEST_CASE(inf_and_nan_pass_through) {
  check_shows(Adam());
  check_shows(RmsProp());
  check_shows(RmsProp({.momentum = 0.9, .centered = true}));
  check_shows(OrthoAdam<>());
  check_shows(OrthoAdam<HadamardRotation>());
}

BOOST_AUTO_TEST_SUITE_END()
