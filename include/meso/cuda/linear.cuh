#pragma once
#include <meso/cuda/gemm.hpp>
#include <meso/cuda/pack.cuh>

namespace meso::cuda {

namespace detail {

template <class T>
struct AddRow {
  const T* bias;
  View<const T> residual;
  View<T> y;

  template <int n>
  __device__ void at(Index i, Index j) const {
    Pack<T, n> out = load_pack<n>(y.row(i) + j);
    Compute<T> value[n];
    MESO_UNROLL
    for (int e = 0; e < n; ++e) value[e] = load(out.values[e]);
    if (bias) {
      const Pack<T, n> b = load_pack<n>(bias + j);
      MESO_UNROLL
      for (int e = 0; e < n; ++e) value[e] += load(b.values[e]);
    }
    if (residual.data) {
      const Pack<T, n> r = load_pack<n>(residual.row(i) + j);
      MESO_UNROLL
      for (int e = 0; e < n; ++e) value[e] += load(r.values[e]);
    }
    MESO_UNROLL
    for (int e = 0; e < n; ++e) store(out.values[e], value[e]);
    store_pack(y.row(i) + j, out);
  }
};
template <class T>
struct ColumnTerms {
  View<const T> x;
  __device__ void operator()(Index i, Index j, Compute<T> (&out)[1]) const { out[0] = load(x(i, j)); }
};
template <class From, class To>
struct Cast {
  const From* from;
  To* to;
  template <int n>
  __device__ void at(Index, Index j) const {
    const Pack<From, n> in = load_pack<n>(from + j);
    Pack<To, n> out;
    MESO_UNROLL
    for (int e = 0; e < n; ++e) store(out.values[e], static_cast<Compute<To>>(load(in.values[e])));
    store_pack(to + j, out);
  }
};

}  // namespace detail

/// y += bias + residual, each of which may be missing (null, an empty view). Shapes: y, residual (tokens, n), bias n
/// values. Error: 2u·(|y| + |bias| + |residual|), one rounding to T. Throws: std::invalid_argument on a shape mismatch.
template <class T>
void add(Context& context, const std::type_identity_t<T>* bias, const ConstView<T>& residual, const View<T>& y) {
  if (residual.data) check_same_shape<const T, T>("add", "residual", residual, "y", y);
  if (!bias && !residual.data) return;
  const bool packs = detail::aligned(bias) && detail::aligned(residual) && detail::aligned(y);
  detail::for_packs<detail::element_pack<T>>(context, "add", detail::AddRow<T>{bias, residual, y}, y.rows, y.cols,
                                             packs);
}

/// sum[j] = or += Σ_i x(i, j), as meso::column_sums. Shapes: x (tokens, n), sum n values.
/// Error: ≤ (16 + 8 + ⌈tokens/128⌉)·u·Σ_i |x(i, j)|. The same bits in every run.
template <class T>
void column_sums(Context& context, const View<const T>& x, Compute<T>* sum, Accumulate accumulate) {
  detail::sum_columns<1, Compute<T>>(context, "column_sums", detail::ColumnTerms<T>{x}, x.rows, x.cols, sum,
                                     accumulate);
}

/// to = from, rounded to To. Shapes: `count` elements each.
template <class From, class To>
void cast(Context& context, const From* from, Index count, To* to) {
  constexpr int pack =
      detail::pack_size<From> < detail::pack_size<To> ? detail::pack_size<From> : detail::pack_size<To>;
  detail::for_packs<pack>(context, "cast", detail::Cast<From, To>{from, to}, count > 0 ? 1 : 0, count,
                          detail::aligned(from) && detail::aligned(to));
}

/// y = x wᵀ + bias (null: none), as meso::linear_forward. Shapes: x (tokens, in), w (out, in), bias out values,
/// y (tokens, out). Error: as gemm and add. Throws: std::invalid_argument on a shape mismatch.
template <class T>
void linear_forward(Context& context, const ConstView<T>& x, const ConstView<T>& w, const std::type_identity_t<T>* bias,
                    const View<T>& y) {
  gemm<T, T>(context, x, w, y, {.transpose_b = true});
  add<T>(context, bias, {}, y);
}

/// Backward of y = x wᵀ + bias: dx = dy w, dw = or += dyᵀ x, dbias (null: none) = or += Σ_tokens dy, as
/// meso::linear_backward. Shapes: x, dx (tokens, in), w, dw (out, in), dy (tokens, out), dbias out values.
/// Error: as gemm and column_sums. Throws: std::invalid_argument on a shape mismatch.
template <class T>
void linear_backward(Context& context, const ConstView<T>& x, const ConstView<T>& w, const ConstView<T>& dy,
                     const View<T>& dx, const View<Compute<std::type_identity_t<T>>>& dw,
                     Compute<std::type_identity_t<T>>* dbias, Accumulate accumulate) {
  gemm<T, T>(context, dy, w, dx);
  gemm<T, Compute<T>>(context, dy, x, dw, {.transpose_a = true, .accumulate = accumulate == Accumulate::yes});
  if (dbias) column_sums<T>(context, dy, dbias, accumulate);
}

}  // namespace meso::cuda
