#pragma once
#include <algorithm>
#include <cmath>
#include <concepts>
#include <meso/optim/check_rule.hpp>

namespace meso {

namespace detail {

inline void check_step(const char* owner, Index step) {
  check(step >= 0, owner, ": the step is ", step, ", expected a number that counts from 1");
}
/// Warm-up ends before all does.
inline void check_warmup(const char* owner, Index step, Index warmup, Index total, double floor) {
  check_step(owner, step);
  check_not_negative(owner, "floor", floor);
  check(warmup >= 0 && warmup < total, owner, ": warmup is ", warmup, " and total ", total,
        ", expected 0 <= warmup < total");
}

}  // namespace detail

/// A learning rate schedule: schedule(step) is the factor on the optimizer's learning rate in that step, counted
/// from 1. Pass it to the step as StepOptions::learning_rate_factor: schedule(optimizer.steps() + 1).
template <class F>
concept Schedule = requires(const F schedule) {
  { schedule(Index{1}) } -> std::convertible_to<double>;
};

/// The same factor in every step.
/// Throws: std::invalid_argument for a step < 0, or a factor that is negative or not finite.
struct Constant {
  double factor = 1.0;

  double operator()(Index step) const {
    detail::check_step("Constant", step);
    detail::check_not_negative("Constant", "factor", factor);
    return factor;
  }
};

/// Linear warmup, step/warmup, then a straight line from 1 (step = warmup) to `floor` (step = total), then `floor`.
/// Error: absolute, ≤ 8u of double.
/// Throws: std::invalid_argument unless 0 ≤ warmup < total, for a step < 0, or a floor that is negative or not finite.
struct Linear {
  Index warmup = 0;
  Index total = -1;  ///< required
  double floor = 0.0;

  double operator()(Index step) const {
    detail::check_warmup("Linear", step, warmup, total, floor);
    if (step < warmup) return static_cast<double>(step) / static_cast<double>(warmup);
    const double done =
        static_cast<double>(std::min<Index>(step, total) - warmup) / static_cast<double>(total - warmup);
    return 1.0 - (1.0 - floor) * done;
  }
};

/// Linear warmup, step/warmup, then half a cosine from 1 (step = warmup) to `floor` (step = total), then `floor`:
/// floor + (1 − floor)·(1 + cos(π·(step − warmup)/(total − warmup)))/2.
/// Source: Loshchilov & Hutter, "SGDR", ICLR 2017, without restarts.
/// Error: absolute, ≤ 8u of double.
/// Throws: std::invalid_argument unless 0 ≤ warmup < total, for a step < 0, or a floor that is negative or not finite.
struct WarmupCosine {
  Index warmup = 0;
  Index total = -1;  ///< required
  double floor = 0.1;

  double operator()(Index step) const {
    detail::check_warmup("WarmupCosine", step, warmup, total, floor);
    if (step < warmup) return static_cast<double>(step) / static_cast<double>(warmup);
    const double done =
        static_cast<double>(std::min<Index>(step, total) - warmup) / static_cast<double>(total - warmup);
    return floor + (1.0 - floor) * 0.5 * (1.0 + std::cos(3.14159265358979323846 * done));
  }
};

}  // namespace meso
