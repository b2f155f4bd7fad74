#include <benchmark/benchmark.h>
#include <meso/model.hpp>
#include <meso/optim.hpp>

using namespace meso;

// One whole training step, forward, backward, clipping and optimizer, float:
// 6 layers, 6 heads, width 384, vocabulary 256, 256 tokens, 8 sequences (10.8 M parameters); the argument is threads.
template <class Architecture, class Optimizer>
static void training_step(benchmark::State& state) {
  constexpr Index time = 256, sequences = 8;
  Transformer<float, Architecture> model({.vocabulary = 256, .width = 384, .layers = 6, .heads = 6, .context = time});
  std::vector<Token> tokens(static_cast<std::size_t>(time * sequences)), targets = tokens;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<Token>(Random{1, 0}.below(i, 256));
    targets[i] = static_cast<Token>(Random{1, 1}.below(i, 256));
  }
  CpuContext<> context(static_cast<int>(state.range(0)));
  TransformerCache<float> cache;
  auto gradients = model.gradients();
  Optimizer optimizer({.learning_rate = 1e-4});
  double loss = 0;
  const auto step = [&] {
    model.forward(context, tokens, time, cache);
    loss = model.backward(context, targets, cache, gradients).mean();
    optimizer.step(context, model.parameters(), gradients,
                   {.gradient_scale = clip_scale(global_norm(context, gradients), 1.0)});
  };
  step();  // plans every buffer and draws the rotations
  for (auto _ : state) {
    step();
    benchmark::DoNotOptimize(loss);
  }
  state.counters["tokens/s"] = benchmark::Counter(
      static_cast<double>(time * sequences) * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(training_step<Gpt2, Adam>)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(training_step<Gpt2Softmax1, Adam>)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(training_step<Gpt2Softmax1, OrthoAdam<HadamardRotation>>)
    ->Arg(2)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(training_step<Gpt2Softmax1, OrthoAdam<KroneckerRotation>>)
    ->Arg(2)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(training_step<Llama, Adam>)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

BENCHMARK_MAIN();
