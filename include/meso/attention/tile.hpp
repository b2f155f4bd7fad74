#pragma once
#include <algorithm>
#include <cmath>
#include <type_traits>

#include <meso/attention/mask.hpp>
#include <meso/attention/shape.hpp>
#include <meso/core/panels.hpp>
#include <meso/core/tiles.hpp>
#include <meso/normalizer/normalizer.hpp>

namespace meso::detail {

/// Queries [first, first + rows) of one head and the keys [key, key + keys) that any of them sees.
struct QueryTile {
  Index first = 0, rows = 0, key = 0, keys = 0;
};

/// Rows of a query tile: a fixed function of the shape. A whole-matrix normalizer takes all rows at once.
template <class Normalizer>
Index query_tile_rows(Index time) {
  constexpr Index block = ProductKernel<float>::rows, rows = (64 + block - 1) / block * block;  // whole blocks
  if constexpr (MatrixNormalizer<Normalizer, float> || MatrixNormalizer<Normalizer, double>)
    return time;
  else
    return (std::min)(time, rows);
}
template <class Normalizer>
Index query_tiles(Index time) {
  const Index rows = query_tile_rows<Normalizer>(time);
  return time == 0 ? 0 : (time + rows - 1) / rows;
}
/// Elements between the rows of a tile's matrices: an odd number of cache lines, so that its columns do not share sets.
template <class S>
Index tile_stride(Index time) {
  const Index line = padded<S>(1);
  return (padded<S>(time) / line | 1) * line;
}
/// Keys that any of `rows` queries from `first` sees.
template <class Mask>
KeyRange keys_of(const Mask& mask, Index first, Index rows, Index time) {
  const KeyRange low = mask.visible(first, time), high = mask.visible(first + rows - 1, time);
  return {low.first, std::max<Index>(0, high.first + high.count - low.first)};
}
template <class Normalizer, class Mask>
QueryTile query_tile(const Mask& mask, Index time, Index tile) {
  const Index rows = query_tile_rows<Normalizer>(time);
  QueryTile t{tile * rows, (std::min)(rows, time - tile * rows)};
  const KeyRange keys = keys_of(mask, t.first, t.rows, time);
  t.key = keys.first;
  t.keys = keys.count;
  return t;
}

/// Query tiles of one head are dealt to this many tasks, tile by tile: enough tasks for many threads where heads are
/// few, a function of the shape alone.
template <class Normalizer>
Index query_chunks(const AttentionShape& shape) {
  const Index heads = std::max<Index>(1, shape.batch * shape.key_value_heads);
  return std::max<Index>(1, std::min<Index>(query_tiles<Normalizer>(shape.time), (16 + heads - 1) / heads));
}

template <class Normalizer>
double score_scale(const AttentionShape& shape) {
  return Normalizer::scaled_scores ? 1.0 / std::sqrt(static_cast<double>(shape.head_size)) : 1.0;
}

/// Parameters of head h.
template <class Normalizer, class S>
ConstArray<S> head_parameters(const S* theta, Index head) {
  constexpr Index count = Normalizer::parameters_per_head;
  return array(count > 0 ? theta + head * count : theta, count);
}

/// The rows of sequence b and columns of head h of an activation.
template <class T>
View<T> head_view(const View<T>& x, const AttentionShape& s, Index b, Index h) {
  return x.block(b * s.time, h * s.head_size, s.time, s.head_size);
}

template <class T>
void check_attention_operands(const char* op, const AttentionShape& s, const View<T>& q, const View<T>& k,
                              const View<T>& v) {
  check_attention_shape(s);
  check_shape(op, "q", q, s.tokens(), s.heads * s.head_size);
  check_shape(op, "k", k, s.tokens(), s.key_value_heads * s.head_size);
  check_shape(op, "v", v, s.tokens(), s.key_value_heads * s.head_size);
}

/// False if any of `size` elements, whole packets, is NaN or infinite: x·0 is not 0 then.
template <class S>
bool all_packets_finite(const S* x, Index size) {
  using namespace Eigen::internal;
  using Packet = typename ProductKernel<S>::Packet;
  constexpr Index width = ProductKernel<S>::width;
  const Packet zero = pset1<Packet>(S(0));
  Packet a = zero, b = zero, c = zero, d = zero;  // by hand: g++ spills an array of packets
  const auto add = [&](const S* at, Packet to) { return pmadd(ploadu<Packet>(at), zero, to); };
  const S* const end = x + size;
  for (; x + 4 * width <= end; x += 4 * width) {
    a = add(x, a);
    b = add(x + width, b);
    c = add(x + 2 * width, c);
    d = add(x + 3 * width, d);
  }
  for (; x < end; x += width) a = add(x, a);
  return predux(padd(padd(a, b), padd(c, d))) == S(0);
}

/// The right-hand side of a product with weights, in panels. Weights of keys that the mask hides are 0, and 0·NaN is
/// NaN: what is not finite is 0 in the panels, and TileProducts adds it from `values` where the mask shows it.
template <class S>
struct MaskablePanels {
  Panels<S> panels;
  View<const S> values;
  bool finite;
};
template <class S>
MaskablePanels<S> pack_maskable(const View<const S>& x, S* out) {
  const Panels<S> panels = pack_panels<S>(x, false, out);
  const Index size = Panels<S>::size(x.rows, x.cols);
  const bool finite = all_packets_finite<S>(out, size);
  if (!finite)
    std::replace_if(
        out, out + size, [](S v) { return !std::isfinite(v); }, S(0));
  return {panels, x, finite};
}

/// The three products of a query tile. Matrices of a tile, (rows, keys), hold key `panel_key` in column 0: the first
/// key of a panel. Blocks that the mask hides are neither computed nor read.
template <class Mask>
struct TileProducts {
  const Mask& mask;
  Index time = 0;
  QueryTile tile;

