// The device half of train_text: the same text on an NVIDIA GPU, in float, then with bf16 weights and activations and
// float master weights. It needs no Eigen. The head size is 32, the smallest that the kernels have.
#include <iostream>
#include <meso/cuda/clip.cuh>
#include <meso/cuda/optimizer.cuh>
#include <meso/cuda/transformer.cuh>
#include <meso/train/data.hpp>
#include <string>

namespace {

template <class Scalar>
void train(meso::cuda::Context& context, const meso::TokenStream& stream) {
  const meso::Index time = 32;
  meso::TransformerConfig<meso::cuda::Gpt2Softmax1> config;
  config.vocabulary = 256;
  config.width = 64;
  config.layers = 2;
  config.heads = 2;
  config.context = time;
  using Model = meso::Transformer<Scalar, meso::cuda::Gpt2Softmax1, meso::Cuda>;
  Model model(context, config);
  typename Model::Cache cache;
  auto gradients = model.gradients();
  meso::cuda::Optimizer<meso::cuda::AdamWRule> optimizer({.learning_rate = 1e-2});
  meso::Batch batch;
  for (meso::Index step = 1; step <= 200; ++step) {
    stream.sample(1, step, 8, time, batch);
    model.forward(context, batch.tokens, time, cache);
    const meso::LossSum loss = model.backward(context, batch.targets, cache, gradients);
    const double norm = meso::cuda::global_norm(context, gradients);
    optimizer.step(context, model.parameters(), gradients, {.gradient_scale = norm > 1 ? 1 / norm : 1.0});
    if (step % 40 == 0) std::cout << "step " << step << ": loss " << loss.mean() << '\n';
  }
}

}  // namespace

/// 0, or 3 where there is no GPU.
int train_on_gpu();
int train_on_gpu() {
  if (const std::string reason = meso::cuda::unavailable(); !reason.empty()) {
    std::cerr << "train_text: --device cuda: " << reason << '\n';
    return 3;
  }
  std::string text;
  for (int i = 0; i < 20; ++i)
    text += "the cat that the dog chased ran to the house that the man built. a dog ran to the man. the man sat. ";
  const meso::TokenStream stream = meso::TokenStream::from_bytes(text);
  meso::cuda::Context context;
  train<float>(context, stream);
  train<meso::cuda::bf16>(context, stream);
  return 0;
}
