#pragma once
// Rotations for the table, without Eigen: the signs of HadamardRotation's kind, and blocks of orthogonal matrices of
// KroneckerRotation's shapes. Reflections take the place of Haar matrices: as dense, and made without a factorization.
#include <bit>
#include <meso/cuda/optimizer.cuh>
#include <string>
#include <vector>

#include "tests/cuda/gpu/table.hpp"

namespace meso::table {

/// The one parameter whose rotation the host knows too.
inline const std::string rotated_name = "matrix";

/// Q_row x Q_colᵀ, or back, in double on the host.
inline Matrix on_host(const cuda::NoRotation&, const Matrix& x, bool) { return x; }

/// x with every column and row turned by the axes' maps: by rows first, then columns, or back.
template <class Turn>
Matrix turned(const Matrix& x, Turn&& turn) {
  Matrix y = x;
  for (Index i = 0; i < y.rows; ++i) {
    const std::vector<double> row = turn(y.row(i), false);
    std::copy(row.begin(), row.end(), y.data.begin() + i * y.cols);
  }
  for (Index j = 0; j < y.cols && y.rows > 1; ++j) {
    std::vector<double> column;
    for (Index i = 0; i < y.rows; ++i) column.push_back(y(i, j));
    column = turn(column, true);
    for (Index i = 0; i < y.rows; ++i) y(i, j) = column[at(i)];
  }
  return y;
}

struct HadamardSigns {
  template <class C>
  using Plan = cuda::HadamardPlan<C>;

  static Index power_of(Index size) { return static_cast<Index>(std::bit_floor(static_cast<std::uint64_t>(size))); }
  /// ±1/√p of each pass.
  static std::vector<double> signs(const std::string& axis, Index size) {
    const Index power = power_of(size);
    std::vector<double> s;
    for (Index i = 0; i < (power < size ? 2 : 1) * power; ++i)
      s.push_back((Random{7, stream_of(axis)}.bits(static_cast<std::uint64_t>(i)) & 1 ? -1 : 1) /
                  std::sqrt(static_cast<double>(power)));
    return s;
  }

  template <class C>
  Plan<C> prepare(cuda::Context& context, const std::string& name, Index rows, Index cols) const {
    const auto axis = [&](const std::string& axis_name, Index size) {
      cuda::HadamardAxis<C> a;
      a.size = size;
      a.power = power_of(size);
      const std::vector<double> s = signs(axis_name, size);
      const std::vector<C> values(s.begin(), s.end());
      a.signs.resize(static_cast<Index>(values.size()));
      cuda::upload(context, values.data(), a.signs.size(), a.signs.data());
      return a;
    };
    return {axis(name + " rows", rows), axis(name + " cols", cols)};
  }
};

/// By the definition: H(i, j) = (−1)^{popcount(i & j)}.
inline Matrix on_host(const HadamardSigns&, const Matrix& x, bool back) {
  return turned(x, [&](std::vector<double> v, bool row_axis) {
    const Index size = static_cast<Index>(v.size()), power = HadamardSigns::power_of(size);
    const std::vector<double> s = HadamardSigns::signs(rotated_name + (row_axis ? " rows" : " cols"), size);
    const auto pass = [&](Index number) {
      const Index first = number == 0 ? 0 : size - power;
      std::vector<double> out(at(power), 0.0);
      for (Index i = 0; i < power; ++i)
        for (Index j = 0; j < power; ++j) {
          const int sign = std::popcount(static_cast<std::uint64_t>(i & j)) % 2 == 0 ? 1 : -1;
          out[at(i)] += sign * v[at(first + j)] * s[at(number * power + (back ? i : j))];
        }
      std::copy(out.begin(), out.end(), v.begin() + first);
    };
    const bool two = power < size;
    if (back && two) pass(1);
    pass(0);
    if (!back && two) pass(1);
    return v;
  });
}

struct Reflections {
  template <class C>
  using Plan = cuda::KroneckerPlan<C>;
  static constexpr Index most = 2048;  ///< of a block, as KroneckerRotation

  /// I − 2 w wᵀ/wᵀw.
  static std::vector<double> matrix(Index size) {
    std::vector<double> w, q;
    double square = 0;
    for (Index i = 0; i < size; ++i) {
      w.push_back(Random{11, 1}.uniform(static_cast<std::uint64_t>(i)) + 0.5);
      square += w.back() * w.back();
    }
    for (Index i = 0; i < size; ++i)
      for (Index j = 0; j < size; ++j) q.push_back((i == j ? 1.0 : 0.0) - 2 * w[at(i)] * w[at(j)] / square);
    return q;
  }

  template <class C>
  Plan<C> prepare(cuda::Context& context, const std::string&, Index rows, Index cols) const {
    Plan<C> plan;
    const auto axis = [&](Index size, auto& blocks) {
      const Index count = (size + most - 1) / most;
      for (Index b = 0; b < count; ++b) {
        const Index first = b * size / count, length = (b + 1) * size / count - first;
        blocks.push_back({first, length, cuda::Buffer<C>(length * length)});
        const std::vector<double> q = matrix(length);
        const std::vector<C> values(q.begin(), q.end());
        cuda::upload(context, values.data(), length * length, blocks.back().q.data());
      }
    };
    if (rows > 1) axis(rows, plan.rows);
    axis(cols, plan.cols);
    return plan;
  }
};

/// One block an axis; symmetric, hence its own inverse.
inline Matrix on_host(const Reflections&, const Matrix& x, bool) {
  return turned(x, [](const std::vector<double>& v, bool) {
    const Index size = static_cast<Index>(v.size());
    const std::vector<double> q = Reflections::matrix(size);
    std::vector<double> out(v.size(), 0.0);
    for (Index i = 0; i < size; ++i)
      for (Index j = 0; j < size; ++j) out[at(i)] += q[at(i * size + j)] * v[at(j)];
    return out;
  });
}

}  // namespace meso::table
