// The device half of train_text: the same text on an NVIDIA GPU, in float, then with bf16 weights and activations and
// float master weights. It needs no Eigen. The head size is 32, the smallest that the kernels have.
#include <iostream>
#include <meso/cuda/clip.cuh>
#include <meso/cuda/optimizer.cuh>
#include <meso/cuda/probes.cuh>
#include <meso/cuda/transformer.cuh>
#include <string>

#include "train_text.hpp"

namespace {

template <class Scalar>
double train(meso::cuda::Context& context) {
  meso::TransformerConfig<meso::cuda::Gpt2Softmax1> config;
  config.vocabulary = 256;
  config.width = 64;
  config.layers = 2;
  config.heads = 2;
  config.context = train_text_time;
  meso::Transformer<Scalar, meso::cuda::Gpt2Softmax1, meso::Cuda> model(context, config);
  meso::cuda::Optimizer<meso::cuda::AdamWRule> optimizer({.learning_rate = 1e-2});
  return train_text(context, model, optimizer, 200);
}

}  // namespace

/// 0, 1 if it has not learned, or 3 where there is no GPU.
int train_on_gpu();
int train_on_gpu() {
  if (const std::string reason = meso::cuda::unavailable(); !reason.empty()) {
    std::cerr << "train_text: --device cuda: " << reason << '\n';
    return 3;
  }
  meso::cuda::Context context;
  const double plain = train<float>(context), rounded = train<meso::cuda::bf16>(context);
  return plain < 2 && rounded < 2 ? 0 : 1;
}
