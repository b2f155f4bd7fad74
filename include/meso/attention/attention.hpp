#pragma once
#include <algorithm>
#include <type_traits>
#include <utility>

#include <meso/attention/tile.hpp>
#include <meso/core/accumulate.hpp>
#include <meso/core/context.hpp>

namespace meso {

/// o = P v for each sequence and head, P = normalizer(q kᵀ/√d) over the keys that the mask shows.
/// Shapes: q, o (batch·time, heads·head_size), k, v (batch·time, key_value_heads·head_size); theta
/// (heads, parameters_per_head), null if there are none. Views may be column blocks of one buffer.
/// Source: Vaswani et al. (2017); grouped queries: Ainslie et al. (2023).
/// Numerics: tiles of about 64 query rows with O(time) scratch a thread, no time × time matrix (whole-matrix normalizers
/// excepted); blocks that the mask hides are skipped; the library's own products for any `Products`; the same bits for
/// any number of threads.
/// Error, null-logit family, to first order: |o − exact| ≤ (2ζ + ε + (time + 2)·u)·Σ_j p_j|v_j| with ε the normalizer's
/// bound and ζ = (head_size + 3)·u·max_j |q|·|k_j|/√d that of a score; for the others ζ enters by their derivative.
/// NaN and ∞ in k and v come out of every query that sees their key, and change no bit of any other.
/// Throws: std::invalid_argument on a shape mismatch, for missing parameters, and for a context that the normalizer
/// cannot do with.
template <class Products, class Normalizer, class Mask, class S>
void attention_forward(CpuContext<Products>& context, const Normalizer& normalizer, const Mask& mask,
                       const AttentionShape& shape, const std::type_identity_t<S>* theta, const ConstView<S>& q,
                       const ConstView<S>& k, const ConstView<S>& v, const View<S>& o) {
  static_assert(AnyNormalizer<Normalizer, S>, "the normalizer satisfies neither Normalizer nor MatrixNormalizer");
  using detail::Panels;
  detail::check_attention_operands<const S>("attention_forward", shape, q, k, v);
  check_same_shape("attention_forward", "q", q, "o", o);
  check_normalizer_parameters<Normalizer>("attention_forward", "theta", theta);
  check_normalizer(normalizer, shape.tokens(), shape.context);
  const Index tiles = detail::query_tiles<Normalizer>(shape.time), chunks = detail::query_chunks<Normalizer>(shape);
  const Index stride = detail::tile_stride<S>(shape.time);
  const Index area = detail::query_tile_rows<Normalizer>(shape.time) * stride;
  const Index keys_size = Panels<S>::size(shape.head_size, shape.time);
  const Index values_size = Panels<S>::size(shape.time, shape.head_size);
  const Index memory_size = keys_size + values_size + 2 * area;
  const auto scratch = context.workspace.template take<S>(workers(context) * memory_size);
  parallel_for(context, shape.batch * shape.key_value_heads * chunks, [&](Index task, Index worker) {
    const Index chunk = task % chunks, g = task / chunks % shape.key_value_heads,
                b = task / chunks / shape.key_value_heads;
    S* const memory = scratch.data() + worker * memory_size;
    const Panels<S> keys = detail::pack_panels<S>(detail::head_view(k, shape, b, g), true, memory + 2 * area);
    const detail::MaskablePanels<S> values =
        detail::pack_maskable<S>(detail::head_view(v, shape, b, g), memory + 2 * area + keys_size);
    for (Index h = g * shape.group(); h < (g + 1) * shape.group(); ++h) {
      for (Index t = chunk; t < tiles; t += chunks) {
        const detail::QueryTile tile = detail::query_tile<Normalizer>(mask, shape.time, t);
        const detail::TileProducts<Mask> products{mask, shape.time, tile};
        const Index cols = tile.key + tile.keys - products.panel_key(Panels<S>::panel_cols);
        const View<S> z{memory, tile.rows, cols, stride}, p{memory + area, tile.rows, cols, stride};
        detail::tile_weights<Normalizer, Mask, S>(
            normalizer, products, shape, h, detail::head_parameters<Normalizer, S>(theta, h),
            detail::head_view(q, shape, b, h).row_range(tile.first, tile.rows), keys, z, p);
        products.template over_keys<S>(p, values, S(1),
                                       detail::head_view(o, shape, b, h).row_range(tile.first, tile.rows));
      }
    }
  });
}

/// Gradients of o = P v: dq, dk, dv =; dtheta = or +=. Recomputes P from q and k: the cache holds q, k, v alone.
/// Backward of o = P v: dv = Pᵀ do, dP = do vᵀ; of P = normalizer(z): the policy's; of z = q kᵀ/√d: dq = dz k/√d,
/// dk = dzᵀ q/√d, summed over the query heads of a group.
/// Shapes: as for attention_forward; d_o as o, dq, dk, dv as q, k, v; dtheta as theta.
/// Error, to first order, with ε_p the relative error of the weights (2ζ + ε above) and E_z that of dz: the policy's,
/// and (head_size + 2)·u·|do||v|ᵀ of dp through it. dv ≤ (ε_p + (queries + 2)·u)·Pᵀ|do|,
/// dq ≤ (E_z + (time + 3)·u·|dz|)|k|/√d, dk ≤ (E_z + (queries + 3)·u·|dz|)ᵀ|q|/√d; queries: of all heads of the group.
/// NaN and ∞ keep to the mask: dq of a query that does not see their key, and dk and dv of keys that their query does
/// not see, have the bits of finite operands.
/// Numerics: the query tiles of a key-value head go to a fixed number of tasks, more than one if heads are few, whose
/// dk and dv are added in order: the same bits for any number of threads.
/// Throws: as attention_forward.
template <class Products, class Normalizer, class Mask, class S>
void attention_backward(CpuContext<Products>& context, const Normalizer& normalizer, const Mask& mask,
                        const AttentionShape& shape, const std::type_identity_t<S>* theta, const ConstView<S>& q,
                        const ConstView<S>& k, const ConstView<S>& v, const ConstView<S>& d_o, const View<S>& dq,
                        const View<S>& dk, const View<S>& dv, std::type_identity_t<S>* dtheta, Accumulate accumulate) {
  static_assert(AnyNormalizer<Normalizer, S>, "the normalizer satisfies neither Normalizer nor MatrixNormalizer");
  using detail::Panels;
  detail::check_attention_operands<const S>("attention_backward", shape, q, k, v);
  detail::check_attention_operands<S>("attention_backward", shape, dq, dk, dv);
  check_same_shape("attention_backward", "q", q, "do", d_o);
  check_normalizer_parameters<Normalizer>("attention_backward", "theta", theta);
  check_normalizer_parameters<Normalizer>("attention_backward", "dtheta", dtheta);
  check_normalizer(normalizer, shape.tokens(), shape.context);
  constexpr Index per_head = Normalizer::parameters_per_head;
  const S scale = static_cast<S>(detail::score_scale<Normalizer>(shape));
  const Index tiles = detail::query_tiles<Normalizer>(shape.time), chunks = detail::query_chunks<Normalizer>(shape);
  const Index rows = detail::query_tile_rows<Normalizer>(shape.time);
  const Index stride = detail::tile_stride<S>(shape.time), area = rows * stride;
  const Index transposed_size = Panels<S>::size(shape.head_size, shape.time);
  const Index keys_size = Panels<S>::size(shape.time, shape.head_size);
  const Index rows_size = Panels<S>::size(rows, shape.head_size);
  const Index memory_size = 4 * area + 2 * transposed_size + keys_size + 2 * rows_size;
  const auto scratch = context.workspace.template take<S>(workers(context) * memory_size);
  const auto dtheta_partials = context.workspace.template take<S>(shape.batch * chunks * shape.heads * per_head);
  std::fill(dtheta_partials.data(), dtheta_partials.data() + dtheta_partials.size(), S(0));
  // With several chunks a head each has its own dk and dv, which are added in the order of the chunks.
  const Index width = shape.key_value_heads * shape.head_size;
  const auto chunk_memory = context.workspace.template take<S>(chunks > 1 ? 2 * chunks * shape.tokens() * width : 0);
  const auto of_chunk = [&](const View<S>& whole, Index chunk, Index which) {
    return chunks == 1 ? whole
                       : contiguous_view(chunk_memory.data() + (2 * chunk + which) * shape.tokens() * width,
                                         shape.tokens(), width);
  };
  parallel_for(context, shape.batch * shape.key_value_heads * chunks, [&](Index task, Index worker) {
    const Index chunk = task % chunks, g = task / chunks % shape.key_value_heads,
                b = task / chunks / shape.key_value_heads;
    S* free = scratch.data() + worker * memory_size;
    const auto take = [&](Index size) { return std::exchange(free, free + size); };
    S *const z_memory = take(area), *const p_memory = take(area), *const dp_memory = take(area),
             *const dz_memory = take(area), *const d_o_memory = take(rows_size), *const q_memory = take(rows_size);
    const View<const S> kh = detail::head_view(k, shape, b, g), vh = detail::head_view(v, shape, b, g);
    const Panels<S> keys_transposed = detail::pack_panels<S>(kh, true, take(transposed_size));
    const Panels<S> values_transposed = detail::pack_panels<S>(vh, true, take(transposed_size));
    const detail::MaskablePanels<S> keys = detail::pack_maskable<S>(kh, take(keys_size));
    const View<S> dk_all = detail::head_view(of_chunk(dk, chunk, 0), shape, b, g),
                  dv_all = detail::head_view(of_chunk(dv, chunk, 1), shape, b, g);
    map(dk_all).setZero();
    map(dv_all).setZero();
    for (Index h = g * shape.group(); h < (g + 1) * shape.group(); ++h) {
      const ConstArray<S> parameters = detail::head_parameters<Normalizer, S>(theta, h);
      const Array<S> dparameters(
          per_head > 0 ? dtheta_partials.data() + ((b * chunks + chunk) * shape.heads + h) * per_head : nullptr,
          per_head);
      for (Index t = chunk; t < tiles; t += chunks) {
        const detail::QueryTile tile = detail::query_tile<Normalizer>(mask, shape.time, t);
        const detail::TileProducts<Mask> products{mask, shape.time, tile};
        const Index first = products.panel_key(Panels<S>::panel_cols), cols = tile.key + tile.keys - first;
        const auto matrix = [&](S* memory) { return View<S>{memory, tile.rows, cols, stride}; };
        const View<S> z = matrix(z_memory), p = matrix(p_memory), dp = matrix(dp_memory), dz = matrix(dz_memory);
        const auto queries = [&](const auto& x) {
          return detail::head_view(x, shape, b, h).row_range(tile.first, tile.rows);
        };
        detail::tile_weights<Normalizer, Mask, S>(normalizer, products, shape, h, parameters, queries(q),
                                                  keys_transposed, z, p);
        // o = P v: dv = Pᵀ do, dP = do vᵀ
        products.template over_queries<S>(p, detail::pack_maskable<S>(queries(d_o), d_o_memory), S(1),
                                          dv_all.row_range(first, cols));
        products.template scores<S>(queries(d_o), values_transposed, S(1), dp);
        if constexpr (MatrixNormalizer<Normalizer, S>) {
          normalizer.backward_matrix(ScoreMatrix{h, shape.context}, parameters, View<const S>(z), View<const S>(p),
                                     View<const S>(dp), dz, dparameters);
        } else {
          detail::each_row(products, dz, [&](Index i, Index begin, Index count) {
            const auto run = [&](const View<S>& x) { return ConstArray<S>(x.row(i) + begin, count); };
            normalizer.backward(Row{h, tile.first + i, count, shape.context}, parameters, run(z), run(p), run(dp),
                                Array<S>(dz.row(i) + begin, count), dparameters);
          });
        }
        // z = q kᵀ/√d: dq = dz k/√d, dk = dzᵀ q/√d
        products.template over_keys<S>(dz, keys, scale, queries(dq));
        products.template over_queries<S>(dz, detail::pack_maskable<S>(queries(q), q_memory), scale,
                                          dk_all.row_range(first, cols));
      }
    }
  });
  if (chunks > 1) {
    const RowTiles parts = RowTiles::of(shape.tokens(), width);
    parallel_for(context, parts.count(), [&](Index t, Index) {
      const auto add_chunks = [&](const View<S>& whole, Index which) {
        const auto part = [&](const View<S>& x) { return map(x.row_range(parts[t].first, parts[t].count)); };
        part(whole) = part(of_chunk(whole, 0, which));
        for (Index chunk = 1; chunk < chunks; ++chunk) part(whole) += part(of_chunk(whole, chunk, which));
      };
      add_chunks(dk, 0);
      add_chunks(dv, 1);
    });
  }
  if constexpr (per_head > 0)
    sum_partials<S>(
        View<const S>{dtheta_partials.data(), shape.batch * chunks, shape.heads * per_head, shape.heads * per_head},
        dtheta, accumulate == Accumulate::yes);
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
