#include <algorithm>
#include <functional>
#include <meso/optim.hpp>
#include <string_view>

#include "golden.hpp"

using namespace meso;
using namespace meso::test;

namespace {

constexpr Index steps = 20, matrix_size = 15, size = 22;

/// The script's two parameters: a matrix of 15, which decays, and a vector of 7, which does not.
ParameterLayout layout() {
  ParameterLayout l;
  l.add("matrix", 3, 5, ParameterKind::matrix);
  l.add("vector", 1, 7, ParameterKind::bias);
  return l;
}
template <class S>
void put(Parameters<S>& p, const RowMajorMatrix<S>& values, Index row) {
  std::copy_n(values.row(row).data(), matrix_size, p["matrix"].data);
  std::copy_n(values.row(row).data() + matrix_size, size - matrix_size, p["vector"].data);
}
template <class S>
void get(const Parameters<S>& p, RowMajorMatrix<S>& values, Index row) {
  std::copy_n(p["matrix"].data, matrix_size, values.row(row).data());
  std::copy_n(p["vector"].data, size - matrix_size, values.row(row).data() + matrix_size);
}

template <class S>
using Options = std::function<StepOptions(Index step, const Parameters<S>& gradients)>;

/// Runs the golden gradients through an optimizer: the parameters after each step, (20, 22).
template <class S, class O>
RowMajorMatrix<S> run(O optimizer, const ParameterLayout& l, const Options<S>& options) {
  Parameters<S> theta(l), gradients(l);
  put(theta, golden::load<S>("optimizer/start"), 0);
  const RowMajorMatrix<S> g = golden::load<S>("optimizer/gradients");
  RowMajorMatrix<S> trajectory(steps, size);
  CpuContext<> context(2);
  for (Index t = 0; t < steps; ++t) {
    put(gradients, g, t);
    optimizer.step(context, theta, gradients, options ? options(t + 1, gradients) : StepOptions{});
    get(theta, trajectory, t);
  }
  return trajectory;
}

/// Step t rounds the parameter twice and moves it by a direction that has summed t gradients: 2Θ + (2t + 14)·Δ
/// roundings, Θ the largest parameter and Δ the largest step; `turned` more in the direction by a rotation. Steps add.
template <class S>
void check_trajectory(const std::string& name, const RowMajorMatrix<S>& trajectory, double turned = 0) {
  const RowMajorMatrix<double> expected = golden::load<double>(name);
  double step = golden::largest(expected.row(0) - golden::load<double>("optimizer/start"));
  for (Index t = 1; t < expected.rows(); ++t)
    step = std::max<double>(step, golden::largest(expected.row(t) - expected.row(t - 1)));
  const double top = golden::largest(expected);
  BOOST_TEST(golden::agrees<S>(name, trajectory, [&](Index t, Index) {
    const double count = static_cast<double>(t + 1);
    return count * (2 * top + (2 * count + 14 + turned) * step);
  }));
}

template <class S, class O>
void check_optimizer(const std::string& name, const O& optimizer, const ParameterLayout& l = layout(),
                     const Options<S>& options = {}) {
  check_trajectory<S>("optimizer/" + name + "/trajectory", run<S>(optimizer, l, options));
}

/// A rotation of the user: the golden matrices.
struct GivenRotation {
  template <class S>
  struct Plan {
    RowMajorMatrix<S> q;

