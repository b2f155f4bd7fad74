#include <boost/test/unit_test.hpp>
#include <meso/model/architectures.hpp>
#include <meso/model/transformer.hpp>
#include <meso/optim.hpp>

#include "tests/support/gradient_check.hpp"
#include "tests/support/tolerance.hpp"

// Policies of a user, outside of the library's namespace: all with learned parameters, all in one model.
namespace own {

using meso::Array, meso::ConstArray, meso::Index;

/// p_j = e^{a·z_j} / (e^b + Σ e^{a·z}), (a, b) learned for each head.
struct TemperedSink {
  static constexpr Index parameters_per_head = 2;
  static constexpr bool scaled_scores = false;

  template <class S>
  void initialize(const meso::Row& row, Array<S> theta) const {
    theta[0] = S(1) / static_cast<S>(row.head + 1);  // each head starts elsewhere
    theta[1] = S(0);
  }
  template <class S>
  void forward(const meso::Row&, ConstArray<S> theta, ConstArray<S> z, Array<S> p) const {
    const S top = std::max(theta[1], (theta[0] * z).maxCoeff());
    p = (theta[0] * z - top).exp();
    p /= std::exp(theta[1] - top) + p.sum();
  }
  template <class S>
  void backward(const meso::Row&, ConstArray<S> theta, ConstArray<S> z, ConstArray<S> p, ConstArray<S> dp, Array<S> dz,
                Array<S> dtheta) const {
    const S delta = (p * dp).sum();
    dz = p * (dp - delta);  // of a·z
    dtheta[0] += (z * dz).sum();
    dtheta[1] -= (1 - p.sum()) * delta;
    dz *= theta[0];
  }
};

/// y = γ ∘ tanh(α·x), α one number; nothing is saved for the backward pass.
struct DynamicTanh {
  static constexpr Index saved_per_row = 0;
  Index parameter_count(Index width) const { return 1 + width; }
  Index declare(meso::ParameterLayout& layout, const std::string& prefix, Index width) const {
    const Index first = layout.add(prefix + ".alpha", 1, 1, meso::ParameterKind::gain);
    layout.add(prefix + ".gain", 1, width, meso::ParameterKind::gain, meso::ParameterLayout::Placement::packed);
    return first;
  }
  template <class S>
  void initialize(Index, Array<S> theta) const {
    theta.setOnes();
    theta[0] = S(0.5);
  }
  template <class S>
  void forward(ConstArray<S> theta, ConstArray<S> x, Array<S> y, Array<S>) const {
    y = theta.tail(x.size()) * (theta[0] * x).tanh();
  }
  template <class S>
  void backward(ConstArray<S> theta, ConstArray<S> x, ConstArray<S>, ConstArray<S> dy, Array<S> dx,
                Array<S> dtheta) const {
    dx = (theta[0] * x).tanh();
    dtheta.tail(x.size()) += dy * dx;
    dx = theta.tail(x.size()) * dy * (1 - dx.square());
    dtheta[0] += (dx * x).sum();
    dx *= theta[0];
  }
};

struct Architecture : meso::Llama {
  using Normalizer = TemperedSink;
  using Norm = DynamicTanh;
};

struct Lion {
  double learning_rate = 1e-4, weight_decay = 0;
  static constexpr int moments = 1;
  static constexpr bool decoupled_decay = true;

  template <class S>
  void direction(Index, ConstArray<S> g, Array<S> u, Array<S> m) const {
    u = (S(0.9) * m + S(0.1) * g).sign();
    m = S(0.99) * m + S(0.01) * g;
  }
};

}  // namespace own

