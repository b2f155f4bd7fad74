#pragma once
#include <algorithm>
#include <span>

#include <meso/core/check.hpp>
#include <meso/layer/token.hpp>

namespace meso {

/// A target that does not count: its row adds nothing to the loss and gets gradient 0.
inline constexpr Token ignored_target = -1;

/// Sum of the losses and number of the targets that count; mean() is the cross-entropy in nats.
struct LossSum {
  double sum = 0.0;
  Index count = 0;
  LossSum& operator+=(const LossSum& other) {
    sum += other.sum;
    count += other.count;
    return *this;
  }
  double mean() const { return count > 0 ? sum / static_cast<double>(count) : 0.0; }
};

namespace detail {
inline Index counted_targets(std::span<const Token> targets) {
  return static_cast<Index>(targets.size()) - std::count(targets.begin(), targets.end(), ignored_target);
}
/// The same, and throws where a target is neither in the vocabulary nor ignored.
inline Index count_targets(std::span<const Token> targets, Index vocabulary) {
  for (std::size_t i = 0; i < targets.size(); ++i) {
    check(targets[i] == ignored_target || (targets[i] >= 0 && targets[i] < vocabulary), "cross_entropy: target ",
          targets[i], " at index ", i, " is neither in the vocabulary of ", vocabulary, " nor ", ignored_target,
          " (ignored)");
  }
  return counted_targets(targets);
}
}  // namespace detail

}  // namespace meso
