// expect: does not satisfy meso::Activation.*backward
#include <meso/model.hpp>

struct ForwardOnly {
  static constexpr bool gated = false;
  void forward(meso::ConstArray<float> x, meso::Array<float> y) const { y = x; }
};
struct Own : meso::Gpt2 {
  using Mlp = ForwardOnly;
};

int main() { meso::Transformer<float, Own> model({}); }
