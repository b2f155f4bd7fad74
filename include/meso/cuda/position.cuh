#pragma once
#include <cmath>

#include <meso/core/buffer.hpp>
#include <meso/core/check.hpp>
#include <meso/cuda/math.cuh>

namespace meso::cuda {

/// No positions; see meso::NoPosition.
struct NoPosition {
  static constexpr bool on_device = true, learned_table = false, rotating = false;
};
/// A learned table; see meso::LearnedPosition.
struct LearnedPosition {
  static constexpr bool on_device = true, learned_table = true, rotating = false;
};
/// Rotary positions; see meso::Rotary.
struct Rotary {
  double base = 10000.0;
  static constexpr bool on_device = true, learned_table = false, rotating = true;

  Index table_size(Index head_size) const {
    meso::check(head_size % 2 == 0, "Rotary: the head size is ", head_size, ", expected an even number");
    return head_size;
  }
};

/// Row t of Rotary: cos of the head_size/2 angles t·base^{−2i/d}, then sin, in double on the host, rounded to S; an
/// empty table for a position that does not turn heads. Shapes: table (context, head_size), contiguous.
template <class P, class S>
requires(P::on_device) void fill_rotation([[maybe_unused]] const P& position, [[maybe_unused]] Index context,
                                          [[maybe_unused]] Index head_size, [[maybe_unused]] meso::Buffer<S>& table) {
  if constexpr (P::rotating) {
    const Index half = position.table_size(head_size) / 2;
    table.resize(context * head_size);
    for (Index t = 0; t < context; ++t)
      for (Index i = 0; i < half; ++i) {
        const double angle = static_cast<double>(t) *
                             std::pow(position.base, -2.0 * static_cast<double>(i) / static_cast<double>(head_size));
        table.data()[t * head_size + i] = static_cast<S>(std::cos(angle));
        table.data()[t * head_size + half + i] = static_cast<S>(std::sin(angle));
      }
  }
}

namespace detail {

template <class T>
struct Rotate {
  View<T> x;
  const Compute<T>* table;
  Index time, head_size;
  bool back;

  // j counts pairs of channels, head by head
  __device__ void operator()(Index i, Index j) const {
    using C = Compute<T>;
    const Index half = head_size / 2, h = j / half, c = j % half;
    const C* const row = table + i % time * head_size;
    const C cosine = row[c], sine = back ? -row[half + c] : row[half + c];
    T& first = x(i, h * head_size + c);
    T& second = x(i, h * head_size + half + c);
    const C a = load(first), b = load(second);
    store(first, a * cosine - b * sine);
    store(second, a * sine + b * cosine);
  }
};

}  // namespace detail

/// Turns the first `heads` heads of every row by the angles of position i mod time, in place; `back`: by the negative
/// angles, which is the backward pass; nothing for a position that does not turn heads: as meso::rotate_heads.
/// Shapes: x (tokens, ≥ heads·head_size), table (≥ time, head_size) of fill_rotation.
/// Error: ≤ 3u·(|x_i cos| + |x_j sin|) and the rounding of the table, and one to T.
template <class P, class T>
void rotate_heads([[maybe_unused]] Context& context, const P&, [[maybe_unused]] const View<T>& x,
                  [[maybe_unused]] const Compute<std::type_identity_t<T>>* table, [[maybe_unused]] Index time,
                  [[maybe_unused]] Index heads, [[maybe_unused]] Index head_size, [[maybe_unused]] bool back) {
  if constexpr (P::rotating) {
    meso::check(x.cols >= heads * head_size, "rotate_heads: x is ", shape(x), " but ", heads, " heads of ", head_size,
                " are wanted");
    detail::for_elements(context, "rotate_heads", detail::Rotate<T>{x, table, time, head_size, back}, x.rows,
                         heads * (head_size / 2));
  }
}

}  // namespace meso::cuda
