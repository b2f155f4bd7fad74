// Trains a tiny model on a string. With `--device cuda` the same function trains it on an NVIDIA GPU, see train_text.cu.
#include "train_text.hpp"

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
  meso::Transformer<float, meso::Gpt2Softmax1> model(
      {.vocabulary = 256, .width = 32, .layers = 2, .heads = 2, .context = train_text_time});
  meso::CpuContext<> context;
  meso::OrthoAdam<> optimizer({.learning_rate = 1e-2});
  return train_text(context, model, optimizer, 400) < 2 ? 0 : 1;
}
