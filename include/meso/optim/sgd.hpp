#pragma once
#include <meso/optim/optimizer.hpp>
#include <meso/optim/sgd_rule.hpp>

namespace meso {

/// See SgdRule.
using Sgd = Optimizer<SgdRule>;

}  // namespace meso