    template <class Products>
    void rotate(CpuContext<Products>&, View<const S> in, View<S> out) const {
      array(out.data, out.size()) = (q * array(in.data, in.size()).matrix()).array();
    }
    template <class Products>
    void rotate_back(CpuContext<Products>&, View<const S> in, View<S> out) const {
      array(out.data, out.size()) = (q.transpose() * array(in.data, in.size()).matrix()).array();
    }
  };
  template <class S>
  Plan<S> prepare(std::string_view name, Index, Index) const {
    return {golden::load<S>("optimizer/ortho_adam/q_" + std::string(name))};
  }
};

/// Q of a plan, column by column: what it makes of each basis vector.
template <class R>
Eigen::MatrixXd matrix_of(const R& rotation, const ParameterInfo& info) {
  const auto plan = rotation.template prepare<double>(info.name, info.rows, info.cols);
  Eigen::MatrixXd q(info.size(), info.size());
  CpuContext<> context(1);
  for (Index k = 0; k < info.size(); ++k) {
    RowMajorMatrix<double> basis = RowMajorMatrix<double>::Zero(info.rows, info.cols), turned = basis;
    basis.data()[k] = 1;
    plan.rotate(context, cview(basis), view(turned));
    q.col(k) = Eigen::Map<const Eigen::VectorXd>(turned.data(), turned.size());
  }
  return q;
}

/// OrthoAdam as the paper writes it, in a few lines, on the same gradients with the same Q.
template <class R>
void check_against_a_few_lines(const R& rotation) {
  const ParameterLayout l = layout();
  const RowMajorMatrix<double> g = golden::load<double>("optimizer/gradients");
  RowMajorMatrix<double> start = golden::load<double>("optimizer/start"), expected(steps, size);
  for (const ParameterInfo& info : l) {
    const Eigen::MatrixXd q = matrix_of(rotation, info);
    BOOST_TEST(golden::largest(q.transpose() * q - Eigen::MatrixXd::Identity(info.size(), info.size())) < 1e-14);
    const Index first = info.name == "matrix" ? 0 : matrix_size, n = info.size();
    const double decay = info.name == "matrix" ? 0.1 : 0;
    Eigen::VectorXd theta = start.row(0).segment(first, n), m = Eigen::VectorXd::Zero(n), v = m;
    for (Index t = 1; t <= steps; ++t) {
      const Eigen::VectorXd turned = q * g.row(t - 1).segment(first, n).transpose();
      m = 0.9 * m + 0.1 * turned;
      v = 0.95 * v + 0.05 * turned.cwiseAbs2();
      Eigen::VectorXd u(n);
      for (Index i = 0; i < n; ++i)
        u[i] = m[i] / (1 - std::pow(0.9, t)) / (std::sqrt(v[i] / (1 - std::pow(0.95, t))) + 1e-8);
      theta = (1 - 0.01 * decay) * theta - 0.01 * (q.transpose() * u);
      expected.row(t - 1).segment(first, n) = theta;
    }
  }
  const OrthoAdam<R> optimizer({.learning_rate = 0.01, .beta2 = 0.95, .weight_decay = 0.1}, rotation);
  const RowMajorMatrix<double> trajectory = run<double>(optimizer, l, {});
  // As check_trajectory; a rotation of n elements adds 2(n + 4)·√n roundings of the largest, up to ten times the
  // element that they meet.
  const double bound = steps * (2 * golden::largest(expected) + (2 * steps + 14 + 20 * 19 * std::sqrt(15.0)) * 0.04);
  BOOST_TEST(all_within(trajectory.data(), expected.data(), trajectory.size(),
                        [&](Index) { return bound * golden::roundings<double>; }));
}

BOOST_AUTO_TEST_SUITE(golden_optimizer)

BOOST_AUTO_TEST_CASE_TEMPLATE(sgd, S, golden::Scalars) {
  check_optimizer<S>("sgd", Sgd({.learning_rate = 0.05}));
  check_optimizer<S>("sgd_decay", Sgd({.learning_rate = 0.05, .weight_decay = 0.1}));
  check_optimizer<S>("sgd_momentum", Sgd({.learning_rate = 0.05, .momentum = 0.9}));
  check_optimizer<S>("sgd_dampening", Sgd({.learning_rate = 0.05, .momentum = 0.9, .dampening = 0.3}));
  check_optimizer<S>("sgd_nesterov", Sgd({.learning_rate = 0.05, .momentum = 0.9, .nesterov = true}));
  check_optimizer<S>("sgd_nesterov_decay",
                     Sgd({.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true}));
  check_optimizer<S>("sgd_schedule", Sgd({.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 0.1}), layout(),
                     [](Index step, const Parameters<S>&) {
                       return StepOptions{.learning_rate_factor = std::min<double>(1, static_cast<double>(step) / 8)};
                     });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(rmsprop, S, golden::Scalars) {
  check_optimizer<S>("rmsprop", RmsProp({.learning_rate = 0.01}));
  check_optimizer<S>("rmsprop_momentum", RmsProp({.learning_rate = 0.01, .momentum = 0.9}));
  check_optimizer<S>("rmsprop_centered", RmsProp({.learning_rate = 0.01, .centered = true}));
  check_optimizer<S>("rmsprop_decay", RmsProp({.learning_rate = 0.01, .weight_decay = 0.1}));
  check_optimizer<S>("rmsprop_all", RmsProp({.learning_rate = 0.01,
                                             .alpha = 0.9,
                                             .epsilon = 1e-3,
                                             .momentum = 0.8,
                                             .weight_decay = 0.1,
                                             .centered = true}));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(adam_and_adamw, S, golden::Scalars) {
  check_optimizer<S>("adam", Adam({.learning_rate = 0.01}));
  check_optimizer<S>("adam_decay", Adam({.learning_rate = 0.01, .weight_decay = 0.1}));
  check_optimizer<S>("adam_betas", Adam({.learning_rate = 0.01, .beta1 = 0.5, .beta2 = 0.95, .epsilon = 1e-3}));
  check_optimizer<S>("adamw", AdamW({.learning_rate = 0.01}));
  check_optimizer<S>("adamw_decay", AdamW({.learning_rate = 0.01, .beta2 = 0.95, .weight_decay = 0.5}));
  ParameterLayout groups = layout();
  groups.scale_learning_rate("vector", 0.1);
  check_optimizer<S>("adamw_groups", AdamW({.learning_rate = 0.01, .weight_decay = 0.1}), groups);
  check_optimizer<S>("adamw_clip", AdamW({.learning_rate = 0.01, .weight_decay = 0.1}), layout(),
                     [](Index, const Parameters<S>& gradients) {
                       CpuContext<> context(1);
                       return StepOptions{.gradient_scale = clip_scale(global_norm(context, gradients), 1.0)};
                     });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(ortho_adam_in_a_given_basis, S, golden::Scalars) {
  const Optimizer<OrthoAdamRule, GivenRotation> optimizer({.learning_rate = 0.01, .weight_decay = 0.1});
  check_trajectory<S>("optimizer/ortho_adam/trajectory", run<S>(optimizer, layout(), {}), 20 * 19 * std::sqrt(15.0));
}

BOOST_AUTO_TEST_CASE(ortho_adam_in_its_own_basis) {
  check_against_a_few_lines(DenseRotation{.seed = 5});
  check_against_a_few_lines(KroneckerRotation{.seed = 5});
  check_against_a_few_lines(KroneckerRotation{.seed = 5, .max_dim = 3});
  check_against_a_few_lines(HadamardRotation{.seed = 5});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
