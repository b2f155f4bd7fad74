#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "oracle.hpp"

namespace meso::test::oracle {

/// c = alpha·op(a)·op(b), and the sums |alpha|·|op(a)||op(b)| that its error is measured by.
struct Product {
  Matrix value, magnitude;
};
inline Product product(const Matrix& a, bool transpose_a, const Matrix& b, bool transpose_b, double alpha = 1) {
  const Index m = transpose_a ? a.cols : a.rows, k = transpose_a ? a.rows : a.cols, n = transpose_b ? b.rows : b.cols;
  Product c{Matrix(m, n), Matrix(m, n)};
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < n; ++j)
      for (Index p = 0; p < k; ++p) {
        const double term = alpha * (transpose_a ? a(p, i) : a(i, p)) * (transpose_b ? b(j, p) : b(p, j));
        c.value(i, j) += term;
        c.magnitude(i, j) += std::abs(term);
      }
  return c;
}

/// Σ_i x(i, j), and Σ_i |x(i, j)|.
inline Product column_sums(const Matrix& x) {
  Product s{Matrix(1, x.cols), Matrix(1, x.cols)};
  for (Index i = 0; i < x.rows; ++i)
    for (Index j = 0; j < x.cols; ++j) s.value(0, j) += x(i, j), s.magnitude(0, j) += std::abs(x(i, j));
  return s;
}

/// Rows of dy summed by key(i), and the sums of |dy|.
template <class Key>
Product sums_by(const Matrix& dy, Index rows, Key&& key) {
  Product s{Matrix(rows, dy.cols), Matrix(rows, dy.cols)};
  for (Index i = 0; i < dy.rows; ++i)
    for (Index j = 0; j < dy.cols; ++j) s.value(key(i), j) += dy(i, j), s.magnitude(key(i), j) += std::abs(dy(i, j));
  return s;
}

/// Row losses −log softmax(x)_target and softmax(x) by rows; a target of −1 does not count.
struct CrossEntropy {
  Vector loss;
  Matrix softmax;
  Index count = 0;
};
inline CrossEntropy cross_entropy(const Matrix& x, const std::vector<std::int32_t>& targets) {
  CrossEntropy c{Vector(at(x.rows), 0.0), Matrix(x.rows, x.cols), 0};
  for (Index i = 0; i < x.rows; ++i) {
    if (targets[at(i)] < 0) continue;
    ++c.count;
    double sum = 0;
    for (Index j = 0; j < x.cols; ++j) sum += std::exp(x(i, j));
    for (Index j = 0; j < x.cols; ++j) c.softmax(i, j) = std::exp(x(i, j)) / sum;
    c.loss[at(i)] = std::log(sum) - x(i, targets[at(i)]);
  }
  return c;
}

/// Channels (i, i + d/2) turned by position·base^{−2i/d}, in long double. `sense` −1 turns back.
struct Turned {
  Vector value, magnitude, angle;
};
inline Turned rotary(const Vector& x, Index position, double base, int sense) {
  const Index half = static_cast<Index>(x.size()) / 2;
  Turned y{Vector(x.size()), Vector(x.size()), Vector(x.size())};
  for (Index i = 0; i < half; ++i) {
    const long double angle =
        static_cast<long double>(position) *
        std::pow(static_cast<long double>(base), -static_cast<long double>(2 * i) / static_cast<long double>(2 * half));
    const double c = static_cast<double>(std::cos(angle)), s = sense * static_cast<double>(std::sin(angle));
    const double a = x[at(i)], b = x[at(half + i)];
    y.value[at(i)] = a * c - b * s;
    y.value[at(half + i)] = a * s + b * c;
    y.magnitude[at(i)] = std::abs(a * c) + std::abs(b * s);
    y.magnitude[at(half + i)] = std::abs(a * s) + std::abs(b * c);
    y.angle[at(i)] = y.angle[at(half + i)] = static_cast<double>(angle);
  }
  return y;
}

}  // namespace meso::test::oracle
