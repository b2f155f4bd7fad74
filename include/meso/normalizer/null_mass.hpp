#pragma once
#include <meso/normalizer/null_logit.hpp>

namespace meso {

/// Weight of one row that goes to no key. For the null-logit family it is p_∅ = e^s / (e^s + Σ_j e^{z_j}), from the
/// scores; for any other normalizer it is the deficit 1 − Σ_j p_j, which cancels and may be negative.
/// Shapes: z, p (keys), the scores and weights of one row; theta the head's parameters.
/// Error: relative, ≤ (|s − m| + log(n + 1) + n + 16)·u for the family; else absolute, ≤ n·(error of the weights).
template <class N, class S>
requires Normalizer<N, S>
double null_mass([[maybe_unused]] const N& n, [[maybe_unused]] const Row& row, [[maybe_unused]] ConstArray<S> theta,
                 [[maybe_unused]] ConstArray<S> z, [[maybe_unused]] ConstArray<S> p) {
  if constexpr (NullLogitNormalizer<N, S>)
    return static_cast<double>(null_logit_mass<S>(n.null_logit(row, theta), z));
  else
    return 1.0 - p.template cast<double>().sum();
}

}  // namespace meso
