#pragma once
#include <type_traits>

#include <meso/core/view.hpp>

namespace meso {

/// What a model asks of a device besides its ops: `Cpu` in meso/model/cpu.hpp, `Cuda` in meso/cuda/transformer.cuh.
///   Buffer<T>, Parameters<S>     memory, and named parameters in it
///   Tokens                       the tokens of a batch, as embedding_forward takes them
///   Policy<P>, policy(p)         the device's version of a policy: its type, and the conversion
///   attention_saved(shape)       scalars a token that attention keeps for its backward pass
///   send(context, host)          parameters or a buffer, moved from the host to the device
///   check_shape(shape)           throws std::invalid_argument unless attention can run on this shape
///   checked_architecture<A, S>() true, or a static_assert that names the policy that does not fit
template <class Device>
struct ModelDevice {
  static_assert(std::is_same_v<Device, Cpu>, "include <meso/cuda.hpp> for models on another device");
  static_assert(!std::is_same_v<Device, Cpu>, "include <meso/model/transformer.hpp> for models on the CPU");
};

}  // namespace meso
