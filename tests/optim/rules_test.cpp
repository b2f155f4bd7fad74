#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>
#include <meso/optim.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/random.hpp"
#include "support/tolerance.hpp"

using namespace meso;
using meso::test::within;
using Values = std::vector<double>;

namespace {

constexpr double u64 = test::unit_roundoff<double>;
constexpr int golden_steps = 20;

/// Gradient of Σ (cos(θ_i)·(i+1)/4 + θ_i²/8): smooth, both signs, another scale for each element.
Values slope(const Values& theta) {
  Values g(theta.size());
  for (std::size_t i = 0; i < theta.size(); ++i)
    g[i] = -std::sin(theta[i]) * static_cast<double>(i + 1) / 4 + theta[i] / 4;
  return g;
}

Values start() {
  Values theta;
  for (int i = 0; i < 11; ++i) theta.push_back(1.7 * std::cos(2.3 * i) + 0.1);
  return theta;
}

/// Runs `optimizer` and the naive loop `oracle(step, theta, g)` side by side. Tolerance: each step rounds θ and the
/// update, ≤ 16u·(|θ| + 1) together, and a Lipschitz factor of the map below 1.5 a step that touches the last bits
/// only.
template <class O>
void check_golden(O optimizer, const std::function<void(int, Values&, const Values&)>& oracle) {
  Values expected = start();
  Eigen::VectorXd theta = Eigen::Map<const Eigen::VectorXd>(expected.data(), 11);
  for (int step = 1; step <= golden_steps; ++step) {
    const Values at(theta.data(), theta.data() + theta.size());
    const Values g = slope(at);
    optimizer.step(theta, Eigen::Map<const Eigen::VectorXd>(g.data(), 11));
    oracle(step, expected, slope(expected));
    BOOST_TEST_CONTEXT("step " << step)
    BOOST_TEST(test::all_within(theta.data(), expected.data(), 11, [&](Index i) {
      return 16 * step * u64 * (std::abs(expected[static_cast<std::size_t>(i)]) + 1);
    }));
  }
}

template <class O>
double first_step(O optimizer, double theta, double gradient) {
  Eigen::VectorXd x = Eigen::VectorXd::Constant(1, theta);
  optimizer.step(x, Eigen::VectorXd::Constant(1, gradient));
  return x[0];
}

bool says(const std::function<void()>& f, const std::string& part) {
  try {
    f();
  } catch (const std::invalid_argument& e) {
    BOOST_TEST_MESSAGE(e.what());
    return std::string(e.what()).find(part) != std::string::npos;
  }
  return false;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(optim_rules)

BOOST_AUTO_TEST_CASE(sgd_golden) {
  for (const double momentum : {0.0, 0.9})
    for (const double dampening : {0.0, 0.3})
      for (const double decay : {0.0, 0.05})
        for (const bool nesterov : {false, true}) {
          if (nesterov && (momentum == 0 || dampening > 0)) continue;
          const double lr = 0.05;
          Values b(11);
          BOOST_TEST_CONTEXT("momentum " << momentum << " dampening " << dampening << " decay " << decay << " nesterov "
                                         << nesterov)
          check_golden(Sgd({.learning_rate = lr,
                            .momentum = momentum,
                            .dampening = dampening,
                            .weight_decay = decay,
                            .nesterov = nesterov}),
                       [&](int step, Values& theta, const Values& slopes) {
                         for (std::size_t i = 0; i < theta.size(); ++i) {
                           double g = slopes[i] + decay * theta[i];
                           if (momentum != 0) {
                             b[i] = step == 1 ? g : momentum * b[i] + (1 - dampening) * g;
                             g = nesterov ? g + momentum * b[i] : b[i];
                           }
                           theta[i] -= lr * g;
                         }
                       });
        }
}

BOOST_AUTO_TEST_CASE(rmsprop_golden) {
  for (const double momentum : {0.0, 0.8})
    for (const bool centered : {false, true})
      for (const double decay : {0.0, 0.05}) {
        const double lr = 0.01, alpha = 0.95, eps = 1e-6;
        Values v(11), mean(11), b(11);
        BOOST_TEST_CONTEXT("momentum " << momentum << " centered " << centered << " decay " << decay)
        check_golden(RmsProp({.learning_rate = lr,
                              .alpha = alpha,
                              .epsilon = eps,
                              .momentum = momentum,
                              .weight_decay = decay,
                              .centered = centered}),
                     [&](int, Values& theta, const Values& slopes) {
                       for (std::size_t i = 0; i < theta.size(); ++i) {
                         const double g = slopes[i] + decay * theta[i];
                         v[i] = alpha * v[i] + (1 - alpha) * g * g;
                         mean[i] = alpha * mean[i] + (1 - alpha) * g;
                         const double square = centered ? v[i] - mean[i] * mean[i] : v[i];
                         const double step = g / (std::sqrt(square) + eps);
                         b[i] = momentum * b[i] + step;
                         theta[i] -= lr * b[i];
                       }
                     });
      }
}

BOOST_AUTO_TEST_CASE(adam_and_adamw_golden) {
  const double lr = 0.02, beta1 = 0.8, beta2 = 0.97, eps = 1e-7;
  for (const double decay : {0.0, 0.1})
    for (const bool decoupled : {false, true}) {
      Values m(11), v(11);
      const auto oracle = [&](int step, Values& theta, const Values& slopes) {
        for (std::size_t i = 0; i < theta.size(); ++i) {
          const double g = slopes[i] + (decoupled ? 0 : decay * theta[i]);
          if (decoupled) theta[i] *= 1 - lr * decay;
          m[i] = beta1 * m[i] + (1 - beta1) * g;
          v[i] = beta2 * v[i] + (1 - beta2) * g * g;
          const double m_hat = m[i] / (1 - std::pow(beta1, step)), v_hat = v[i] / (1 - std::pow(beta2, step));
          theta[i] -= lr * m_hat / (std::sqrt(v_hat) + eps);
        }
      };
      BOOST_TEST_CONTEXT("decay " << decay << " decoupled " << decoupled) {
        if (decoupled)
          check_golden(
              AdamW({.learning_rate = lr, .beta1 = beta1, .beta2 = beta2, .epsilon = eps, .weight_decay = decay}),
              oracle);
        else
          check_golden(
              Adam({.learning_rate = lr, .beta1 = beta1, .beta2 = beta2, .epsilon = eps, .weight_decay = decay}),
              oracle);
      }
    }
}

// Closed forms of the first steps, worked out by hand from the definitions.
BOOST_AUTO_TEST_CASE(sgd_by_hand) {
  // θ = 1, g = 0.5, lr 0.1: 1 − 0.05; the second step with momentum 0.9 moves by 0.1·(0.9·0.5 + 0.5) = 0.095.
  Eigen::VectorXd theta = Eigen::VectorXd::Constant(1, 1.0);
  const Eigen::VectorXd g = Eigen::VectorXd::Constant(1, 0.5);
  Sgd sgd({.learning_rate = 0.1, .momentum = 0.9});
  sgd.step(theta, g);
  BOOST_TEST(within(theta[0], 0.95, 4 * u64));
  sgd.step(theta, g);
  BOOST_TEST(within(theta[0], 0.855, 8 * u64));
  // Nesterov: g + 0.9·g = 0.95. Damped: the first buffer is the undamped gradient.
  BOOST_TEST(
      within(first_step(Sgd({.learning_rate = 0.1, .momentum = 0.9, .nesterov = true}), 1, 0.5), 0.905, 4 * u64));
  BOOST_TEST(within(first_step(Sgd({.learning_rate = 0.1, .momentum = 0.9, .dampening = 0.5}), 1, 0.5), 0.95, 4 * u64));
  // Decay is coupled: g = 0.5 + 0.2·1.
  BOOST_TEST(within(first_step(Sgd({.learning_rate = 0.1, .weight_decay = 0.2}), 1, 0.5), 0.93, 4 * u64));
}

BOOST_AUTO_TEST_CASE(adam_by_hand) {
  // First step: m̂ = g, v̂ = g², so θ −= lr·g/(|g| + ε), whatever the betas are.
  for (const double g : {3.0, -0.25, 1e-8, -1e-12})
    BOOST_TEST(within(first_step(Adam({.learning_rate = 0.1, .epsilon = 1e-8}), 2.0, g),
                      2.0 - 0.1 * g / (std::abs(g) + 1e-8), 16 * u64));
  // A constant gradient keeps m̂ = g and v̂ = g²: every step is the same.
  Eigen::VectorXd theta = Eigen::VectorXd::Zero(1);
  Adam adam({.learning_rate = 1.0, .epsilon = 0.0});
  for (int step = 1; step <= 7; ++step) {
    adam.step(theta, Eigen::VectorXd::Constant(1, -5.0));
    BOOST_TEST(within(theta[0], step, 32 * step * u64));
  }
  // g = 1, then −1 with β1 = β2 = 1/2: m̂₂ = (1/4 − 1/2)/(3/4) = −1/3, v̂₂ = 1, so θ₂ = −lr + lr/3.
  Eigen::VectorXd turn = Eigen::VectorXd::Zero(1);
  Adam half({.learning_rate = 0.3, .beta1 = 0.5, .beta2 = 0.5, .epsilon = 0.0});
  half.step(turn, Eigen::VectorXd::Constant(1, 1.0));
  half.step(turn, Eigen::VectorXd::Constant(1, -1.0));
  BOOST_TEST(within(turn[0], -0.2, 16 * u64));
  // L2 enters the moments, decoupled decay does not: at g = 0 Adam moves by −lr, AdamW by −lr·λ·θ.
  BOOST_TEST(
      within(first_step(Adam({.learning_rate = 0.1, .epsilon = 0.0, .weight_decay = 0.3}), 2.0, 0.0), 1.9, 8 * u64));
  BOOST_TEST(within(first_step(AdamW({.learning_rate = 0.1, .weight_decay = 0.3}), 2.0, 0.0), 1.94, 8 * u64));
  BOOST_TEST(within(first_step(AdamW({.learning_rate = 0.1}), 2.0, 0.0), 2.0 * (1 - 0.1 * 0.01), 8 * u64));
}

BOOST_AUTO_TEST_CASE(rmsprop_by_hand) {
  // First step: v = 0.01·g², u = g/(0.1|g| + ε) = 10·sign(g) for ε = 0.
  BOOST_TEST(within(first_step(RmsProp({.learning_rate = 0.01, .epsilon = 0.0}), 1.0, 4.0), 0.9, 16 * u64));
  // Centered: v − ḡ² = (0.01 − 0.0001)·g², u = 1/√0.0099.
  BOOST_TEST(within(first_step(RmsProp({.learning_rate = 0.01, .epsilon = 0.0, .centered = true}), 1.0, 4.0),
                    1.0 - 0.01 / std::sqrt(0.0099), 64 * u64));
}

// v − ḡ² rounds below zero for a constant gradient in float: without the max the root would be NaN.
BOOST_AUTO_TEST_CASE(centered_rmsprop_never_takes_the_root_of_a_negative) {
  const Index n = 4096;
  Eigen::VectorXf theta = Eigen::VectorXf::Zero(n), g(n);
  for (Index i = 0; i < n; ++i) g[i] = 1.0f + static_cast<float>(i) / 997.0f;
  RmsProp optimizer({.learning_rate = 1e-3, .alpha = 0.5, .epsilon = 1e-3, .centered = true});
  for (int step = 0; step < 60; ++step) optimizer.step(theta, g);
  bool negative = false;  // the case does occur
  for (Index i = 0; i < n; ++i) {
    const float v = optimizer.state<float>().moments[0].data()[i], mean = optimizer.state<float>().moments[1].data()[i];
    negative = negative || v - mean * mean < 0;
  }
  BOOST_TEST(negative);
  BOOST_TEST(theta.allFinite());
}

BOOST_AUTO_TEST_CASE(float_follows_double) {
  Eigen::VectorXd wide = Eigen::VectorXd::LinSpaced(37, -2, 2);
  Eigen::VectorXf narrow = wide.cast<float>();
  AdamW a({.learning_rate = 0.01}), b({.learning_rate = 0.01});
  for (int step = 0; step < 10; ++step) {
    const Eigen::VectorXf g = (narrow.array() * 0.7f + static_cast<float>(step)).sin().matrix();
    a.step(narrow, g);
    b.step(wide, g.cast<double>());
  }
  // Ten steps, each rounding θ (|θ| ≤ 2.1) and an update of ≤ lr·16u.
  BOOST_TEST(test::all_within(narrow.data(), wide.data(), 37,
                              [](Index) { return 10 * 4 * 2.1 * test::unit_roundoff<float>; }));
}

BOOST_AUTO_TEST_CASE(defaults) {
  BOOST_TEST(AdamRule{}.weight_decay == 0.0);
  BOOST_TEST(AdamWRule{}.weight_decay == 0.01);
  BOOST_TEST(OrthoAdamRule{}.weight_decay == 0.0);
  BOOST_TEST(OrthoAdamRule::decoupled_decay);
  BOOST_TEST(!AdamRule::decoupled_decay);
  BOOST_TEST(RmsPropRule{}.learning_rate == 1e-2);
}

BOOST_AUTO_TEST_CASE(bad_hyper_parameters) {
  BOOST_TEST(says([] { Sgd({.learning_rate = 0}); }, "learning_rate is 0, expected a finite number > 0"));
  BOOST_TEST(says([] { Sgd({.learning_rate = -1}); }, "learning_rate is -1"));
  BOOST_TEST(says([] { Adam({.learning_rate = std::nan("")}); }, "learning_rate is nan"));
  BOOST_TEST(says([] { Adam({.learning_rate = HUGE_VAL}); }, "learning_rate is inf"));
  BOOST_TEST(says([] { Adam({.beta1 = 1.0}); }, "Adam: beta1 is 1, expected a number in [0, 1)"));
  BOOST_TEST(says([] { AdamW({.beta2 = -0.1}); }, "AdamW: beta2 is -0.1"));
  BOOST_TEST(says([] { AdamW({.beta2 = std::nan("")}); }, "AdamW: beta2 is nan"));
  BOOST_TEST(says([] { Adam({.epsilon = -1e-8}); }, "Adam: epsilon is -1e-08"));
  BOOST_TEST(says([] { Adam({.weight_decay = -1}); }, "weight_decay is -1"));
  BOOST_TEST(says([] { Sgd({.momentum = 1}); }, "Sgd: momentum is 1"));
  BOOST_TEST(says([] { Sgd({.momentum = 0.9, .dampening = 1.5}); }, "Sgd: dampening is 1.5"));
  BOOST_TEST(says([] { Sgd({.nesterov = true}); }, "nesterov expects momentum > 0"));
  BOOST_TEST(says([] { RmsProp({.alpha = 1}); }, "RmsProp: alpha is 1"));
  BOOST_TEST(says([] { OrthoAdam<>({.beta1 = 2}); }, "OrthoAdam: beta1 is 2"));
  BOOST_TEST(says([] { OrthoAdam<>({}, {.max_dim = 2}); }, "max_dim is 2, expected at least 3"));
}

BOOST_AUTO_TEST_SUITE_END()
