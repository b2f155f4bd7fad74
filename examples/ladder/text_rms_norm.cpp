// The rungs of the text with RMSNorm of one gain.
#include "architectures.hpp"
#include "train_rung.hpp"

namespace ladder {

namespace {

Row with_adam(const Setup& setup, const Row& row) {
  return train_rung<Softmax1Single>(setup, row, meso::Adam({.learning_rate = row.learning_rate}));
}
Row with_rmsprop(const Setup& setup, const Row& row) {
  return train_rung<Softmax1Single>(setup, row, meso::RmsProp({.learning_rate = row.learning_rate}));
}
Row with_sgd(const Setup& setup, const Row& row) {
  return train_rung<Softmax1Single>(setup, row, meso::Sgd({.learning_rate = row.learning_rate, .momentum = 0.9}));
}
constexpr auto rate = [](const Setup& setup) { return setup.learning_rate; };
constexpr auto sgd_rate = [](const Setup& setup) { return setup.sgd_learning_rate; };

}  // namespace

std::vector<Rung> text_rms_norm_rungs() {
  return {
      {"softmax-1 Adam RMS-S", "softmax-1", "RMSNorm-S", "Adam", false, rate, with_adam, memory_of<Softmax1Single, 2>},
      {"softmax-1 RMSProp RMS-S", "softmax-1", "RMSNorm-S", "RMSProp", false, rate, with_rmsprop,
       memory_of<Softmax1Single, 1>},
      {"softmax-1 SGD RMS-S", "softmax-1", "RMSNorm-S", "SGD", false, sgd_rate, with_sgd, memory_of<Softmax1Single, 1>},
      {"softmax-1 OrthoAdam RMS-S", "softmax-1", "RMSNorm-S", "OrthoAdam", true, rate, train_ortho_adam<Softmax1Single>,
       memory_of_ortho_adam<Softmax1Single>}};
}

}  // namespace ladder
