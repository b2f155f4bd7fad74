#pragma once
#include <cmath>
#include <limits>
#include <meso/core/view.hpp>

namespace meso {

/// Perplexity e^{mean cross-entropy} over a stream of tokens; cross-entropies in nats.
/// Mergeable: sums in double, the mean over tokens and not over batches, so that a short last batch weighs by its size.
/// Error: relative, ≤ ((n + 2)·mean + 2)·u for n calls of add; the 2 are those of exp. No token gives NaN.
struct Perplexity {
  double sum = 0;    ///< Σ of the tokens' cross-entropies
  Index tokens = 0;  ///< number of tokens in the sum

  /// Adds the sum of the cross-entropies of `token_count` tokens: mean loss × tokens, if a loss is a mean.
  void add(double cross_entropy_sum, Index token_count) {
    sum += cross_entropy_sum;
    tokens += token_count;
  }
  void merge(const Perplexity& other) { add(other.sum, other.tokens); }

  /// Mean cross-entropy in nats.
  double mean() const {
    return tokens == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(tokens);
  }
  double value() const { return std::exp(mean()); }
};

}  // namespace meso
