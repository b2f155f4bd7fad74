#pragma once
// Probes of a model on the device: the calls of meso/model/probes.hpp. No Eigen.
#include <vector>

#include <meso/cuda/sinks.cuh>
#include <meso/cuda/statistics.cuh>
#include <meso/cuda/transformer.cuh>
#include <meso/model/hidden_states.hpp>
#include <meso/stats/sink_statistics.hpp>

namespace meso {

/// Adds every row of every head of every layer to `statistics`, and ends every sequence, as meso::add_attention. The
/// device reduces over keys and queries: per layer, sequence and head one SinkSums comes back.
template <class S, class A>
void add_attention(cuda::Context& context, const Transformer<S, A, Cuda>& model, const TransformerCache<S, Cuda>& cache,
                   SinkStatistics& statistics) {
  const AttentionShape shape = model.attention_shape(cache.batch, cache.time);
  const Index width = shape.heads * shape.head_size, key_width = shape.key_value_heads * shape.head_size;
  const auto normalizer = cuda::device_policy(model.config().normalizer);
  const cuda::Parameters<S>& weights = model.weights(cache);
  const auto on_device = context.workspace.template take<SinkSums>(shape.batch * shape.heads);
  std::vector<SinkSums> sums(static_cast<std::size_t>(on_device.size()));
  for (std::size_t l = 0; l < cache.blocks.size(); ++l) {
    const BlockCache<S, Cuda>& b = cache.blocks[l];
    const View<const S, Cuda> qkv = b.qkv;
    const Index theta = model.numbers().blocks[l].normalizer;
    attention_sink_sums(context, normalizer, model.config().mask, shape, theta >= 0 ? weights[theta].data : nullptr,
                        qkv.col_range(0, width), qkv.col_range(width, key_width), b.saved_attention,
                        statistics.options(), on_device.data());
    download(context, on_device.data(), on_device.size(), sums.data());
    for (std::size_t i = 0; i < sums.size(); ++i)
      statistics.add_sums(static_cast<Index>(l), static_cast<Index>(i) % shape.heads, sums[i]);
  }
}

}  // namespace meso
