#pragma once

namespace meso {

/// What a backward pass does with the gradients of parameters: write them (first micro-batch) or add to them.
/// Gradients of activations are always written.
enum class Accumulate : bool { no = false, yes = true };

/// Type in which gradients and master weights of a model of Scalar are kept: float or double as they are.
template <class Scalar>
struct AccumulatorOf {
  using type = Scalar;
};
template <class Scalar>
using Accumulator = typename AccumulatorOf<Scalar>::type;

}  // namespace meso
