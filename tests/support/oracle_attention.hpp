#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "oracle.hpp"

namespace meso::test::oracle {

/// The sizes of one attention call, and whether query i of a sequence sees key j.
struct AttentionSizes {
  Index batch = 1, time = 0, heads = 1, groups = 1, head_size = 0;
};

/// One query row: its visible keys, and for each of them the scores, Σ|q_c k_c|, dp = do·v and Σ|do_c v_c|.
struct AttentionRow {
  Index batch = 0, head = 0, query = 0;
  std::vector<Index> keys;
  Vector z, z_magnitude, dp, dp_magnitude;
};

/// Calls visit(row) for every sequence, head and query. `scale` multiplies the scores.
template <class Sees, class Visit>
void attention_rows(const AttentionSizes& s, const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& d_o,
                    double scale, Sees&& sees, Visit&& visit) {
  for (Index b = 0; b < s.batch; ++b)
    for (Index h = 0; h < s.heads; ++h)
      for (Index i = 0; i < s.time; ++i) {
        AttentionRow row{b, h, i, {}, {}, {}, {}, {}};
        for (Index j = 0; j < s.time; ++j) {
          if (!sees(i, j)) continue;
          double z = 0, z_sum = 0, dp = 0, dp_sum = 0;
          for (Index c = 0; c < s.head_size; ++c) {
            const Index query = h * s.head_size + c, key = h / (s.heads / s.groups) * s.head_size + c;
            const double product = q(b * s.time + i, query) * k(b * s.time + j, key);
            const double slope = d_o(b * s.time + i, query) * v(b * s.time + j, key);
            z += product, z_sum += std::abs(product), dp += slope, dp_sum += std::abs(slope);
          }
          row.keys.push_back(j);
          row.z.push_back(scale * z), row.z_magnitude.push_back(scale * z_sum);
          row.dp.push_back(dp), row.dp_magnitude.push_back(dp_sum);
        }
        visit(row);
      }
}

/// What one row of weights p and of gradients dz adds to the results, and errors p_error, dz_error to their bounds:
/// o = P v, dv = Pᵀ do, dq = dz k·scale, dk = dzᵀ q·scale, each with the sum of its absolute terms. A dz is itself a
/// difference, of terms of size dz_terms.
struct AttentionSums {
  Matrix value, magnitude, error, terms;
  explicit AttentionSums(const Matrix& like)
      : value(like.rows, like.cols), magnitude(value), error(value), terms(value) {}
  void add(Index i, Index j, double factor, double factor_error, double factor_terms, double x) {
    value(i, j) += factor * x;
    magnitude(i, j) += std::abs(factor * x);
    error(i, j) += factor_error * std::abs(x);
    terms(i, j) += factor_terms * std::abs(x);
  }
};
struct Attention {
  AttentionSums o, dq, dk, dv;
  Attention(const Matrix& q, const Matrix& k) : o(q), dq(q), dk(k), dv(k) {}

  void add(const AttentionSizes& s, const AttentionRow& row, const Matrix& q, const Matrix& k, const Matrix& v,
           const Matrix& d_o, double scale, const Vector& p, const Vector& p_error, const Vector& dz,
           const Vector& dz_error, const Vector& dz_terms) {
    const Index query = row.batch * s.time + row.query;
    for (std::size_t n = 0; n < row.keys.size(); ++n) {
      const Index key = row.batch * s.time + row.keys[n];
      for (Index c = 0; c < s.head_size; ++c) {
        const Index wide = row.head * s.head_size + c, narrow = row.head / (s.heads / s.groups) * s.head_size + c;
        o.add(query, wide, p[n], p_error[n], p[n], v(key, narrow));
        dv.add(key, narrow, p[n], p_error[n], p[n], d_o(query, wide));
        dq.add(query, wide, scale * dz[n], scale * dz_error[n], scale * dz_terms[n], k(key, narrow));
        dk.add(key, narrow, scale * dz[n], scale * dz_error[n], scale * dz_terms[n], q(query, wide));
      }
    }
  }
};

}  // namespace meso::test::oracle
