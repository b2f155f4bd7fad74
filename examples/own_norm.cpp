// A norm of one's own: Dynamic Tanh, y = γ ∘ tanh(α·x), which looks at no other channel (Zhu et al., "Transformers
// without Normalization", CVPR 2025; its bias is left out). Any architecture takes it.
#include <cmath>
#include <iostream>
#include <meso/meso.hpp>

struct DynamicTanh {
  double alpha = 0.5;  // at the start; set it in the model's config: {.norm = {.alpha = 0.8}}

  static constexpr meso::Index saved_per_row = 0;                             // backward needs x alone
  meso::Index parameter_count(meso::Index width) const { return 1 + width; }  // α, γ
  meso::Index declare(meso::ParameterLayout& layout, const std::string& prefix, meso::Index width) const {
    const meso::Index first = layout.add(prefix + ".alpha", 1, 1, meso::ParameterKind::gain);
    layout.add(prefix + ".gain", 1, width, meso::ParameterKind::gain, meso::ParameterLayout::Placement::packed);
    return first;
  }
  template <class S>
  void initialize(meso::Index, meso::Array<S> theta) const {
    theta.setOnes();
    theta[0] = static_cast<S>(alpha);
  }
  template <class S>
  void forward(meso::ConstArray<S> theta, meso::ConstArray<S> x, meso::Array<S> y, meso::Array<S>) const {
    y = theta.tail(x.size()) * (theta[0] * x).tanh();
  }
  template <class S>
  void backward(meso::ConstArray<S> theta, meso::ConstArray<S> x, meso::ConstArray<S>, meso::ConstArray<S> dy,
                meso::Array<S> dx, meso::Array<S> dtheta) const {
    dx = (theta[0] * x).tanh();
    dtheta.tail(x.size()) += dy * dx;
    dx = theta.tail(x.size()) * dy * (1 - dx.square());  // the gradient of α·x
    dtheta[0] += (dx * x).sum();
    dx *= theta[0];
  }
};
struct Own : meso::Llama {
  using Norm = DynamicTanh;
};

int main() {
  // On a plain matrix.
  const Eigen::MatrixXd x = Eigen::MatrixXd::Constant(2, 3, 2.0);
  std::cout << "Dynamic Tanh of 2: " << meso::apply(DynamicTanh{}, x)(0, 0) << '\n';

  // In a model, which learns 40 tokens by heart.
  meso::Transformer<double, Own> model({.vocabulary = 9, .width = 16, .layers = 2, .heads = 2, .context = 10});
  meso::CpuContext<> context;
  meso::AdamW optimizer({.learning_rate = 1e-2});
  const auto batches = [](meso::Index, meso::Batch& b) {
    b = {{}, {}, 10};
    for (int i = 0; i < 40; ++i) b.tokens.push_back(i * i / 5 % 9), b.targets.push_back(i * i / 3 % 9);
  };
  double first = 0, last = 0;
  meso::train(context, model, optimizer, meso::Constant{}, batches, {.steps = 150},
              [&](const meso::StepReport& r) { (r.step == 1 ? first : last) = r.loss; });
  std::cout << "loss " << first << " at step 1, " << last << " at step 150\n";
  return std::abs(meso::apply(DynamicTanh{}, x)(0, 0) - std::tanh(1.0)) < 1e-15 && last < first / 2 ? 0 : 1;
}
