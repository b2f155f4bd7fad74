#pragma once
#include <meso/optim/optimizer.hpp>
#include <meso/optim/rmsprop_rule.hpp>

namespace meso {

using RmsProp = Optimizer<RmsPropRule>;

}  // namespace meso
