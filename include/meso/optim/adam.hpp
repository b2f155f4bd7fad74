#pragma once
#include <meso/optim/adam_rule.hpp>
#include <meso/optim/optimizer.hpp>

namespace meso {

using Adam = Optimizer<AdamRule>;
using AdamW = Optimizer<AdamWRule>;

}  // namespace meso
