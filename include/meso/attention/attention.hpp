#pragma once
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include <meso/attention/mask.hpp>
#include <meso/attention/shape.hpp>
#include <meso/core/accumulate.hpp>
#include <meso/core/gemm.hpp>
#include <meso/core/tiles.hpp>
#include <meso/normalizer/normalizer.hpp>

namespace meso {

namespace detail {

/// Queries [first, first + rows) of one head and the keys [key, key + keys) that any of them sees.
struct QueryTile {
  Index first = 0, rows = 0, key = 0, keys = 0;
};

/// Rows of a query tile: a fixed function of the shape. A whole-matrix normalizer takes all rows at once.
template <class Normalizer>
Index query_tile_rows(Index time) {
  if constexpr (MatrixNormalizer<Normalizer, float> || MatrixNormalizer<Normalizer, double>)
    return time;
  else
    return std::min<Index>(time, time <= 128 ? 32 : 64);
}
template <class Normalizer>
Index query_tiles(Index time) {
  const Index rows = query_tile_rows<Normalizer>(time);
  return time == 0 ? 0 : (time + rows - 1) / rows;
}
template <class Normalizer, class Mask>
QueryTile query_tile(const Mask& mask, Index time, Index tile) {
  const Index rows = query_tile_rows<Normalizer>(time);
  QueryTile t{tile * rows, (std::min)(rows, time - tile * rows)};
  const KeyRange low = mask.visible(t.first, time), high = mask.visible(t.first + t.rows - 1, time);
  t.key = low.first;
  t.keys = std::max<Index>(0, high.first + high.count - low.first);
  return t;
}

template <class S, class Normalizer>
double score_scale(const AttentionShape& shape) {
  return Normalizer::scaled_scores ? 1.0 / std::sqrt(static_cast<double>(shape.head_size)) : 1.0;
}

/// Parameters of head h.
template <class S, class Normalizer>
ConstArray<S> head_parameters(const S* theta, Index head) {
  constexpr Index count = Normalizer::parameters_per_head;
  return array(count > 0 ? theta + head * count : theta, count);
}

/// Scores z and weights p of one query tile; p is 0 where a query sees no key.
template <class Products, class Normalizer, class Mask, class S>
void tile_weights(const Normalizer& normalizer, const Mask& mask, const AttentionShape& shape, Index head,
                  const QueryTile& tile, ConstArray<S> theta, const View<const S>& q, const View<const S>& k,
                  const View<S>& z, const View<S>& p) {
  serial_gemm<S>(Products{}, q, k, z, {.transpose_b = true, .alpha = score_scale<S, Normalizer>(shape)});
  if constexpr (MatrixNormalizer<Normalizer, S>) {
    static_assert(std::is_same_v<Mask, Bidirectional>, "a whole-matrix normalizer needs the mask meso::Bidirectional");
    normalizer.forward_matrix(ScoreMatrix{head, shape.context}, theta, View<const S>(z), p);
  } else {
    for (Index i = 0; i < tile.rows; ++i) {
      const KeyRange range = mask.visible(tile.first + i, shape.time);
      const Index begin = range.first - tile.key;
      S* const row = p.row(i);
      std::fill(row, row + begin, S(0));
      std::fill(row + begin + range.count, row + tile.keys, S(0));
      normalizer.forward(Row{head, tile.first + i, range.count, shape.context}, theta,
                         ConstArray<S>(z.row(i) + begin, range.count), Array<S>(row + begin, range.count));
    }
  }
}

template <class T>
void check_attention_operands(const char* op, const AttentionShape& s, const View<T>& q, const View<T>& k,
                              const View<T>& v) {
  check_attention_shape(s);
  check_shape(op, "q", q, s.tokens(), s.heads * s.head_size);
  check_shape(op, "k", k, s.tokens(), s.key_value_heads * s.head_size);
  check_shape(op, "v", v, s.tokens(), s.key_value_heads * s.head_size);
}

/// The rows of sequence b and columns of head h of an activation.
template <class T>
View<T> head_view(const View<T>& x, const AttentionShape& s, Index b, Index h) {
  return x.block(b * s.time, h * s.head_size, s.time, s.head_size);
}

}  // namespace detail

/// o = P v for each sequence and head, P = normalizer(q kᵀ/√d) over the keys that the mask shows.
/// Shapes: q, o (batch·time, heads·head_size), k, v (batch·time, key_value_heads·head_size); theta
/// (heads, parameters_per_head) or null. Views may be column blocks of one buffer.
/// Source: Vaswani et al. (2017); grouped queries: Ainslie et al. (2023).
/// Numerics: tiles of query rows with O(tile·time) scratch a thread, no time × time matrix (whole-matrix normalizers
/// excepted); the same bits for any number of threads.
/// Error, null-logit family, to first order: |o − exact| ≤ (2ζ + ε + (time + 2)·u)·Σ_j p_j|v_j| with ε the normalizer's
/// bound and ζ = (head_size + 3)·u·max_j |q|·|k_j|/√d that of a score; for the others ζ enters by their derivative.
/// NaN and ∞ in v come out of every query that sees their key, and may of others in its tile, as 0·NaN.
/// Throws: std::invalid_argument on a shape mismatch.
template <class Products, class Normalizer, class Mask, class S>
void attention_forward(CpuContext<Products>& context, const Normalizer& normalizer, const Mask& mask,
                       const AttentionShape& shape, const std::type_identity_t<S>* theta, const ConstView<S>& q,
                       const ConstView<S>& k, const ConstView<S>& v, const View<S>& o) {
  static_assert(AnyNormalizer<Normalizer, S>, "the normalizer satisfies neither Normalizer nor MatrixNormalizer");
  detail::check_attention_operands<const S>("attention_forward", shape, q, k, v);
  check_same_shape("attention_forward", "q", q, "o", o);
  const Index tiles = detail::query_tiles<Normalizer>(shape.time);
  const Index area = padded<S>(detail::query_tile_rows<Normalizer>(shape.time) * padded<S>(shape.time));
  const auto scratch = context.workspace.template take<S>(workers(context) * 2 * area);
  parallel_for(context, shape.batch * shape.heads * tiles, [&](Index task, Index worker) {
    const detail::QueryTile tile = detail::query_tile<Normalizer>(mask, shape.time, task % tiles);
    const Index h = task / tiles % shape.heads, b = task / tiles / shape.heads;
    const Index stride = padded<S>(tile.keys);
    S* const memory = scratch.data() + worker * 2 * area;
    const View<S> z{memory, tile.rows, tile.keys, stride}, p{memory + area, tile.rows, tile.keys, stride};
    const View<const S> qh = detail::head_view(q, shape, b, h).row_range(tile.first, tile.rows);
    const View<const S> kh = detail::head_view(k, shape, b, h / shape.group()).row_range(tile.key, tile.keys);
    const View<const S> vh = detail::head_view(v, shape, b, h / shape.group()).row_range(tile.key, tile.keys);
    detail::tile_weights<Products, Normalizer, Mask, S>(normalizer, mask, shape, h, tile,
                                                        detail::head_parameters<S, Normalizer>(theta, h), qh, kh, z, p);
    serial_gemm<S>(Products{}, p, vh, detail::head_view(o, shape, b, h).row_range(tile.first, tile.rows));
  });
}

/// Gradients of o = P v: dq, dk, dv =; dtheta = or +=. Recomputes P from q and k: the cache holds q, k, v alone.
/// Backward of o = P v: dv = Pᵀ do, dP = do vᵀ; of P = normalizer(z): the policy's; of z = q kᵀ/√d: dq = dz k/√d,
/// dk = dzᵀ q/√d, summed over the query heads of a group.
/// Shapes: as for attention_forward; d_o as o, dq, dk, dv as q, k, v; dtheta (heads, parameters_per_head) or null.
/// Error, to first order, with ε_p the relative error of the weights (2ζ + ε above) and E_z that of dz: the policy's,
/// and (head_size + 2)·u·|do||v|ᵀ of dp through it. dv ≤ (ε_p + (queries + 2)·u)·Pᵀ|do|,
/// dq ≤ (E_z + (time + 3)·u·|dz|)|k|/√d, dk ≤ (E_z + (queries + 3)·u·|dz|)ᵀ|q|/√d; queries: of all heads of the group.
/// Numerics: one task a sequence and key-value head, its query tiles in order: the same bits for any number of threads.
/// Throws: std::invalid_argument on a shape mismatch.
template <class Products, class Normalizer, class Mask, class S>
void attention_backward(CpuContext<Products>& context, const Normalizer& normalizer, const Mask& mask,
                        const AttentionShape& shape, const std::type_identity_t<S>* theta, const ConstView<S>& q,
                        const ConstView<S>& k, const ConstView<S>& v, const ConstView<S>& d_o, const View<S>& dq,
                        const View<S>& dk, const View<S>& dv, std::type_identity_t<S>* dtheta, Accumulate accumulate) {
  static_assert(AnyNormalizer<Normalizer, S>, "the normalizer satisfies neither Normalizer nor MatrixNormalizer");
  detail::check_attention_operands<const S>("attention_backward", shape, q, k, v);
  detail::check_attention_operands<S>("attention_backward", shape, dq, dk, dv);
  check_same_shape("attention_backward", "q", q, "do", d_o);
  constexpr Index per_head = Normalizer::parameters_per_head;
  const double scale = detail::score_scale<S, Normalizer>(shape);
  const Index tiles = detail::query_tiles<Normalizer>(shape.time);
  const Index area = padded<S>(detail::query_tile_rows<Normalizer>(shape.time) * padded<S>(shape.time));
  const auto scratch = context.workspace.template take<S>(workers(context) * 4 * area);
  const auto partial = context.workspace.template take<S>(shape.batch * shape.heads * per_head);
  std::fill(partial.data(), partial.data() + partial.size(), S(0));
  parallel_for(context, shape.batch * shape.key_value_heads, [&](Index task, Index worker) {
    const Index g = task % shape.key_value_heads, b = task / shape.key_value_heads;
    S* const memory = scratch.data() + worker * 4 * area;
    const View<S> dk_all = detail::head_view(dk, shape, b, g), dv_all = detail::head_view(dv, shape, b, g);
    map(dk_all).setZero();
    map(dv_all).setZero();
    for (Index h = g * shape.group(); h < (g + 1) * shape.group(); ++h) {
      const ConstArray<S> parameters = detail::head_parameters<S, Normalizer>(theta, h);
      const Array<S> dparameters(per_head > 0 ? partial.data() + (b * shape.heads + h) * per_head : nullptr, per_head);
      for (Index t = 0; t < tiles; ++t) {
        const detail::QueryTile tile = detail::query_tile<Normalizer>(mask, shape.time, t);
        const auto of_tile = [&](Index i) {
          return View<S>{memory + i * area, tile.rows, tile.keys, padded<S>(tile.keys)};
        };
        const View<S> z = of_tile(0), p = of_tile(1), dp = of_tile(2), dz = of_tile(3);
        const auto queries = [&](const auto& x) {
          return detail::head_view(x, shape, b, h).row_range(tile.first, tile.rows);
        };
        const auto keys = [&](const auto& x) {
          return detail::head_view(x, shape, b, g).row_range(tile.key, tile.keys);
        };
        detail::tile_weights<Products, Normalizer, Mask, S>(normalizer, mask, shape, h, tile, parameters, queries(q),
                                                            keys(k), z, p);
        serial_gemm<S>(Products{}, p, queries(d_o), keys(dv), {.transpose_a = true, .accumulate = true});
        serial_gemm<S>(Products{}, queries(d_o), keys(v), dp, {.transpose_b = true});
        if constexpr (MatrixNormalizer<Normalizer, S>) {
          normalizer.backward_matrix(ScoreMatrix{h, shape.context}, parameters, View<const S>(z), View<const S>(p),
                                     View<const S>(dp), dz, dparameters);
        } else {
          for (Index i = 0; i < tile.rows; ++i) {
            const KeyRange range = mask.visible(tile.first + i, shape.time);
            const Index begin = range.first - tile.key;
            const auto run = [&](const View<S>& x) { return ConstArray<S>(x.row(i) + begin, range.count); };
            S* const row = dz.row(i);
            std::fill(row, row + begin, S(0));
            std::fill(row + begin + range.count, row + tile.keys, S(0));
            normalizer.backward(Row{h, tile.first + i, range.count, shape.context}, parameters, run(z), run(p), run(dp),
                                Array<S>(row + begin, range.count), dparameters);
          }
        }
        serial_gemm<S>(Products{}, dz, keys(k), queries(dq), {.alpha = scale});
        serial_gemm<S>(Products{}, dz, queries(q), keys(dk), {.transpose_a = true, .accumulate = true, .alpha = scale});
      }
    }
  });
  if constexpr (per_head > 0)
    sum_partials<S>(View<const S>{partial.data(), shape.batch, shape.heads * per_head, shape.heads * per_head}, dtheta,
                    accumulate == Accumulate::yes);
}

/// Calls visit(batch, row, first_key, weights, scores) for every query of head `head`, sequences and queries in order, on the
/// calling thread: what probes see of an attention that stores no matrix. `weights` and `scores` hold the visible keys,
/// the first of them key `first_key`.
/// Shapes: q, k, theta as for attention_forward. The weights are those of the forward pass, bit for bit.
/// Throws: std::invalid_argument on a shape mismatch or a head out of range.
template <class Products, class Normalizer, class Mask, class S, class Visitor>
void attention_rows(CpuContext<Products>& context, const Normalizer& normalizer, const Mask& mask,
                    const AttentionShape& shape, const S* theta, const ConstView<S>& q, const ConstView<S>& k,
                    Index head, Visitor&& visit) {
  detail::check_attention_operands<const S>("attention_rows", shape, q, k, k);
  check(head >= 0 && head < shape.heads, "attention_rows: head is ", head, ", expected 0 to ", shape.heads - 1);
  const Index area = padded<S>(detail::query_tile_rows<Normalizer>(shape.time) * padded<S>(shape.time));
  const auto scratch = context.workspace.template take<S>(2 * area);
  for (Index b = 0; b < shape.batch; ++b) {
    for (Index t = 0; t < detail::query_tiles<Normalizer>(shape.time); ++t) {
      const detail::QueryTile tile = detail::query_tile<Normalizer>(mask, shape.time, t);
      const Index stride = padded<S>(tile.keys);
      const View<S> z{scratch.data(), tile.rows, tile.keys, stride},
          p{scratch.data() + area, tile.rows, tile.keys, stride};
      detail::tile_weights<Products, Normalizer, Mask, S>(
          normalizer, mask, shape, head, tile, detail::head_parameters<S, Normalizer>(theta, head),
          detail::head_view(q, shape, b, head).row_range(tile.first, tile.rows),
          detail::head_view(k, shape, b, head / shape.group()).row_range(tile.key, tile.keys), z, p);
      for (Index i = 0; i < tile.rows; ++i) {
        const KeyRange range = mask.visible(tile.first + i, shape.time);
        const Index begin = range.first - tile.key;
        visit(b, Row{head, tile.first + i, range.count, shape.context}, range.first,
              ConstArray<S>(p.row(i) + begin, range.count), ConstArray<S>(z.row(i) + begin, range.count));
      }
    }
  }
}

/// Attention on plain Eigen data, one sequence, without a model: the outputs o = P v of every head.
/// Shapes: q (time, heads·d), k, v (time, key_value_heads·d) with d = q.cols()/heads; any dense expression, any storage
/// order. Learned parameters of the normalizer have their initial values. Error: as for attention_forward.
/// Throws: std::invalid_argument when `heads` does not divide the width or the shapes do not fit.
template <class Normalizer, class Mask = Causal, class Derived, class K, class V>
RowMajorMatrix<typename Derived::Scalar> attention(const Normalizer& normalizer, const Eigen::DenseBase<Derived>& q,
                                                   const Eigen::DenseBase<K>& k, const Eigen::DenseBase<V>& v,
                                                   Index heads = 1, const Mask& mask = {}) {
  using S = typename Derived::Scalar;
  check(heads > 0 && q.cols() % heads == 0, "attention: ", heads, " heads do not divide the width ", q.cols());
  const Index d = q.cols() / heads;
  check(d > 0 && k.cols() % d == 0, "attention: k has ", k.cols(), " columns, expected a multiple of the head size ",
        d);
  const RowMajorMatrix<S> qr = q.derived(), kr = k.derived(), vr = v.derived();
  RowMajorMatrix<S> o(qr.rows(), qr.cols());
  Buffer<S> theta(heads * Normalizer::parameters_per_head);
  initialize_normalizer(normalizer, heads, qr.rows(), theta.data());
  CpuContext<> context;
  const AttentionShape shape{1, qr.rows(), heads, k.cols() / d, d, qr.rows()};
  attention_forward(context, normalizer, mask, shape, theta.data(), view(qr), view(kr), view(vr), view(o));
  return o;
}

}  // namespace meso
