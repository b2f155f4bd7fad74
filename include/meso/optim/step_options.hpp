#pragma once

namespace meso {

/// What changes from step to step.
struct StepOptions {
  double learning_rate_factor = 1.0;  ///< of a schedule, ≥ 0; multiplies the rule's learning rate
  double gradient_scale = 1.0;        ///< of clipping, ≥ 0; multiplies the gradient before decay is added
};

}  // namespace meso
