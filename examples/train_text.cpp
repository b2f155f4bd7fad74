// Trains a tiny model on a string. Whatever watches the training is an observer, a lambda; here one prints, and one
// ends the training early. With `--device cuda` it trains on an NVIDIA GPU, see train_text.cu.
#include <cmath>
#include <iostream>
#include <meso/meso.hpp>
#include <string>

#ifdef MESO_EXAMPLE_CUDA
int train_on_gpu();
#else
static int train_on_gpu() {
  std::cerr << "train_text: --device cuda: this build is one without CUDA\n";
  return 3;
}
#endif

int main(int argc, char** argv) {
  if (argc > 1) {
    const std::string device = argc == 3 && std::string(argv[1]) == "--device" ? argv[2] : "";
    if (device == "cuda") return train_on_gpu();
    if (device != "cpu") {
      std::cerr << "usage: train_text [--device cpu|cuda]\n";
      return 2;
    }
  }
  std::string text;
  for (int i = 0; i < 20; ++i)
    text += "the cat that the dog chased ran to the house that the man built. a dog ran to the man. the man sat. ";
  const meso::TokenStream stream = meso::TokenStream::from_bytes(text);

  const meso::Index time = 32;
  meso::Transformer<float, meso::Gpt2Softmax1> model(
      {.vocabulary = 256, .width = 32, .layers = 2, .heads = 2, .context = time});
  meso::CpuContext<> context;
  meso::OrthoAdam<> optimizer({.learning_rate = 1e-2});
  const auto batches = [&](meso::Index number, meso::Batch& batch) { stream.sample(1, number, 8, time, batch); };
  const auto print = [](const meso::StepReport& r) {
    if (r.step % 40 == 0) std::cout << "step " << r.step << ": loss " << r.loss << '\n';
  };
  const auto until_good = [](const meso::StepReport& r) { return r.loss > 0.25; };
  const meso::Index steps = meso::train(context, model, optimizer, meso::WarmupCosine{.warmup = 20, .total = 400},
                                        batches, {.steps = 400}, print, until_good);

  // Perplexity on the last tenth, with probes on the residual stream and on the attention.
  meso::TransformerCache<float> cache;
  meso::HiddenStateStatistics hidden;
  meso::SinkStatistics sinks;
  const auto held_out = [&](meso::Index number, meso::Batch& batch) {
    stream.validation_batch(number, 1, time, batch);
  };
  const meso::LossSum loss = meso::evaluate(context, model, held_out, stream.validation_windows(time), cache);
  meso::add_hidden_states(context, cache, hidden);
  meso::add_attention(context, model, cache, sinks);
  const double perplexity = std::exp(loss.mean());
  std::cout << "after " << steps << " steps: perplexity " << perplexity << ", kurtosis "
            << hidden.kurtosis(meso::PositionClass::rest) << ", first-token mass " << sinks.first_token_mass()
            << ", null mass " << sinks.null_mass() << '\n';
  return perplexity < 2 ? 0 : 1;
}
