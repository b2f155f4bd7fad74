#pragma once
#include <meso/optim/adam.hpp>
#include <meso/optim/rotation/kronecker.hpp>

namespace meso {

/// OrthoAdam: Adam in a fixed random orthogonal basis Q of each parameter, so that no channel of the residual stream is
/// privileged: ḡ = Qg; m, v from ḡ as in Adam; θ −= lr·Qᵀ(m̂/(√v̂ + ε)).
/// Source: Kaul et al., "From Attention to Activation", ICLR 2025, Algorithm 1.
/// Decay is decoupled, in the original basis, and leaves vectors alone (λ = 0 by default); vectors are rotated too.
/// Bound: Adam's in the rotated basis, |m̂/(√v̂ + ε)| ≤ c(t) (see AdamRule), so that the step of a parameter of n elements
/// is no longer than lr·c(t)·√n, for all finite gradients.
/// A rotation may be DenseRotation (Algorithm 1 as written), KroneckerRotation or HadamardRotation.
template <class RotationPolicy = KroneckerRotation>
using OrthoAdam = Optimizer<OrthoAdamRule, RotationPolicy>;

}  // namespace meso
