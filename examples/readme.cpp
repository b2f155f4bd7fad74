#include <cstdio>
#include <meso/meso.hpp>

struct Ablation : meso::Gpt2Softmax1 {
  using Norm = meso::RmsNormSingle;  // an ablation is one line
};

int main() {
  const meso::BigramBackcopy task("the quick brown fox jumps over the lazy dog while the cat sat on the mat");
  const auto batches = [&](meso::Index number, meso::Batch& batch) { task.sample(1, number, 16, 32, batch); };
  meso::CpuContext<> context;
  meso::Transformer<float, Ablation> model({.vocabulary = 28, .width = 64, .layers = 2, .heads = 4, .context = 32});
  meso::OrthoAdam<> optimizer({.learning_rate = 3e-3});
  meso::train(context, model, optimizer, meso::WarmupCosine{.warmup = 20, .total = 300}, batches, {.steps = 300});
  meso::TransformerCache<float> cache;
  meso::HiddenStateStatistics hidden;
  const double loss = meso::evaluate(context, model, batches, 8, cache).mean();
  meso::add_hidden_states(context, cache, hidden);  // of the last batch
  std::printf("perplexity %.2f, kurtosis %.2f\n", std::exp(loss), hidden.kurtosis(meso::PositionClass::rest));
}
