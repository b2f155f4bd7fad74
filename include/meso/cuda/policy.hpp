#pragma once
#include <meso/cuda/platform.hpp>

namespace meso::cuda {

/// The device's version of a policy: the policy itself, or, for one of the CPU, what meso/cuda/policies.hpp has for it.
template <class P>
struct DevicePolicy {
  static_assert(
      requires { requires P::on_device; },
      "this policy has no version for the GPU (include <meso/cuda.hpp> for those of the library)");
  using type = P;
  static P convert(const P& policy) { return policy; }
};

/// The device's version of a policy, with its hyper-parameters.
template <class P>
auto device_policy(const P& policy) {
  return DevicePolicy<P>::convert(policy);
}

}  // namespace meso::cuda
