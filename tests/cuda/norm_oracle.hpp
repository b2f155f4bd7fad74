#pragma once
// The oracle of a norm of the device, by its policy: LayerNorm if N is centered, else RMSNorm; epsilon 1e-5.
#include "tests/support/oracle_layer.hpp"

namespace meso::test::oracle {

template <class N>
Vector norm_of(const Vector& x, const Vector& theta) {
  const auto middle = theta.begin() + static_cast<std::ptrdiff_t>(x.size());
  if constexpr (N::centered)
    return layer_norm(x, Vector(theta.begin(), middle), Vector(middle, theta.end()), 1e-5);
  else
    return rms_norm(x, theta, 1e-5);
}
template <class N>
Vector norm_backward_of(const Vector& x, Vector theta, const Vector& dy) {
  if constexpr (N::centered) {
    theta.resize(x.size());
    return layer_norm_backward(x, theta, 1e-5, dy);
  } else {
    return rms_norm_backward(x, theta, 1e-5, dy);
  }
}

}  // namespace meso::test::oracle
