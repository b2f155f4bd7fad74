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
#include <type_traits>
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

    /// One whole step of an optimizer around the rotation, three passes over memory instead of nine:
    ///   load(offset, count, x): x = the gradient;  direction(offset, count, g, u): u from Q times the gradient;
    ///   store(offset, count, x): x = Qᵀ u is done.  `offset` counts elements of the parameter; `count` is an Index or a
    ///   std::integral_constant.
    template <class Products, class Load, class Direction, class Store>
    void around(CpuContext<Products>& context, Index rows, Index cols, Load&& load, Direction&& direction,
                Store&& store) const {
      const auto memory = context.workspace.template take<S>(rows == 1 ? 0 : rows * cols);
      const View<S> middle = memory.view(rows, cols);
      const Index area = (std::max)(rows, cols) * lanes + 2 * lanes * cols;
      const auto scratch = context.workspace.template take<S>(workers(context) * area);
      const auto column_bundles = [&](auto&& f) {
        if (rows == 1) return;
        parallel_for(context, (cols + lanes - 1) / lanes, [&](Index t, Index worker) {
          const Index first = t * lanes, count = std::min<Index>(lanes, cols - first);
          S* const x = scratch.data() + worker * area;
          count == lanes ? f(first, std::integral_constant<Index, lanes>{}, x) : f(first, count, x);
        });
      };
      column_bundles([&](Index first, auto count, S* x) {
        if (count < lanes) std::fill(x, x + rows * lanes, S(0));
        for (Index i = 0; i < rows; ++i) load(i * cols + first, count, x + i * lanes);
        rows_.forward(x);
        for (Index i = 0; i < rows; ++i) std::copy(x + i * lanes, x + i * lanes + count, middle.row(i) + first);
      });
      parallel_for(context, (rows + lanes - 1) / lanes, [&](Index t, Index worker) {
        const Index first = t * lanes, count = std::min<Index>(lanes, rows - first);
        S *const x = scratch.data() + worker * area, *const g = x + (std::max)(rows, cols) * lanes,
                 *const u = g + lanes * cols;
        if (rows == 1) load(Index{0}, cols, g);
        if (count < lanes) std::fill(x, x + cols * lanes, S(0));
        detail::transpose_copy<S>(rows == 1 ? g : middle.row(first), cols, count, cols, x, lanes);
        cols_.forward(x);
        detail::transpose_copy<S>(x, lanes, cols, count, g, cols);
        direction(first * cols, count * cols, g, u);
        detail::transpose_copy<S>(u, cols, count, cols, x, lanes);
        cols_.backward(x);
        detail::transpose_copy<S>(x, lanes, cols, count, rows == 1 ? g : middle.row(first), cols);
        if (rows == 1) store(Index{0}, cols, g);
      });
      column_bundles([&](Index first, auto count, S* x) {
        if (count < lanes) std::fill(x, x + rows * lanes, S(0));
        for (Index i = 0; i < rows; ++i)
          std::copy(middle.row(i) + first, middle.row(i) + first + count, x + i * lanes);
        rows_.backward(x);
        for (Index i = 0; i < rows; ++i) store(i * cols + first, count, x + i * lanes);
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
