#pragma once
#include <meso/optim/adam_rule.hpp>
#include <meso/optim/optimizer.hpp>

namespace meso {

/// See AdamRule.
using Adam = Optimizer<AdamRule>;
/// See AdamWRule.
using AdamW = Optimizer<AdamWRule>;

}  // namespace meso
