// The rungs of Bigram-Backcopy: the sink, with and without a null logit.
#include "architectures.hpp"
#include "train_rung.hpp"

namespace ladder {

namespace {

template <class Architecture>
Row with_adamw(const Setup& setup, const Row& row) {
  return train_rung<Architecture>(
      setup, row, meso::AdamW({.learning_rate = row.learning_rate, .beta2 = 0.99, .weight_decay = 1e-4}));
}
constexpr auto rate = [](const Setup& setup) { return setup.learning_rate; };

}  // namespace

std::vector<Rung> bigram_rungs() {
  return {{"softmax", "softmax", "LayerNorm", "AdamW", true, rate, with_adamw<Softmax>, memory_of<Softmax, 2>},
          {"softmax-1", "softmax-1", "LayerNorm", "AdamW", true, rate, with_adamw<Softmax1>, memory_of<Softmax1, 2>},
          {"softmax learned pos", "softmax", "LayerNorm", "AdamW", false, rate, with_adamw<meso::Gpt2>,
           memory_of<meso::Gpt2, 2>},
          {"softmax-1 learned pos", "softmax-1", "LayerNorm", "AdamW", false, rate, with_adamw<meso::Gpt2Softmax1>,
           memory_of<meso::Gpt2Softmax1, 2>}};
}

}  // namespace ladder
