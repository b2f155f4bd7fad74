#pragma once
#include <algorithm>
#include <cmath>

#include "oracle.hpp"

/// One coordinate of one step of an optimizer, by its definition.
namespace meso::test::oracle {

/// g + coupled decay: scale·g + λθ.
struct Slope {
  double value, magnitude;
};
inline Slope slope(double g, double theta, double scale, double decay) {
  return {scale * g + decay * theta, std::abs(scale * g) + std::abs(decay * theta)};
}

/// b = μb + (1 − damp)·g, on the first step b = g; u = b, or with Nesterov g + μb.
inline double sgd_buffer(double b, double g, double mu, double dampening, bool first) {
  return first ? g : mu * b + (1 - dampening) * g;
}
inline double average(double old, double now, double rate) { return rate * old + (1 - rate) * now; }
/// m̂/(√v̂ + ε).
inline double adam_direction(double m, double v, double beta1, double beta2, double epsilon, double step) {
  return m / (1 - std::pow(beta1, step)) / (std::sqrt(v / (1 - std::pow(beta2, step))) + epsilon);
}
/// g/(√(v − ḡ²) + ε); ḡ = 0 if not centered.
inline double rmsprop_direction(double g, double v, double mean, double epsilon) {
  return g / (std::sqrt(std::max<double>(0, v - mean * mean)) + epsilon);
}

inline double linear_schedule(double step, double warmup, double total, double floor) {
  if (step < warmup) return step / warmup;
  return step >= total ? floor : floor + (1 - floor) * (total - step) / (total - warmup);
}
inline double cosine_schedule(double step, double warmup, double total, double floor) {
  if (step < warmup) return step / warmup;
  if (step >= total) return floor;
  const double s = std::sin(3.14159265358979323846 / 2 * (step - warmup) / (total - warmup));
  return floor + (1 - floor) * (1 - s * s);
}

}  // namespace meso::test::oracle
