// expect: does not satisfy meso::Architecture.*typename A::Norm.*invalid
#include <meso/model.hpp>

struct WithoutNorm {
  using Normalizer = meso::Softmax;
  using Position = meso::Rotary;
  using Mlp = meso::Gelu;
  static constexpr bool bias = false;
};

int main() { meso::Transformer<float, WithoutNorm> model({}); }
