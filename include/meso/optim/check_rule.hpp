#pragma once
// What rules and schedules check of their hyper-parameters. No Eigen: rules serve the GPU too.
#include <cmath>
#include <meso/core/check.hpp>

namespace meso {

namespace detail {

inline void check_positive(const char* owner, const char* name, double value) {
  check(std::isfinite(value) && value > 0, owner, ": ", name, " is ", value, ", expected a finite number > 0");
}
inline void check_not_negative(const char* owner, const char* name, double value) {
  check(std::isfinite(value) && value >= 0, owner, ": ", name, " is ", value, ", expected a finite number >= 0");
}
/// The rate of an exponential average: in [0, 1).
inline void check_rate(const char* owner, const char* name, double value) {
  check(value >= 0 && value < 1, owner, ": ", name, " is ", value, ", expected a number in [0, 1)");
}

/// Whether the rule takes gradients within the range of meso/optim/gradient_range.hpp.
template <class Rule>
inline constexpr bool takes_gradients_within_range = requires {
  requires Rule::gradients_within_range;
};

template <class Rule>
bool uses_moment(const Rule& rule, int k) {
  if constexpr (requires { rule.uses(k); })
    return rule.uses(k);
  else
    return true;
}

}  // namespace detail
}  // namespace meso
