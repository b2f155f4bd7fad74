#pragma once
#include <meso/model/architectures.hpp>

namespace ladder {

/// GPT-2 with rotary positions: both phenomena are clearest with them. With learned positions the first token has a
/// position of its own, which serves softmax-1 as a sink all the same, and outliers grow more slowly.
struct Softmax : meso::Gpt2 {
  using Position = meso::Rotary;
};
struct Softmax1 : Softmax {
  using Normalizer = meso::Softmax1;
};
struct Softmax1Single : Softmax1 {
  using Norm = meso::RmsNormSingle;
};

}  // namespace ladder
