#pragma once
#include <algorithm>
#include <cmath>
#include <meso/core/buffer.hpp>
#include <meso/core/gemm.hpp>
#include <meso/core/random.hpp>

namespace meso {

/// Orthogonal n × n matrix with the Haar distribution: Q of the QR factorization of a standard Gaussian matrix, columns
/// multiplied by sign(diag R), sign(0) = +1 (without the signs E tr(Q)² is about 0.5, not 1). n = 1 gives ±1.
/// Source: Mezzadri, "How to generate random matrices from the classical compact groups" (2007); Stewart, "The
/// efficient generation of random orthogonal matrices" (1980): what is left of a Gaussian column after the reflections
/// before it is Gaussian, so that it is drawn only then, and R is never formed.
/// Numerics: in double, 32 Householder reflections at a time, on the calling thread alone: the same bits wherever it
/// runs; rounded to S at the end. Reflection k reads indices k·n … k·n + n − k − 1 of `random`.
/// Error: |QᵀQ − I| ≤ 8(n + 1)·2⁻⁵³ + 2√n·u_S element-wise.
template <class S>
void haar_matrix(const Random& random, const View<S>& out) {
  const Index n = out.rows;
  check_shape("haar_matrix", "out", out, n, n);
  constexpr Index block = 32;
  Buffer<double> q_memory(n * n), v_memory(n * block), w_memory(n * block), tw_memory(n * block);
  const View<double> q = q_memory.view(n, n);
  CpuContext<> one_thread(1);
  const auto product = [&](const View<const double>& a, const View<const double>& b, const View<double>& c,
                           const GemmOptions& o = {}) { gemm(one_thread, a, b, c, o); };
  const auto gaussian = [&](Index k, Index i) { return random.normal(static_cast<std::uint64_t>(k * n + i)); };
  for (Index first = (n - 1) / block * block; first >= 0; first -= block) {
    // Columns first … first + count − 1: Q = H_0 H_1 ⋯ D, H_k = I − τ_k v_k v_kᵀ, multiplied from the last to the
    // first.
    const Index rows = n - first, count = std::min<Index>(block, rows);
    const View<double> v = v_memory.view(rows, count);
    double tau[block], t[block][block] = {}, gram[block][block];
    map(v).setZero();
    for (Index k = 0; k < count; ++k) {
      double square = 0;
      for (Index i = k; i < rows; ++i) {
        v(i, k) = gaussian(first + k, i - k);
        square += v(i, k) * v(i, k);
      }
      const double sign = v(k, k) < 0 ? -1.0 : 1.0;
      const bool last = first + k == n - 1;  // a column of one element needs no reflection
      q(first + k, first + k) = last ? sign : -sign;
      const double norm = std::sqrt(square);
      v(k, k) += sign * norm;
      tau[k] = last || norm == 0 ? 0.0 : 1.0 / (norm * std::abs(v(k, k)));
    }
    // H_first ⋯ H_{first+count−1} = I − V T Vᵀ with T upper triangular.
    product(v, v, View<double>{&gram[0][0], count, count, block}, {.transpose_a = true});
    for (Index k = 0; k < count; ++k) {
      for (Index i = 0; i < k; ++i) {
        double sum = 0;
        for (Index j = i; j < k; ++j) sum += t[i][j] * gram[j][k];
        t[i][k] = -tau[k] * sum;
      }
      t[k][k] = tau[k];
    }
    const View<double> rest = q.block(first, first, rows, rows), w = w_memory.view(count, rows),
                       tw = tw_memory.view(count, rows);
    product(v, rest, w, {.transpose_a = true});
    product(View<const double>{&t[0][0], count, count, block}, w, tw);
    product(v, tw, rest, {.accumulate = true, .alpha = -1.0});
  }
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < n; ++j) out(i, j) = static_cast<S>(q(i, j));
}

/// The same as an Eigen matrix.
template <class S = double>
RowMajorMatrix<S> haar_matrix(Index n, const Random& random) {
  RowMajorMatrix<S> q(n, n);
  haar_matrix(random, view(q));
  return q;
}

}  // namespace meso