  Index panel_key(Index panel_cols) const { return tile.key / panel_cols * panel_cols; }

  /// z = alpha·x yᵀ where a query sees a key; x (rows, d), yᵀ in panels of keys.
  template <class S>
  void scores(const View<const S>& x, const Panels<S>& y, S alpha, const View<S>& z) const {
    const Index width = Panels<S>::panel_cols, first = tile.key / width;
    const Panels<S> keys{y.panel(first), y.depth, z.cols};
    panel_product<S>(LeftOperand<S>::of(x, false), keys, 0, Panels<S>::count(z.cols), z, alpha, false,
                     [&](Index i, Index rows) {
                       const KeyRange seen = keys_of(mask, tile.first + i, rows, time);
                       return Extent{0, y.depth, seen.first - first * width, seen.count};
                     });
  }
  /// out = alpha·p y; y (time, d).
  template <class S>
  void over_keys(const View<const S>& p, const MaskablePanels<S>& y, S alpha, const View<S>& out) const {
    const Index first = panel_key(Panels<S>::panel_cols);
    LeftOperand<S> left = LeftOperand<S>::of(p, false);
    left.data -= first;
    panel_product<S>(left, y.panels, 0, Panels<S>::count(out.cols), out, alpha, false, [&](Index i, Index rows) {
      const KeyRange seen = keys_of(mask, tile.first + i, rows, time);
      return Extent{seen.first, seen.count, 0, out.cols};
    });
    if (!y.finite)
      each_not_finite(y.values, tile.key, tile.keys, [&](Index j, Index c, S value) {
        for (Index i = 0; i < tile.rows; ++i) {
          const KeyRange seen = mask.visible(tile.first + i, time);
          if (j >= seen.first && j < seen.first + seen.count) out(i, c) += alpha * p(i, j - first) * value;
        }
      });
  }
  /// out += alpha·pᵀ x for the tile's keys; x (rows, d), out (keys of the tile's matrices, d).
  template <class S>
  void over_queries(const View<const S>& p, const MaskablePanels<S>& x, S alpha, const View<S>& out) const {
    const Index first = panel_key(Panels<S>::panel_cols), step = ProductKernel<S>::rows;
    panel_product<S>(LeftOperand<S>::of(p, true), x.panels, 0, Panels<S>::count(out.cols), out, alpha, true,
                     [&](Index i, Index rows) {
                       Index begin = 0, end = tile.rows;
                       const auto sees = [&](Index query) {
                         const KeyRange seen =
                             keys_of(mask, tile.first + query, (std::min)(step, tile.rows - query), time);
                         return seen.first < first + i + rows && seen.first + seen.count > first + i;
                       };
                       while (begin < end && !sees(begin)) begin += step;
                       begin = (std::min)(begin, end);
                       while (end > begin && !sees((end - 1) / step * step)) end = (end - 1) / step * step;
                       return Extent{begin, end - begin, 0, out.cols};
                     });
    if (!x.finite)
      each_not_finite(x.values, 0, tile.rows, [&](Index i, Index c, S value) {
        const KeyRange seen = mask.visible(tile.first + i, time);
        for (Index j = seen.first; j < seen.first + seen.count; ++j)
          out(j - first, c) += alpha * p(i, j - first) * value;
      });
  }

 private:
  /// f(row, col, value) for what is not finite in rows [begin, begin + count) of x.
  template <class S, class F>
  static void each_not_finite(const View<const S>& x, Index begin, Index count, F&& f) {
    for (Index i = begin; i < begin + count; ++i)
      for (Index c = 0; c < x.cols; ++c)
        if (!std::isfinite(x(i, c))) f(i, c, x(i, c));
  }
};

/// Calls row(query, begin, count) for every row of a tile, its visible keys in columns [begin, begin + count), after
/// setting the rest of the row of `out` to 0.
template <class Mask, class S, class F>
void each_row(const TileProducts<Mask>& products, const View<S>& out, F&& row) {
  const Index first = products.panel_key(Panels<S>::panel_cols);
  for (Index i = 0; i < products.tile.rows; ++i) {
    const KeyRange range = products.mask.visible(products.tile.first + i, products.time);
    const Index begin = range.first - first;
    S* const run = out.row(i);
    std::fill(run, run + begin, S(0));
    std::fill(run + begin + range.count, run + out.cols, S(0));
    row(i, begin, range.count);
  }
}

/// Scores z and weights p of one query tile; p is 0 where a query sees no key. `keys`: kᵀ in panels.
template <class Normalizer, class Mask, class S>
void tile_weights(const Normalizer& normalizer, const TileProducts<Mask>& products, const AttentionShape& shape,
                  Index head, ConstArray<S> theta, const View<const S>& q, const Panels<S>& keys, const View<S>& z,
                  const View<S>& p) {
  products.template scores<S>(q, keys, static_cast<S>(score_scale<Normalizer>(shape)), z);
  if constexpr (MatrixNormalizer<Normalizer, S>) {
    static_assert(std::is_same_v<Mask, Bidirectional>, "a whole-matrix normalizer needs the mask meso::Bidirectional");
    normalizer.forward_matrix(ScoreMatrix{head, shape.context}, theta, View<const S>(z), p);
  } else {
    each_row(products, p, [&](Index i, Index begin, Index count) {
      normalizer.forward(Row{head, products.tile.first + i, count, shape.context}, theta,
                         ConstArray<S>(z.row(i) + begin, count), Array<S>(p.row(i) + begin, count));
    });
  }
}

}  // namespace meso::detail
