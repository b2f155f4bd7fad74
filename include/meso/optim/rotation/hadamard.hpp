#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <meso/core/buffer.hpp>
#include <meso/core/context.hpp>
#include <meso/core/eigen.hpp>
#include <meso/core/random.hpp>
#include <meso/core/transpose.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace meso {

namespace detail {

/// Columns that one transform handles side by side: one cache line.
template <class S>
inline constexpr Index hadamard_lanes = static_cast<Index>(alignment / sizeof(S));

/// x = H_p x, not normalized, for `lanes` interleaved vectors: x (p, lanes), p a power of two.
/// Two butterfly levels a pass over memory, one more if log₂ p is odd.
template <class S>
void walsh_hadamard(S* x, Index p) {
  constexpr Index lanes = hadamard_lanes<S>;
  using Line = Eigen::Array<S, static_cast<int>(lanes), 1>;
  const auto line = [x](Index i) { return Eigen::Map<Line, Eigen::Aligned64>(x + i * lanes); };
  Index h = 1;
  for (; 4 * h <= p; h *= 4) {
    for (Index i = 0; i < p; i += 4 * h) {
      for (Index j = i; j < i + h; ++j) {
        auto x0 = line(j), x1 = line(j + h), x2 = line(j + 2 * h), x3 = line(j + 3 * h);
        const Line a = x0 + x1, b = x0 - x1, c = x2 + x3, d = x2 - x3;
        x0 = a + c;
        x1 = b + d;
        x2 = a - c;
        x3 = b - d;
      }
    }
  }
  if (h < p) {
    for (Index j = 0; j < h; ++j) {
      auto x0 = line(j), x1 = line(j + h);
      const Line a = x0 + x1, b = x0 - x1;
      x0 = a;
      x1 = b;
    }
  }
}

/// The orthogonal map of one axis of length d, p = 2^⌊log₂ d⌋: random signs and H_p/√p on [0, p), and if p < d the same
/// again, with other signs, on [d − p, d). (Blocks of a power of two that divides d would be the identity for odd d.)
template <class S>
struct HadamardAxis {
  Index size = 0;
  Index power = 1;
  Buffer<S> signs;  // ±1/√p: `power` of the first pass, and `power` of the second if there is one

  HadamardAxis(Index d, const Random& random) : size(d) {
    while (2 * power <= d) power *= 2;
    signs.resize(power < d ? 2 * power : power);
    const double scale = 1 / std::sqrt(static_cast<double>(power));
    for (Index i = 0; i < signs.size(); ++i)
      signs.data()[i] = static_cast<S>(random.bits(static_cast<std::uint64_t>(i)) & 1 ? -scale : scale);
  }

  /// x (size, lanes)
  void forward(S* x) const {
    multiply(x, signs.data());
    walsh_hadamard(x, power);
    if (power == size) return;
    S* const end = x + (size - power) * hadamard_lanes<S>;
    multiply(end, signs.data() + power);
    walsh_hadamard(end, power);
  }
  void backward(S* x) const {
    if (power < size) {
      S* const end = x + (size - power) * hadamard_lanes<S>;
      walsh_hadamard(end, power);
      multiply(end, signs.data() + power);
    }
    walsh_hadamard(x, power);
    multiply(x, signs.data());
  }

 private:
  void multiply(S* x, const S* factors) const {
    constexpr Index lanes = hadamard_lanes<S>;
    for (Index i = 0; i < power; ++i)
      Eigen::Map<Eigen::Array<S, static_cast<int>(lanes), 1>, Eigen::Aligned64>(x + i * lanes) *= factors[i];
  }
};

}  // namespace detail

/// Random signs and fast Walsh–Hadamard transforms an axis, Ḡ = Q_row G Q_colᵀ: OrthoAdam at nearly the price of Adam,
/// O(log) operations an element and O(rows + cols) memory. A vector (1, n) has only its axis of n.
/// On an axis of length d with p = 2^⌊log₂ d⌋: signs and H_p/√p on [0, p), then, if p < d, signs and H_p/√p on
/// [d − p, d).
/// Source: ours; the transform: Yates (1937); random signs: Ailon & Chazelle, "The fast Johnson–Lindenstrauss
/// transform" (2009).
/// Error: of one rotation, ≤ (2·log₂ rows + 2·log₂ cols + 8)·u·‖G‖_F element-wise.
struct HadamardRotation {
  std::uint64_t seed = 0;

  template <class S>
  class Plan {
   public:
    Plan(detail::HadamardAxis<S> row_axis, detail::HadamardAxis<S> col_axis)
        : rows_(std::move(row_axis)), cols_(std::move(col_axis)) {}

    template <class Products>
    void rotate(CpuContext<Products>& context, View<const S> in, View<S> out) const {
      both_axes(context, in, out, [](const auto& axis, S* x) { axis.forward(x); });
    }
    template <class Products>
    void rotate_back(CpuContext<Products>& context, View<const S> in, View<S> out) const {
      both_axes(context, in, out, [](const auto& axis, S* x) { axis.backward(x); });
    }

