// expect: does not satisfy meso::Position.*learned_table
#include <meso/model.hpp>

struct Nothing {};
struct Own : meso::Gpt2 {
  using Position = Nothing;
};

int main() { meso::Transformer<float, Own> model({}); }
