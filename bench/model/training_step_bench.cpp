// One whole training step: forward, backward, clipping and optimizer, float.
#include <meso/optim.hpp>

#include "workload.hpp"

using namespace meso;

template <class Optimizer, class Architecture>
struct TrainingStep {
  TransformerConfig<Architecture> config;
  Index sequences;
  Transformer<float, Architecture> model{config};
  std::vector<Token> tokens = bench::random_tokens(sequences * config.context, 0, config.vocabulary);
  std::vector<Token> targets = bench::random_tokens(sequences * config.context, 1, config.vocabulary);
  TransformerCache<float> cache = {};
  Parameters<float> gradients{model.gradients()};
  Optimizer optimizer{{.learning_rate = 1e-4}};

  template <class Products>
  double operator()(CpuContext<Products>& context) {
    model.forward(context, tokens, config.context, cache);
    const LossSum loss = model.backward(context, targets, cache, gradients);
    optimizer.step(context, model.parameters(), gradients,
                   {.gradient_scale = clip_scale(global_norm(context, gradients), 1.0)});
    return loss.sum;
  }
};

template <class Optimizer, class Architecture>
static auto training_step(const TransformerConfig<Architecture>& config, Index sequences) {
  return [=]<class Products>(benchmark::State& state, CpuContext<Products>& context) {
    TrainingStep<Optimizer, Architecture> step{config, sequences};
    const double tokens = static_cast<double>(step.tokens.size());
    bench::measure(state, {.flops = bench::step_flops(step.model, sequences), .tokens = tokens},
                   [&] { return step(context); });
  };
}

/// First's step in times of Second's, `pairs` times; of the training step, or of a model of `small` width.
template <class First, class Second>
static void add_pair(const std::string& name, int first_threads = 2, int pairs = 5, Index small = 0) {
  bench::add_pair("model/" + name, pairs, [=](benchmark::State& state) {
    CpuContext<> context(first_threads), other(2);
    const auto step =
        [=]<class Optimizer, class Architecture>(std::type_identity<TrainingStep<Optimizer, Architecture>>) {
          return small ? TrainingStep<Optimizer, Architecture>{bench::small_config<Architecture>(small),
                                                               bench::small_batch(small)}
                       : TrainingStep<Optimizer, Architecture>{bench::step_config<Architecture>(), bench::batch};
        };
    auto first = step(std::type_identity<First>{});
    auto second = step(std::type_identity<Second>{});
    bench::measure_pair(
        state, [&] { return first(context); }, [&] { return second(other); });
  });
}

static void add_curves() {
  const auto add = [](const std::string& name, const TransformerConfig<Gpt2>& config, Index sequences) {
    bench::add("model/curve/" + name, 2, training_step<Adam>(config, sequences));
  };
  const auto base = bench::step_config<Gpt2>();
  for (const Index time : {64, 128, 512, 1024}) {
    auto config = base;
    config.context = time;
    add("time=" + std::to_string(time), config, bench::tokens / time);
  }
  for (const Index layers : {2, 4, 12}) {
    auto config = base;
    config.layers = layers;
    add("layers=" + std::to_string(layers), config, bench::batch);
  }
  for (const Index width : {128, 256, 512}) {
    auto config = base;
    config.width = width;
    config.heads = width / bench::head_size;
    add("width=" + std::to_string(width), config, bench::batch);
  }
  for (const Index batch : {1, 2, 4, 16}) add("batch=" + std::to_string(batch), base, batch);
}

int main(int argc, char** argv) {
  const auto gpt2 = bench::step_config<Gpt2>();
  bench::add_backends("model/step/gpt2/adam", training_step<Adam>(gpt2, bench::batch));
  using Plain = TrainingStep<Adam, Gpt2>;
  using Softmax1 = TrainingStep<Adam, Gpt2Softmax1>;
  add_pair<Softmax1, Plain>("pair/softmax1_softmax");
  add_pair<TrainingStep<OrthoAdam<HadamardRotation>, Gpt2Softmax1>, Softmax1>("pair/hadamard_adam");
  add_pair<TrainingStep<OrthoAdam<KroneckerRotation>, Gpt2Softmax1>, Softmax1>("pair/kronecker_adam");
  add_pair<Plain, Plain>("pair/one_two_threads", 1);
  for (const Index width : {128, 64}) {
    const std::string name = "width=" + std::to_string(width);
    bench::add("model/small/" + name, training_step<Adam>(bench::small_config<Gpt2>(width), bench::small_batch(width)));
    add_pair<Plain, Plain>("small/one_two_threads/" + name, 1, 50, width);
  }
  bench::add("model/step/llama/adam", 2, training_step<Adam>(bench::step_config<Llama>(), bench::batch));
  add_curves();
  return bench::run(argc, argv);
}
