// expect: does not satisfy meso::Normalizer.*backward
#include <meso/model.hpp>

struct ForwardOnly {
  static constexpr meso::Index parameters_per_head = 0;
  static constexpr bool scaled_scores = true;
  void forward(const meso::Row&, meso::ConstArray<float>, meso::ConstArray<float> z, meso::Array<float> p) const {
    p = z;
  }
};
struct Own : meso::Gpt2 {
  using Normalizer = ForwardOnly;
};

int main() { meso::Transformer<float, Own> model({}); }
