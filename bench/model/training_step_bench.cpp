// One whole training step: forward, backward, clipping and optimizer, float.
#include <meso/optim.hpp>

#include "workload.hpp"

using namespace meso;

template <class Optimizer, class Architecture>
static auto training_step(const TransformerConfig<Architecture>& config, Index sequences) {
  return [=]<class Products>(benchmark::State& state, CpuContext<Products>& context) {
    Transformer<float, Architecture> model(config);
    const Index count = sequences * config.context;
    const std::vector<Token> tokens = bench::random_tokens(count, 0), targets = bench::random_tokens(count, 1);
    TransformerCache<float> cache;
    auto gradients = model.gradients();
    Optimizer optimizer({.learning_rate = 1e-4});
    bench::measure(state, {.flops = bench::step_flops(model, sequences), .tokens = static_cast<double>(count)}, [&] {
      model.forward(context, tokens, config.context, cache);
      const LossSum loss = model.backward(context, targets, cache, gradients);
      optimizer.step(context, model.parameters(), gradients,
                     {.gradient_scale = clip_scale(global_norm(context, gradients), 1.0)});
      return loss.sum;
    });
  };
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
  const auto softmax1 = bench::step_config<Gpt2Softmax1>();
  bench::add_backends("model/step/gpt2/adam", training_step<Adam>(gpt2, bench::batch));
  bench::add("model/step/gpt2_softmax1/adam", 2, training_step<Adam>(softmax1, bench::batch));
  bench::add("model/step/gpt2_softmax1/ortho_adam_hadamard", 2,
             training_step<OrthoAdam<HadamardRotation>>(softmax1, bench::batch));
  bench::add("model/step/gpt2_softmax1/ortho_adam_kronecker", 2,
             training_step<OrthoAdam<KroneckerRotation>>(softmax1, bench::batch));
  bench::add("model/step/llama/adam", 2, training_step<Adam>(bench::step_config<Llama>(), bench::batch));
  add_curves();
  return bench::run(argc, argv);
}
