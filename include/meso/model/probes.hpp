#pragma once
#include <utility>
#include <vector>

#include <meso/attention/rows.hpp>
#include <meso/model/hidden_states.hpp>
#include <meso/model/transformer.hpp>
#include <meso/normalizer/null_mass.hpp>
#include <meso/stats/outliers.hpp>
#include <meso/stats/sinks.hpp>

namespace meso {

/// attention_rows on the cache of a model's forward pass; layer and head count from 0.
/// Throws: std::invalid_argument if the layer is out of range.
template <class Products, class S, class A, class Visitor>
void attention_rows(CpuContext<Products>& context, const Transformer<S, A>& model, const TransformerCache<S>& cache,
                    Index layer, Index head, Visitor&& visit) {
  check(layer >= 0 && layer < static_cast<Index>(cache.blocks.size()), "attention_rows: layer is ", layer,
        ", expected 0 to ", static_cast<Index>(cache.blocks.size()) - 1);
  const AttentionShape shape = model.attention_shape(cache.batch, cache.time);
  const View<const S> qkv = cache.blocks[static_cast<std::size_t>(layer)].qkv;
  const Index width = shape.heads * shape.head_size, key_width = shape.key_value_heads * shape.head_size;
  const Index theta = model.numbers().blocks[static_cast<std::size_t>(layer)].normalizer;
  attention_rows<Products, typename A::Normalizer, typename detail::MaskOf<A>::type, S>(
      context, model.config().normalizer, model.config().mask, shape,
      theta >= 0 ? model.parameters()[theta].data : nullptr, qkv.col_range(0, width), qkv.col_range(width, key_width),
      head, std::forward<Visitor>(visit));
}

/// Adds every row of every head of every layer to `statistics`, and ends every sequence. Layers and heads count from 0.
/// Numerics: the null mass by meso::null_mass, 1 − Σp for whole-matrix normalizers; each head on one thread, then the
/// heads merged in order: the same bits for any number of threads.
template <class Products, class S, class A>
void add_attention(CpuContext<Products>& context, const Transformer<S, A>& model, const TransformerCache<S>& cache,
                   SinkStatistics& statistics) {
  using N = typename A::Normalizer;
  const Index heads = model.config().heads, tasks = model.config().layers * heads;
  std::vector<SinkStatistics> of_head(static_cast<std::size_t>(tasks), SinkStatistics(statistics.options()));
  std::vector<CpuContext<>> own(static_cast<std::size_t>(workers(context)), CpuContext<>(1));
  parallel_for(context, tasks, [&](Index task, Index worker) {
    const Index l = task / heads, h = task % heads;
    SinkStatistics& to = of_head[static_cast<std::size_t>(task)];
    const Index number = model.numbers().blocks[static_cast<std::size_t>(l)].normalizer;
    const ConstArray<S> parameters =
        detail::head_parameters<N, S>(number >= 0 ? model.parameters()[number].data : nullptr, h);
    attention_rows(own[static_cast<std::size_t>(worker)], model, cache, l, h,
                   [&](Index, const Row& row, Index first, ConstArray<S> p, ConstArray<S> z) {
                     double null = 1.0 - p.template cast<double>().sum();
                     if constexpr (Normalizer<N, S>) null = null_mass(model.config().normalizer, row, parameters, z, p);
                     to.add_row(l, h, row.query, p, null, first);
                     if (row.query == cache.time - 1) to.end_sequence();
                   });
  });
  for (const SinkStatistics& part : of_head) statistics.merge(part);
}

}  // namespace meso