    /// One whole step of an optimizer around the rotation, in three passes over contiguous memory:
    ///   load(offset, count, x):          x = elements [offset, offset + count) of the gradient
    ///   direction(offset, count, g, u):  u from g = Q times the gradient; offset counts in the order of the bundles,
    ///                                    16 columns of float or 8 of double, one bundle after the other
    ///   store(offset, count, x):         x = elements [offset, offset + count) of Qᵀ u
    template <class Products, class Load, class Direction, class Store>
    void around(CpuContext<Products>& context, Index rows, Index cols, Load&& load, Direction&& direction,
                Store&& store) const {
      const Index bundles = (cols + lanes - 1) / lanes;
      const auto middle = context.workspace.template take<S>(bundles * rows * lanes);
      const Index area = lanes * (std::max)(2 * rows, bundles * lanes + cols);
      const auto scratch = context.workspace.template take<S>(workers(context) * area);
      // A row bundle: `lanes` rows, as they lie in memory and transposed; f fills the one from the other.
      const auto row_bundles = [&](auto&& f) {
        parallel_for(context, (rows + lanes - 1) / lanes, [&](Index t, Index worker) {
          S* const transposed = scratch.data() + worker * area;
          f(t * lanes, std::min<Index>(lanes, rows - t * lanes), transposed, transposed + bundles * lanes * lanes);
        });
      };
      const auto block = [&](Index bundle, Index row) { return middle.data() + (bundle * rows + row) * lanes; };
      row_bundles([&](Index first, Index count, S* x, S* in_rows) {
        load(first * cols, count * cols, in_rows);
        if (count < lanes || cols % lanes != 0) std::fill(x, x + bundles * lanes * lanes, S(0));
        detail::transpose_copy<S>(in_rows, cols, count, cols, x, lanes);
        cols_.forward(x);
        for (Index b = 0; b < bundles; ++b)
          detail::transpose_copy<S>(x + b * lanes * lanes, lanes, lanes, count, block(b, first), lanes);
      });
      const auto column_bundle = [&](Index b, Index worker) {
        S *const x = block(b, 0), *g = x, *u = scratch.data() + worker * area;
        const Index count = std::min<Index>(lanes, cols - b * lanes);
        if (rows > 1) rows_.forward(x);
        if (count < lanes) {
          g = u + rows * lanes;
          for (Index i = 0; i < rows; ++i) std::copy(x + i * lanes, x + i * lanes + count, g + i * count);
        }
        direction(b * lanes * rows, rows * count, g, u);
        for (Index i = 0; i < rows; ++i) std::copy(u + i * count, u + i * count + count, x + i * lanes);
        if (rows > 1) rows_.backward(x);
      };
      if (rows > 1)
        parallel_for(context, bundles, column_bundle);
      else  // less than the start of a thread
        for (Index b = 0; b < bundles; ++b) column_bundle(b, 0);
      row_bundles([&](Index first, Index count, S* x, S* in_rows) {
        if (count < lanes) std::fill(x, x + bundles * lanes * lanes, S(0));
        for (Index b = 0; b < bundles; ++b)
          detail::transpose_copy<S>(block(b, first), lanes, count, lanes, x + b * lanes * lanes, lanes);
        cols_.backward(x);
        detail::transpose_copy<S>(x, lanes, cols, count, in_rows, cols);
        store(first * cols, count * cols, in_rows);
      });
    }

   private:
    static constexpr Index lanes = detail::hadamard_lanes<S>;

    // Each tile is one bundle of `lanes` rows (then columns), transposed into (copied to) contiguous scratch.
    template <class Products, class F>
    void both_axes(CpuContext<Products>& context, View<const S> in, View<S> out, F&& transform) const {
      const Index area = std::max<Index>(rows_.size, cols_.size) * lanes;
      const auto scratch = context.workspace.template take<S>(workers(context) * area);
      parallel_for(context, (in.rows + lanes - 1) / lanes, [&](Index t, Index worker) {
        S* const x = scratch.data() + worker * area;
        const Index first = t * lanes, count = std::min<Index>(lanes, in.rows - first);
        if (count < lanes) std::fill(x, x + in.cols * lanes, S(0));
        detail::transpose_copy(in.row(first), in.stride, count, in.cols, x, lanes);
        transform(cols_, x);
        detail::transpose_copy(x, lanes, in.cols, count, out.row(first), out.stride);
      });
      if (in.rows == 1) return;
      parallel_for(context, (in.cols + lanes - 1) / lanes, [&](Index t, Index worker) {
        S* const x = scratch.data() + worker * area;
        const Index first = t * lanes, count = std::min<Index>(lanes, in.cols - first);
        if (count < lanes) std::fill(x, x + in.rows * lanes, S(0));
        for (Index i = 0; i < in.rows; ++i) std::copy(out.row(i) + first, out.row(i) + first + count, x + i * lanes);
        transform(rows_, x);
        for (Index i = 0; i < in.rows; ++i) std::copy(x + i * lanes, x + i * lanes + count, out.row(i) + first);
      });
    }

    detail::HadamardAxis<S> rows_, cols_;
  };

  template <class S>
  Plan<S> prepare(std::string_view name, Index rows, Index cols) const {
    return {detail::HadamardAxis<S>(rows, Random{seed, stream_of(std::string(name) + " rows")}),
            detail::HadamardAxis<S>(cols, Random{seed, stream_of(std::string(name) + " cols")})};
  }
};

}  // namespace meso
