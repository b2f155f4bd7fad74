#pragma once
#include <cmath>
#include <vector>

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
  /// Row t: cos of the head_size/2 angles t·base^{−2i/d}, then sin, in double on the host, rounded to C.
  template <class C>
  std::vector<C> table(Index context, Index head_size) const {
    const Index half = table_size(head_size) / 2;
    std::vector<C> values(static_cast<std::size_t>(context * head_size));
    for (Index t = 0; t < context; ++t)
      for (Index i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(t) * std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(head_size));
        values[static_cast<std::size_t>(t * head_size + i)] = static_cast<C>(std::cos(angle));
        values[static_cast<std::size_t>(t * head_size + half + i)] = static_cast<C>(std::sin(angle));
      }
    return values;
  }
};

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
/// angles, which is the backward pass. Shapes: x (tokens, ≥ heads·head_size), table (≥ time, head_size) of Rotary::table.
/// Error: ≤ 3u·(|x_i cos| + |x_j sin|) and the rounding of the table, and one to T.
template <class T>
void rotate_heads(Context& context, const View<T>& x, const Compute<std::type_identity_t<T>>* table, Index time,
                  Index heads, Index head_size, bool back) {
  meso::check(x.cols >= heads * head_size, "rotate_heads: x is ", shape(x), " but ", heads, " heads of ", head_size,
              " are wanted");
  detail::for_elements(context, "rotate_heads", detail::Rotate<T>{x, table, time, head_size, back}, x.rows,
                       heads * (head_size / 2));
}

}  // namespace meso::cuda
