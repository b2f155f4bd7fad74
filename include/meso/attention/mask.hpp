#pragma once
#include <algorithm>
#include <concepts>

#include <meso/core/check.hpp>

namespace meso {

/// Keys [first, first + count): what one query may see. Visible keys are always one run.
struct KeyRange {
  Index first = 0;
  Index count = 0;
};

/// A mask says which keys a query sees:  visible(query, keys) → KeyRange, non-decreasing in `query` at both ends.
template <class M>
concept Mask = requires(const M m) {
  { m.visible(Index{}, Index{}) } -> std::same_as<KeyRange>;
};

/// Query i sees keys 0 … i.
struct Causal {
  KeyRange visible(Index query, Index keys) const { return {0, (std::min)(query + 1, keys)}; }
};

/// Every query sees every key.
struct Bidirectional {
  KeyRange visible(Index, Index keys) const { return {0, keys}; }
};

/// Query i sees the last `window` keys up to itself: i − window + 1 … i.
/// Throws: std::invalid_argument, when used, if window < 1.
struct SlidingWindow {
  Index window = 0;  ///< required
  KeyRange visible(Index query, Index keys) const {
    check(window >= 1, "SlidingWindow: window is ", window, ", expected at least 1");
    const Index first = std::max<Index>(0, query - window + 1), last = (std::min)(query + 1, keys);
    return {first, std::max<Index>(0, last - first)};
  }
};

}  // namespace meso
