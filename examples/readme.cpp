#include <cstdio>
#include <meso/meso.hpp>

struct Ablation : meso::Gpt2Softmax1 {
  using Norm = meso::RmsNormSingle;  // an ablation is one line
};

int main() {
  meso::CpuContext<> context;
  meso::Transformer<float, Ablation> model({.vocabulary = 256, .width = 64, .layers = 2, .heads = 4, .context = 32});
  meso::OrthoAdam<> optimizer({.learning_rate = 3e-3});
  const auto text = meso::TokenStream::from_bytes(std::string(2000, 'a') + std::string(2000, 'b'));
  (void)text;
}
