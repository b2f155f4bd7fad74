// OrthoAdam on a plain Eigen vector with a gradient of one's own: a linear regression, no model and no context.
#include <iostream>
#include <meso/core/random.hpp>
#include <meso/optim.hpp>

int main() {
  const Eigen::Index samples = 200, features = 8;
  const meso::Random random{1};
  const Eigen::MatrixXd x = Eigen::MatrixXd::NullaryExpr(samples, features, [&](Eigen::Index i, Eigen::Index j) {
    return random.normal(static_cast<std::uint64_t>(i * features + j));
  });
  const Eigen::VectorXd truth = Eigen::VectorXd::LinSpaced(features, -2, 2);
  const Eigen::VectorXd y = x * truth;

  Eigen::VectorXd w = Eigen::VectorXd::Zero(features);
  const auto loss = [&] { return (x * w - y).squaredNorm() / static_cast<double>(samples); };
  const double before = loss();

  meso::OrthoAdam<> optimizer({.learning_rate = 0.05});
  const meso::WarmupCosine schedule{.warmup = 10, .total = 300, .floor = 0.01};
  for (meso::Index step = 1; step <= 300; ++step) {
    const Eigen::VectorXd gradient = 2.0 / static_cast<double>(samples) * x.transpose() * (x * w - y);
    optimizer.step(w, gradient, {.learning_rate_factor = schedule(step)});
  }

  std::cout << "loss before: " << before << "\nloss after:  " << loss() << '\n';
  std::cout << "weights: " << w.transpose() << "\ntruth:   " << truth.transpose() << '\n';
  return loss() < 1e-4 && (w - truth).cwiseAbs().maxCoeff() < 0.01 ? 0 : 1;
}
