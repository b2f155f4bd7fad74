#pragma once
#include <meso/optim/optimizer.hpp>
#include <meso/optim/rmsprop_rule.hpp>

namespace meso {

/// See RmsPropRule.
using RmsProp = Optimizer<RmsPropRule>;

}  // namespace meso
