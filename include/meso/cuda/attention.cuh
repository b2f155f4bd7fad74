#pragma once
#include <meso/cuda/attention/backward.cuh>
#include <meso/cuda/attention/forward.cuh>
#include <meso/cuda/normalizer.cuh>

namespace meso::cuda {

/// o = P v, P = normalizer(q kᵀ/√d) over the keys that the mask shows, and lse(i, h) = log(e^s + Σ_j e^{z_j}), the natural
/// logarithm with the null term: as meso::attention_forward, without a time × time matrix.
/// Source: Dao et al., "FlashAttention" (2022); the null logit s enters as the start of the running maximum and sum.
/// Shapes: q, o (batch·time, heads·d), k, v (batch·time, key_value_heads·d), lse (batch·time, heads), d 32, 64, 96 or 128,
/// theta (heads), null if there is none. Views may be column blocks of one buffer. Normalizers of the null-logit family.
/// Numerics: float and double in threads, bf16 on tensor cores with scores, sums and o in float, weights rounded to bf16.
/// A query without a visible key gets o = 0, lse = s; with s = +∞ every query does.
/// Error: float as meso::attention_forward; bf16 adds 2·2⁻⁸·Σ_j p_j|v_j| for the weights and the result.
/// Throws: std::invalid_argument on a shape mismatch, another head size or missing parameters.
template <class Normalizer, class Mask, class T>
void attention_forward(Context& context, const Normalizer& normalizer, const Mask& mask, const AttentionShape& shape,
                       const std::type_identity_t<T>* theta, const ConstView<T>& q, const ConstView<T>& k,
                       const ConstView<T>& v, const View<T>& o, const View<Compute<std::type_identity_t<T>>>& lse) {
  auto call = detail::attention_call<T>("attention_forward", normalizer, mask, shape, theta, q, k, v, lse);
  check_same_shape<const T, T>("attention_forward", "q", q, "o", o);
  call.o = o;
  if (shape.tokens() == 0) return;
  detail::with_head_size("attention_forward", shape.head_size,
                         [&](auto size) { detail::flash_forward<T, size.value>(context, call); });
}

/// Gradients of o = P v: dq, dk, dv =; dtheta = or +=, as meso::attention_backward, from o and lse of the forward pass.
/// Backward of o = P v: p = e^{z − lse}, Δ = do·o, dz = p ∘ (do·v − Δ), dq = dz k/√d, dk = dzᵀ q/√d, dv = Pᵀ do,
/// ds = −Σ e^{s − lse} Δ. The formula is softmax's own: the null logit enters by lse and o alone.
/// Numerics: no atomics; sums over queries and over the heads of a group in order: the same bits in every run.
/// Shapes, throws: as attention_forward; d_o as o, dq, dk, dv as q, k, v. Error: float as meso::attention_backward; bf16
/// adds 3·2⁻⁸ of the sums of absolute terms.
template <class Normalizer, class Mask, class T>
void attention_backward(Context& context, const Normalizer& normalizer, const Mask& mask, const AttentionShape& shape,
                        const std::type_identity_t<T>* theta, const ConstView<T>& q, const ConstView<T>& k,
                        const ConstView<T>& v, const ConstView<T>& o, const View<Compute<std::type_identity_t<T>>>& lse,
                        const ConstView<T>& d_o, const View<T>& dq, const View<T>& dk, const View<T>& dv,
                        Compute<std::type_identity_t<T>>* dtheta, Accumulate accumulate) {
  using C = Compute<T>;
  auto call = detail::attention_call<T>("attention_backward", normalizer, mask, shape, theta, q, k, v, lse);
  check_same_shape<const T, const T>("attention_backward", "q", q, "o", o);
  check_same_shape<const T, const T>("attention_backward", "q", q, "do", d_o);
  check_same_shape<const T, T>("attention_backward", "q", q, "dq", dq);
  check_same_shape<const T, T>("attention_backward", "k", k, "dk", dk);
  check_same_shape<const T, T>("attention_backward", "v", v, "dv", dv);
  check_normalizer_parameters<Normalizer>("attention_backward", "dtheta", dtheta);
  if (shape.tokens() == 0) return;
  const auto scratch = context.workspace.template take<C>(shape.tokens() * shape.heads);
  const View<C> delta = scratch.view(shape.tokens(), shape.heads);
  launch(context, "attention_backward", {{blocks_for(delta.size(), 8)}, {256}}, detail::delta_kernel<T>, o, d_o,
         shape.heads, shape.head_size, delta);
  call.d_o = d_o;
  call.packets = call.packets && detail::aligned(d_o);
  call.dq = dq;
  call.dk = dk;
  call.dv = dv;
  call.delta = delta;
  detail::with_head_size("attention_backward", shape.head_size,
                         [&](auto size) { detail::flash_backward<T, size.value>(context, call); });
  if constexpr (Normalizer::parameters_per_head > 0)
    detail::sum_columns<1, C>(context, "attention_backward", detail::SinkTerms<T>{theta, lse, delta}, delta.rows,
                              delta.cols, dtheta, accumulate);
}

}  // namespace meso::cuda
