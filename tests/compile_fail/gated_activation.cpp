// expect: does not satisfy meso::Activation, gated.*backward
#include <meso/model.hpp>

struct ForwardOnly {
  static constexpr bool gated = true;
  void forward(meso::ConstArray<float> gate, meso::ConstArray<float> up, meso::Array<float> y) const { y = gate * up; }
};
struct Own : meso::Llama {
  using Mlp = ForwardOnly;
};

int main() { meso::Transformer<float, Own> model({}); }
