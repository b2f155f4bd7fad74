#pragma once
#include <meso/attention/tile.hpp>
#include <meso/core/context.hpp>

namespace meso {

/// Calls visit(batch, row, first_key, weights, scores) for every query of head `head`, sequences and queries in order, on
/// the calling thread: what probes see of an attention that stores no matrix. `weights` and `scores` hold the visible
/// keys, the first of them key `first_key`.
/// Shapes: q, k, theta as for attention_forward. The weights are those of the forward pass, bit for bit.
/// Throws: as attention_forward, and std::invalid_argument for a head out of range.
template <class Products, class Normalizer, class Mask, class S, class Visitor>
void attention_rows(CpuContext<Products>& context, const Normalizer& normalizer, const Mask& mask,
                    const AttentionShape& shape, const S* theta, const ConstView<S>& q, const ConstView<S>& k,
                    Index head, Visitor&& visit) {
  using detail::Panels;
  detail::check_attention_operands<const S>("attention_rows", shape, q, k, k);
  check_normalizer_parameters<Normalizer>("attention_rows", "theta", theta);
  check_normalizer(normalizer, shape.tokens(), shape.context);
  check(head >= 0 && head < shape.heads, "attention_rows: head is ", head, ", expected 0 to ", shape.heads - 1);
  const Index stride = detail::tile_stride<S>(shape.time);
  const Index area = detail::query_tile_rows<Normalizer>(shape.time) * stride;
  const auto scratch = context.workspace.template take<S>(2 * area + Panels<S>::size(shape.head_size, shape.time));
  for (Index b = 0; b < shape.batch; ++b) {
    const Panels<S> keys =
        detail::pack_panels<S>(detail::head_view(k, shape, b, head / shape.group()), true, scratch.data() + 2 * area);
    for (Index t = 0; t < detail::query_tiles<Normalizer>(shape.time); ++t) {
      const detail::QueryTile tile = detail::query_tile<Normalizer>(mask, shape.time, t);
      const detail::TileProducts<Mask> products{mask, shape.time, tile};
      const Index first = products.panel_key(Panels<S>::panel_cols), cols = tile.key + tile.keys - first;
      const View<S> z{scratch.data(), tile.rows, cols, stride}, p{scratch.data() + area, tile.rows, cols, stride};
      detail::tile_weights<Normalizer, Mask, S>(
          normalizer, products, shape, head, detail::head_parameters<Normalizer, S>(theta, head),
          detail::head_view(q, shape, b, head).row_range(tile.first, tile.rows), keys, z, p);
      for (Index i = 0; i < tile.rows; ++i) {
        const KeyRange range = mask.visible(tile.first + i, shape.time);
        const Index begin = range.first - first;
        visit(b, Row{head, tile.first + i, range.count, shape.context}, range.first,
              ConstArray<S>(p.row(i) + begin, range.count), ConstArray<S>(z.row(i) + begin, range.count));
      }
    }
  }
}

}  // namespace meso
