#pragma once
#include <concepts>

#include <meso/core/check.hpp>
#include <meso/core/eigen.hpp>

namespace meso {

/// What a normalizer may know of the row that it works on.
struct Row {
  Index head = 0;     ///< query head
  Index query = 0;    ///< position of the query, 0-based
  Index visible = 0;  ///< n: number of visible keys, the length of z and p
  Index context = 0;  ///< T: the model's configured context, never the length of the call
};

/// A policy that turns the scores of one query row into weights. It sees visible keys only, contiguous.
/// Members of a normalizer N, for scalar S:
///   static constexpr Index parameters_per_head;   learned parameters of each head, 0 for most
///   static constexpr bool  scaled_scores;          false: scores come without the factor 1/√d
///   forward (row, theta, z, p);                    p = weights of scores z
///   backward(row, theta, z, p, dp, dz, dtheta);    dz =, dtheta +=
///   initialize(row, theta);                        only if parameters_per_head > 0; row.head and row.context are set
///   check_context(context);                        optional: throws where the model's context does not serve it
/// All runs are Array<S> or ConstArray<S> (Eigen maps, passed by value).
template <class N, class S>
concept Normalizer = requires(const N n, const Row& row, ConstArray<S> in, Array<S> out) {
  { N::parameters_per_head } -> std::convertible_to<Index>;
  { N::scaled_scores } -> std::convertible_to<bool>;
  n.forward(row, in, in, out);
  n.backward(row, in, in, in, in, out, out);
};

/// What a normalizer needs of the model, checked once at the edge of an op: calls n.check_context(context), an optional
/// member of any normalizer, which throws std::invalid_argument. An op without tokens asks for nothing.
template <class N>
void check_normalizer(const N& n, Index tokens, Index context) {
  if constexpr (requires { n.check_context(context); }) {
    if (tokens > 0) n.check_context(context);
  }
}

/// What a whole-matrix normalizer may know.
struct ScoreMatrix {
  Index head = 0;
  Index context = 0;
};

/// A policy that needs all rows of a head at once; it works with the bidirectional mask only.
///   forward_matrix (matrix, theta, z, p);                  z, p: (queries, keys) views
///   backward_matrix(matrix, theta, z, p, dp, dz, dtheta);  dz =, dtheta +=
template <class N, class S>
concept MatrixNormalizer = requires(const N n, const ScoreMatrix& m, ConstArray<S> in, Array<S> out, View<const S> zin,
                                    View<S> zout) {
  { N::parameters_per_head } -> std::convertible_to<Index>;
  { N::scaled_scores } -> std::convertible_to<bool>;
  n.forward_matrix(m, in, zin, zout);
  n.backward_matrix(m, in, zin, zin, zin, zout, out);
};

template <class N, class S>
concept AnyNormalizer = Normalizer<N, S> || MatrixNormalizer<N, S>;

/// Refinement: the null-logit family, p_j = e^{z_j} / (e^s + Σ e^z), so that the null mass p_∅ has a closed form.
///   null_logit(row, theta) → s, −∞ for softmax
template <class N, class S>
concept NullLogitNormalizer = Normalizer<N, S> && requires(const N n, const Row& row, ConstArray<S> theta) {
  { n.null_logit(row, theta) } -> std::convertible_to<S>;
};

/// Fills theta, (heads, parameters_per_head), by the normalizer's own initialize.
template <class N, class S>
void initialize_normalizer(const N& n, Index heads, Index context, S* theta) {
  if constexpr (N::parameters_per_head > 0) {
    for (Index h = 0; h < heads; ++h)
      n.initialize(Row{h, 0, 0, context}, array(theta + h * N::parameters_per_head, N::parameters_per_head));
  }
}

template <class N, class S>
void initialize_normalizer(const N& n, Index heads, Index context, const View<S>& theta) {
  initialize_normalizer(n, heads, context, theta.data);
}

}  // namespace meso
