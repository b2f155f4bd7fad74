#pragma once
#include <cstdint>
#include <meso/core/context.hpp>
#include <meso/core/random.hpp>
#include <string>
#include <utility>
#include <vector>

namespace meso {

/// Q = a random permutation of all elements of the parameter with random signs: a control for tests. It is orthogonal
/// but keeps the axes, so that Adam with it equals Adam; what a rotation changes must vanish under it.
struct SignedPermutation {
  std::uint64_t seed = 0;

  struct Plan {
    std::vector<Index> source;
    std::vector<bool> negative;

    template <class Products, class S>
    void rotate(CpuContext<Products>&, View<const S> in, View<S> out) const {
      for (std::size_t i = 0; i < source.size(); ++i)
        out.data[i] = negative[i] ? -in.data[source[i]] : in.data[source[i]];
    }
    template <class Products, class S>
    void rotate_back(CpuContext<Products>&, View<const S> in, View<S> out) const {
      for (std::size_t i = 0; i < source.size(); ++i) out.data[source[i]] = negative[i] ? -in.data[i] : in.data[i];
    }
  };

  template <class S>
  Plan prepare(std::string_view name, Index rows, Index cols) const {
    const Random random{seed, stream_of(std::string(name) + " permutation")};
    const std::size_t size = static_cast<std::size_t>(rows * cols);
    Plan plan{std::vector<Index>(size), std::vector<bool>(size)};
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t j = static_cast<std::size_t>(random.below(2 * i, static_cast<Index>(i) + 1));
      plan.source[i] = plan.source[j];
      plan.source[j] = static_cast<Index>(i);
      plan.negative[i] = random.bits(2 * i + 1) & 1;
    }
    return plan;
  }
};

}  // namespace meso
