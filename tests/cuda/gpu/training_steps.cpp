// The training step of GPT-2 124M; in emulation of a model that is tiny.
#include <meso/cuda/clip.cuh>
#include <meso/cuda/transformer.cuh>

#include "tests/cuda/attention_instances.hpp"
#include "tests/cuda/gpu/plans.hpp"
#include "tests/cuda/gpu/table.hpp"

namespace meso::table {
namespace {

/// Milliseconds of a step; prints tokens a second, the share of the measured rate of products, and the loss, which must
/// fall.
template <class Scalar, class Optimizer>
double training_step(Table& table, const char* type, const char* name, Optimizer optimizer, double rate) {
  cuda::Context& context = table.context;
  TransformerConfig<cuda::Gpt2Softmax1> config;
  config.vocabulary = table.sizes.vocabulary;
  config.width = emulated ? 64 : 768;
  config.layers = emulated ? 1 : 12;
  config.heads = emulated ? 2 : 12;
  config.context = emulated ? 16 : 1024;
  Transformer<Scalar, cuda::Gpt2Softmax1, Cuda> model(context, config);
  typename Transformer<Scalar, cuda::Gpt2Softmax1, Cuda>::Cache cache;
  auto gradients = model.gradients();
  const Index batch = emulated ? 1 : 8, time = config.context, tokens = batch * time;
  std::vector<Token> input, target;
  for (Index i = 0; i < tokens; ++i) {
    input.push_back(static_cast<Token>(Random{1, 1}.below(static_cast<std::uint64_t>(i), config.vocabulary)));
    target.push_back(static_cast<Token>(Random{1, 2}.below(static_cast<std::uint64_t>(i), config.vocabulary)));
  }
  double first = 0, loss = 0;
  const auto step = [&] {
    model.forward(context, input, time, cache);
    loss = model.backward(context, target, cache, gradients).mean();
    const double norm = cuda::global_norm(context, gradients);
    optimizer.step(context, model.parameters(), gradients, {.gradient_scale = norm > 1 ? 1 / norm : 1.0});
    if (first == 0) first = loss;
  };
  if (emulated) step();  // one more, for the loss to fall
  const double ms = table.milliseconds(step);
  // 6 operations a weight and token; 6·layers·width·time for the two products of causal attention, forward and backward.
  const double weights = static_cast<double>(model.parameters().layout.trainable());
  const double attention = 6.0 * static_cast<double>(config.layers * config.width * time);
  const double flops = static_cast<double>(tokens) * (6 * weights + attention);
  const bool bad = !(loss < first);
  table.failures += bad;
  ++table.lines;
  std::printf("%s step, %-10s %-5s %9.1f ms  %9.0f tokens/s  %5.1f %% of products  loss %.3f -> %.3f%s\n",
              emulated ? "tiny model" : "GPT-2 124M", name, type, ms, 1e3 * static_cast<double>(tokens) / ms,
              100 * flops / ms / rate, first, loss, bad ? " FAILED" : "");
  std::fflush(stdout);
  return ms;
}

}  // namespace

void training_steps(Table& table) {
  const AdamWRule adam{.learning_rate = 3e-4, .weight_decay = 0.01};
  training_step<float>(table, "float", "AdamW", cuda::Optimizer<AdamWRule>(adam), table.float_rate);
  const double plain = training_step<bf16>(table, "bf16", "AdamW", cuda::Optimizer<AdamWRule>(adam), table.bf16_rate);
  const OrthoAdamRule ortho{.learning_rate = 3e-4, .weight_decay = 0.01};
  const auto ratio = [&](const char* name, double ms) {
    std::printf("training step, OrthoAdam %-10s %.3f times that with AdamW\n", name, ms / plain);
  };
  ratio("Hadamard", training_step<bf16>(table, "bf16", "Hadamard", cuda::Optimizer<OrthoAdamRule, HadamardSigns>(ortho),
                                        table.bf16_rate));
  ratio("Kronecker", training_step<bf16>(table, "bf16", "Kronecker", cuda::Optimizer<OrthoAdamRule, Reflections>(ortho),
                                         table.bf16_rate));
}

}  // namespace meso::table
