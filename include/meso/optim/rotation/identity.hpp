#pragma once
#include <meso/optim/rotation/no_rotation.hpp>

namespace meso {

/// Q = I by the path of the rotations: a control for tests. Adam with it equals Adam. Use NoRotation otherwise.
struct IdentityRotation {
  template <class S>
  NoRotation::Plan prepare(std::string_view, Index, Index) const {
    return {};
  }
};

}  // namespace meso
