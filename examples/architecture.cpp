// An architecture is a struct of policies, and an ablation is one line: a derived struct that names one part anew.
#include <iostream>
#include <meso/meso.hpp>

struct Small {
  using Normalizer = meso::Softmax1;
  using Norm = meso::LayerNorm;
  using Position = meso::Rotary;
  using Mlp = meso::SwiGlu;
  static constexpr bool bias = false;
};
struct SmallRmsNormSingle : Small {
  using Norm = meso::RmsNormSingle;
};

/// Sequences that count up modulo 17 from a random start.
void counting(meso::Index number, meso::Batch& batch) {
  const meso::Index sequences = 8, time = 12;
  batch.time = time;
  batch.tokens.clear(), batch.targets.clear();
  for (meso::Index i = 0; i < sequences; ++i) {
    const meso::Index start = meso::Random{1}.below(static_cast<std::uint64_t>(number * sequences + i), 17);
    for (meso::Index t = 0; t < time; ++t) {
      batch.tokens.push_back(static_cast<meso::Token>((start + t) % 17));
      batch.targets.push_back(static_cast<meso::Token>((start + t + 1) % 17));
    }
  }
}

template <class Architecture>
bool learns(const char* name) {
  meso::Transformer<float, Architecture> model({.vocabulary = 17, .width = 32, .layers = 2, .heads = 4, .context = 12});
  meso::CpuContext<> context;
  meso::AdamW optimizer({.learning_rate = 1e-2});
  double first = 0, last = 0;
  meso::train(context, model, optimizer, meso::WarmupCosine{.warmup = 5, .total = 60}, counting, {.steps = 60},
              [&](const meso::StepReport& r) { (r.step == 1 ? first : last) = r.loss; });
  std::cout << name << ": " << model.parameters().layout.trainable() << " parameters, loss " << first << " at step 1, "
            << last << " at step 60\n";
  return last < 0.5 * first;
}

int main() {
  const bool small = learns<Small>("LayerNorm");
  const bool ablation = learns<SmallRmsNormSingle>("RMSNorm with one gain");
  return small && ablation ? 0 : 1;
}
