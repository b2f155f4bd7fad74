#pragma once
#include <cmath>

#include <meso/core/check.hpp>

namespace meso {

/// Factor that clips a gradient of the given norm to max_norm: min(1, max_norm/(norm + 1e-6)), as PyTorch's
/// clip_grad_norm_. Pass it to the step as StepOptions::gradient_scale. A NaN norm gives NaN, which the step refuses.
/// Throws: std::invalid_argument unless max_norm > 0; for a norm < 0.
inline double clip_scale(double norm, double max_norm) {
  check(std::isfinite(max_norm) && max_norm > 0, "clip_scale: max_norm is ", max_norm,
        ", expected a finite number > 0");
  check(!(norm < 0), "clip_scale: the norm is ", norm, ", expected a number >= 0");
  const double factor = max_norm / (norm + 1e-6);
  return factor > 1.0 ? 1.0 : factor;
}

}  // namespace meso
