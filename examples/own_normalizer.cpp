// A normalizer of one's own with a learned number a head: softmax-1 of t·z, t the head's temperature. It is checked
// against central differences inside a whole model in double, then trained.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <meso/meso.hpp>

struct TemperedSoftmax1 {
  static constexpr meso::Index parameters_per_head = 1;  // t
  static constexpr bool scaled_scores = true;            // z comes with its 1/√d

  template <class S>
  void initialize(const meso::Row&, meso::Array<S> theta) const {
    theta[0] = S(1);
  }
  template <class S>
  void forward(const meso::Row&, meso::ConstArray<S> theta, meso::ConstArray<S> z, meso::Array<S> p) const {
    const S top = std::max(S(0), (theta[0] * z).maxCoeff());
    p = (theta[0] * z - top).exp();
    p /= std::exp(-top) + p.sum();
  }
  template <class S>
  void backward(const meso::Row&, meso::ConstArray<S> theta, meso::ConstArray<S> z, meso::ConstArray<S> p,
                meso::ConstArray<S> dp, meso::Array<S> dz, meso::Array<S> dtheta) const {
    dz = p * (dp - (p * dp).sum());  // the gradient of t·z
    dtheta[0] += (z * dz).sum();
    dz *= theta[0];
  }
};
struct Own : meso::Gpt2 {
  using Normalizer = TemperedSoftmax1;
};

int main() {
  meso::Transformer<double, Own> model({.vocabulary = 9, .width = 16, .layers = 2, .heads = 2, .context = 10});
  meso::CpuContext<> context;
  meso::TransformerCache<double> cache;
  meso::Adam optimizer({.learning_rate = 1e-2});
  auto gradients = model.gradients();
  std::vector<meso::Token> tokens, targets;
  for (int i = 0; i < 40; ++i) tokens.push_back(i * i / 5 % 9), targets.push_back(i * i / 3 % 9);
  const auto loss = [&] {
    model.forward(context, tokens, 10, cache);
    return model.backward(context, targets, cache, gradients).mean();
  };
  const auto train = [&](int steps) {
    for (int step = 0; step < steps; ++step) loss(), optimizer.step(context, model.parameters(), gradients);
    return loss();
  };
  const double before = train(30);
  double& t = model.parameters()["blocks.1.attention.normalizer"](1, 0);  // of head 2 in layer 2
  const double exact = gradients["blocks.1.attention.normalizer"](1, 0), saved = t, h = 1e-5;
  const double right = (t = saved + h, loss()), left = (t = saved - h, loss()), numeric = (right - left) / (2 * h);
  t = saved;
  const double after = train(120);
  std::cout << "loss " << before << " after 30 steps, " << after << " after 150\ngradient of a temperature: " << exact
            << ", by central differences: " << numeric << "\nthat temperature at the end: " << t << '\n';
  return after < before / 2 && std::abs(exact - numeric) < 1e-5 * std::abs(exact) ? 0 : 1;
}
