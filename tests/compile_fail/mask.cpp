// expect: does not satisfy meso::Mask.*visible
#include <meso/model.hpp>

struct Pairs {
  bool visible(meso::Index query, meso::Index key) const { return key <= query; }  // wants a range of keys
};
struct Own : meso::Gpt2 {
  using Mask = Pairs;
};

int main() { meso::Transformer<float, Own> model({}); }
