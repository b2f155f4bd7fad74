#pragma once
#include <meso/model/cache.hpp>
#include <meso/stats/hidden_states.hpp>

namespace meso {

/// Adds the residual stream to `statistics`: the embedding as layer 0, then layers 1 … L.
template <class Context, class S, class Device>
void add_hidden_states(Context& context, const TransformerCache<S, Device>& cache, HiddenStateStatistics& statistics) {
  for (std::size_t l = 0; l < cache.residual.size(); ++l)
    statistics.add(context, static_cast<Index>(l), View<const S, Device>(cache.residual[l]), cache.time);
}

}  // namespace meso
