#pragma once
#include <cmath>
#include <limits>

#include <meso/core/check.hpp>
#include <meso/core/view.hpp>

namespace meso::cuda {

// The null-logit family on the device: p_j = e^{z_j} / (e^s + Σ e^z); null_logit() is s where no head learns it.

/// s = −∞; see meso::Softmax.
struct Softmax {
  static constexpr bool on_device = true;
  static constexpr Index parameters_per_head = 0;
  double null_logit() const { return -std::numeric_limits<double>::infinity(); }
};
/// s = 0; see meso::Softmax1.
struct Softmax1 {
  static constexpr bool on_device = true;
  static constexpr Index parameters_per_head = 0;
  double null_logit() const { return 0; }
};
/// s = log n; see meso::SoftmaxN. Throws: std::invalid_argument if n is negative or NaN.
struct SoftmaxN {
  double n = 1;
  static constexpr bool on_device = true;
  static constexpr Index parameters_per_head = 0;
  double null_logit() const {
    meso::check(n >= 0, "SoftmaxN: n is ", n, ", but it must be at least 0");
    return std::log(n);
  }
};
/// s learned, one a head; see meso::LearnedSink.
struct LearnedSink {
  static constexpr bool on_device = true;
  static constexpr Index parameters_per_head = 1;
  double null_logit() const { return 0; }
};

/// s = 0 in every head, on the host, as meso::LearnedSink. Shapes: theta (heads, 1).
template <class S>
void initialize_normalizer(const LearnedSink&, Index heads, Index, const meso::View<S>& theta) {
  for (Index h = 0; h < heads; ++h) theta(h, 0) = S(0);
}

}  // namespace meso::cuda
