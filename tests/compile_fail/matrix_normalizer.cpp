// expect: needs the mask meso::Bidirectional
#include <meso/model.hpp>
#include <meso/normalizer.hpp>

struct Own : meso::Gpt2 {  // Mask: Causal
  using Normalizer = meso::Sinkhorn;
};

int main() {
  meso::Transformer<float, Own> model({.vocabulary = 2, .width = 2, .layers = 1, .heads = 1, .context = 2});
  meso::CpuContext<> context;
  meso::TransformerCache<float> cache;
  const meso::Token tokens[] = {0, 1};
  model.forward(context, tokens, 2, cache);
}
