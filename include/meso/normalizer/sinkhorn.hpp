#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <meso/core/exp.hpp>
#include <meso/normalizer/normalizer.hpp>

namespace meso {

/// Sinkhorn attention (Sinkformer): weights R·π, π the plan that alternating row and column normalizations of
/// e^{x/ε} lead to; an iteration is one half-step: rows, columns, rows, …
/// p_ij = e^{x_ij/ε + f_i + g_j}; a row step sets f so that rows sum to 1, a column step g so that columns sum to R/C.
/// One iteration is softmax(x/ε). Not causal: it needs the whole matrix. Bidirectional mask only.
/// Source: Sander et al., "Sinkformers: Transformers with Doubly Stochastic Attention" (2022), arXiv 2110.11773.
/// Stable form: potentials f, g in the log domain, each step a shifted log-sum-exp.
/// Backward: unrolled. With L_t = x/ε + f + g after step t, P_t = e^{L_t}, from dL = p ∘ dp at the last step down:
/// L_t = L_{t−1} − lse(L_{t−1}) by rows: dL −= P_t ∘ rowsum(dL); by columns: dL −= (C/R)·P_t ∘ colsum(dL); dx = dL/ε.
/// Shapes: x, p (R queries, C keys). x_ij = −∞ gives p_ij = 0; a row or a column of −∞ gives zeros.
/// Error: relative, ≤ e·u, e = (T + 1)·(max|x|/ε·4 + R + C + 24), T iterations; dx absolute, the sum over all i, j,
/// ≤ 2^T·(T + 1)·(e + R + C + 3)·Σ p|dp|/ε·u, since a step at most doubles Σ|dL|.
/// Throws: std::invalid_argument on a shape mismatch, iterations < 1 or ε ≤ 0.
struct Sinkhorn {
  double epsilon = 1;
  Index iterations = 3;

  static constexpr Index parameters_per_head = 0;
  static constexpr bool scaled_scores = true;

  template <class S>
  void forward_matrix(const ScoreMatrix&, ConstArray<S>, const View<const S>& z, const View<S>& p) const {
    check_same_shape("Sinkhorn", "z", z, "p", p);
    check_options();
    if (z.size() == 0) return;
    const RowMajorMatrix<S> potentials = all_potentials<S>(z);
    weights<S>(z, potentials, iterations, p);
  }
  template <class S>
  void backward_matrix(const ScoreMatrix&, ConstArray<S>, const View<const S>& z, const View<const S>& p,
                       const View<const S>& dp, const View<S>& dz, Array<S>) const {
    check_same_shape("Sinkhorn", "z", z, "p", p);
    check_same_shape("Sinkhorn", "z", z, "dp", dp);
    check_same_shape("Sinkhorn", "z", z, "dz", dz);
    check_options();
    if (z.size() == 0) return;
    const RowMajorMatrix<S> potentials = all_potentials<S>(z);
    RowMajorMatrix<S> step_weights(z.rows, z.cols);
    const View<S> q = view(step_weights);
    // p = e^{L_t}, t = iterations
    map(dz) = map(p).cwiseProduct(map(dp));
    for (Index t = iterations; t >= 1; --t) {
      weights<S>(z, potentials, t, q);
      if (t % 2 == 1) {
        // L_t = L_{t−1} − lse_rows(L_{t−1})
        for (Index i = 0; i < z.rows; ++i) {
          const S sum = row_array(dz, i).sum();
          row_array(dz, i) -= row_array(q, i) * sum;
        }
      } else {
        // L_t = L_{t−1} − lse_columns(L_{t−1}) + log(R/C)
        const Eigen::Array<S, Eigen::Dynamic, 1> sums =
            map(dz).colwise().sum().transpose().array() * (static_cast<S>(z.cols) / static_cast<S>(z.rows));
        for (Index i = 0; i < z.rows; ++i) row_array(dz, i) -= row_array(q, i) * sums;
      }
    }
    // L_0 = z / ε
    map(dz) *= static_cast<S>(1 / epsilon);
  }

 private:
  void check_options() const {
    check(iterations >= 1, "Sinkhorn: iterations is ", iterations, ", but it must be at least 1");
    check(epsilon > 0, "Sinkhorn: epsilon is ", epsilon, ", but it must be positive");
  }

  // Row t holds the potential that step t sets: f (R values) for odd t, g (C values) for even t. Row 0 is g = 0.
  template <class S>
  RowMajorMatrix<S> all_potentials(const View<const S>& z) const {
    constexpr S infinity = std::numeric_limits<S>::infinity();
    const S inverse = static_cast<S>(1 / epsilon);
    const S log_ratio = static_cast<S>(std::log(static_cast<double>(z.rows) / static_cast<double>(z.cols)));
    RowMajorMatrix<S> potentials = RowMajorMatrix<S>::Zero(iterations + 1, std::max<Index>(z.rows, z.cols));
    Eigen::Array<S, Eigen::Dynamic, 1> top(z.cols), sum(z.cols);
    for (Index t = 1; t <= iterations; ++t) {
      Array<S> now = array(potentials.row(t).data(), potentials.cols());
      const ConstArray<S> other = array(static_cast<const S*>(potentials.row(t - 1).data()), potentials.cols());
      if (t % 2 == 1) {
        for (Index i = 0; i < z.rows; ++i) {
          const ConstArray<S> x = row_array(z, i), g(other.data(), z.cols);
          const S row_top = (x * inverse + g).template maxCoeff<Eigen::PropagateNaN>();
          if (row_top == -infinity) continue;
          now[i] = -(row_top + std::log(flushed_exp(x * inverse + g - row_top).sum()));
        }
      } else {
        top.setConstant(-infinity);
        for (Index i = 0; i < z.rows; ++i) top = (top.max)(row_array(z, i) * inverse + other[i]);
        // A column of −∞ keeps the shift 0: its exponentials are 0.
        top = (top == -infinity).select(S(0), top);
        sum.setZero();
        for (Index i = 0; i < z.rows; ++i) sum += flushed_exp(row_array(z, i) * inverse + other[i] - top);
        for (Index j = 0; j < z.cols; ++j) now[j] = sum[j] == S(0) ? S(0) : log_ratio - (top[j] + std::log(sum[j]));
      }
    }
    return potentials;
  }

  // p = e^{z/ε + f + g} after step t
  template <class S>
  void weights(const View<const S>& z, const RowMajorMatrix<S>& potentials, Index t, const View<S>& p) const {
    const S inverse = static_cast<S>(1 / epsilon);
    const S* f = potentials.row(t % 2 == 1 ? t : t - 1).data();
    const ConstArray<S> g = array(static_cast<const S*>(potentials.row(t % 2 == 1 ? t - 1 : t).data()), z.cols);
    for (Index i = 0; i < z.rows; ++i) row_array(p, i) = flushed_exp(row_array(z, i) * inverse + g + f[i]);
  }
};

}  // namespace meso
