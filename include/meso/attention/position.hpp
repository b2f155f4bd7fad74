#pragma once
#include <cmath>
#include <concepts>

#include <meso/core/check.hpp>
#include <meso/core/eigen.hpp>

namespace meso {

/// How a model learns the order of tokens.
///   static constexpr bool learned_table;   true: a learned (context, width) table is added to the embedding
template <class P>
concept Position = requires {
  { P::learned_table } -> std::convertible_to<bool>;
};

/// Refinement: a position that turns the queries and keys of each head.
///   table_size(head_size);              numbers that describe one position
///   fill(position, head_size, row);     computes them, once a position
///   rotate(row, x); rotate_back(row, x);  x, one head of one token, in place; rotate_back is the transpose
template <class P, class S>
concept RotatingPosition = Position<P> && requires(const P p, ConstArray<S> row, Array<S> x) {
  { p.table_size(Index{}) } -> std::convertible_to<Index>;
  p.fill(Index{}, Index{}, x);
  p.rotate(row, x);
  p.rotate_back(row, x);
};

/// No positional information: the causal mask alone orders the tokens.
struct NoPosition {
  static constexpr bool learned_table = false;
};

/// GPT-2's learned absolute positions: x_i = embedding + table_i.
struct LearnedPosition {
  static constexpr bool learned_table = true;
};

/// Rotary positions: channels (i, i + d/2) of a head at position t are turned by the angle t·base^{−2i/d}.
/// Source: Su et al., "RoFormer" (2021); the split into halves is that of GPT-NeoX and Llama's public weights.
/// Numerics: angles, cosines and sines in double, then rounded. Backward: the rotation by the negative angle.
/// Error: of x_i cos − x_j sin, ≤ 3u·(|x_i cos| + |x_j sin|) + (log base + 3)·angle·2⁻⁵³·(|x_i| + |x_j|): the angle is
/// itself rounded in double, which counts in double, or beyond 10⁶ positions.
/// Throws: std::invalid_argument if the head size is odd.
struct Rotary {
  static constexpr bool learned_table = false;
  double base = 10000.0;

  Index table_size(Index head_size) const {
    check(head_size % 2 == 0, "Rotary: the head size is ", head_size, ", expected an even number");
    return head_size;
  }
  template <class S>
  void fill(Index position, Index head_size, Array<S> row) const {
    const Index half = head_size / 2;
    for (Index i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) *
                           std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(head_size));
      row[i] = static_cast<S>(std::cos(angle));
      row[half + i] = static_cast<S>(std::sin(angle));
    }
  }
  template <class S>
  void rotate(ConstArray<S> row, Array<S> x) const {
    const Index half = x.size() / 2;
    for (Index i = 0; i < half; ++i) {
      const S a = x[i], b = x[half + i], c = row[i], s = row[half + i];
      x[i] = a * c - b * s;
      x[half + i] = a * s + b * c;
    }
  }
  template <class S>
  void rotate_back(ConstArray<S> row, Array<S> x) const {
    const Index half = x.size() / 2;
    for (Index i = 0; i < half; ++i) {
      const S a = x[i], b = x[half + i], c = row[i], s = row[half + i];
      x[i] = a * c + b * s;
      x[half + i] = b * c - a * s;
    }
  }
};

}  // namespace meso
