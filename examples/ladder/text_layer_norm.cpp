// The rungs of the text with LayerNorm.
#include "architectures.hpp"
#include "train_rung.hpp"

namespace ladder {

namespace {
template <class Architecture>
Row with_adam(const Setup& setup, const Row& row) {
  return train_rung<Architecture>(setup, row, meso::Adam({.learning_rate = row.learning_rate}));
}
constexpr auto rate = [](const Setup& setup) { return setup.learning_rate; };
}  // namespace

std::vector<Rung> text_layer_norm_rungs() {
  return {
      {"softmax Adam LN", "softmax", "LayerNorm", "Adam", true, rate, with_adam<Softmax>, memory_of<Softmax, 2>},
      {"softmax-1 Adam LN", "softmax-1", "LayerNorm", "Adam", true, rate, with_adam<Softmax1>, memory_of<Softmax1, 2>},
      {"softmax-1 Adam LN learned pos", "softmax-1", "LayerNorm", "Adam", false, rate, with_adam<meso::Gpt2Softmax1>,
       memory_of<meso::Gpt2Softmax1, 2>},
      {"softmax-1 OrthoAdam LN", "softmax-1", "LayerNorm", "OrthoAdam", false, rate, train_ortho_adam<Softmax1>,
       memory_of_ortho_adam<Softmax1>}};
}

}  // namespace ladder