namespace {

meso::TransformerConfig<own::Architecture> config() {
  return {.vocabulary = 9, .width = 8, .layers = 2, .heads = 2, .context = 6, .mlp_width = 8};
}

/// 24 tokens and targets that no rule connects.
void fill(std::vector<meso::Token>& tokens, std::vector<meso::Token>& targets) {
  for (meso::Token i = 0; i < 24; ++i) {
    tokens.push_back(i * i / 5 % 9);
    targets.push_back(i * i / 3 % 9);
  }
}

template <class Optimizer>
void learns_by_heart(Optimizer optimizer) {
  meso::Transformer<double, own::Architecture> model(config());
  meso::CpuContext<> context(2);
  meso::TransformerCache<double> cache;
  auto gradients = model.gradients();
  std::vector<meso::Token> tokens, targets;
  fill(tokens, targets);
  double first = 0, last = 0;
  for (int step = 1; step <= 200; ++step) {
    model.forward(context, tokens, 6, cache);
    last = model.backward(context, targets, cache, gradients).mean();
    if (step == 1) first = last;
    optimizer.step(context, model.parameters(), gradients);
  }
  BOOST_TEST(last < first / 2);
  BOOST_TEST(model.parameters()["blocks.1.attention.normalizer"](1, 0) != 0.5);
  BOOST_TEST(model.parameters()["blocks.0.norm1.alpha"](0, 0) != 0.5);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(own_policies)

BOOST_AUTO_TEST_CASE(start_where_they_say) {
  const meso::Transformer<double, own::Architecture> model(config());
  const meso::Parameters<double>& p = model.parameters();
  for (const char* block : {"blocks.0.", "blocks.1."}) {
    const meso::View<const double> theta = p[std::string(block) + "attention.normalizer"];
    BOOST_TEST((theta.rows == 2 && theta.cols == 2));
    BOOST_TEST((theta(0, 0) == 1 && theta(1, 0) == 0.5 && theta(0, 1) == 0 && theta(1, 1) == 0));
    BOOST_TEST(p[std::string(block) + "norm2.alpha"](0, 0) == 0.5);
  }
  BOOST_TEST((p.layout["blocks.0.attention.normalizer"].kind == meso::ParameterKind::normalizer));
}

BOOST_AUTO_TEST_CASE(gradients_agree) {
  meso::Transformer<double, own::Architecture> model(config());
  meso::Parameters<double>& p = model.parameters();
  for (meso::Index i = 0; i < p.layout.count(); ++i)  // away from the initial symmetry
    for (meso::Index j = 0; j < p[i].size(); ++j)
      p[i].data[j] += 0.3 * meso::Random{3, static_cast<std::uint64_t>(i)}.normal(static_cast<std::uint64_t>(j));
  std::vector<meso::Token> tokens, targets;
  fill(tokens, targets);
  meso::CpuContext<> context(2);
  meso::TransformerCache<double> cache, scratch;
  auto gradients = model.gradients();
  model.forward(context, tokens, 6, cache);
  model.backward(context, targets, cache, gradients);
  const auto loss = [&](const double*) {
    const meso::View<const double> logits = model.forward(context, tokens, 6, scratch);
    return meso::cross_entropy<meso::PackedProducts, double>(context, logits, targets, {}).mean();
  };
  // About 60 roundings in a row a layer, scores and logits of the size of 10.
  for (const meso::ParameterInfo& info : p.layout)
    BOOST_TEST(meso::test::gradient_agrees(info.name, loss, p[info.name].data, info.size(), gradients[info.name].data,
                                           {.rounding = 4096, .magnitude = 10}));
}

BOOST_AUTO_TEST_CASE(a_rule_steps_as_written) {
  // m = 0: the first direction is sign(g); then 0.9·m + 0.1·g with m = 0.01·g₁.
  Eigen::VectorXd theta(3), gradient(3);
  theta << 1, 1, 1;
  gradient << 2, 0, -3;
  meso::Optimizer<own::Lion> lion({.learning_rate = 0.5, .weight_decay = 0.1});
  lion.step(theta, gradient);
  // θ = (1 − 0.5·0.1)·1 − 0.5·sign(g)
  const Eigen::Vector3d after_one(0.45, 0.95, 1.45);
  for (Eigen::Index i = 0; i < 3; ++i)
    BOOST_TEST(meso::test::within(theta[i], after_one[i], 4 * meso::test::unit_roundoff<double>));
  gradient << -0.1, 0, 1;  // 0.9·0.02 − 0.01 > 0; 0.9·(−0.03) + 0.1 > 0
  lion.step(theta, gradient);
  const Eigen::Vector3d after_two(0.95 * 0.45 - 0.5, 0.95 * 0.95, 0.95 * 1.45 - 0.5);
  for (Eigen::Index i = 0; i < 3; ++i)
    BOOST_TEST(meso::test::within(theta[i], after_two[i], 16 * meso::test::unit_roundoff<double>));
}

BOOST_AUTO_TEST_CASE(a_model_of_them_trains) {
  learns_by_heart(meso::Adam({.learning_rate = 1e-2}));
  learns_by_heart(meso::Optimizer<own::Lion>({.learning_rate = 3e-3}));
  learns_by_heart(meso::Optimizer<own::Lion, meso::KroneckerRotation>({.learning_rate = 3e-3}));
}

BOOST_AUTO_TEST_SUITE_END()
