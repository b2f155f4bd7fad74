// expect: does not satisfy meso::Norm.*backward
#include <meso/model.hpp>

struct ForwardOnly {
  static constexpr meso::Index saved_per_row = 0;
  meso::Index parameter_count(meso::Index) const { return 1; }
  meso::Index declare(meso::ParameterLayout& layout, const std::string& prefix, meso::Index) const {
    return layout.add(prefix + ".gain", 1, 1, meso::ParameterKind::gain);
  }
  void initialize(meso::Index, meso::Array<float> theta) const { theta.setOnes(); }
  void forward(meso::ConstArray<float>, meso::ConstArray<float> x, meso::Array<float> y, meso::Array<float>) const {
    y = x;
  }
};
struct Own : meso::Gpt2 {
  using Norm = ForwardOnly;
};

int main() { meso::Transformer<float, Own> model({}); }
