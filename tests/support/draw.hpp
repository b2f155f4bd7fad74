#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <meso/core/check.hpp>
#include <meso/core/eigen.hpp>
#include <meso/core/random.hpp>
#include <string>
#include <string_view>

#include "oracle.hpp"

namespace meso::test {

/// Seed of all random shapes and values: $MESO_TEST_SEED, else a fixed one.
inline std::uint64_t test_seed() {
  const char* const text = std::getenv("MESO_TEST_SEED");
  return text && *text ? std::strtoull(text, nullptr, 10) : 20250101;
}

/// A window of a larger matrix; what lies around it holds a guard that no op may touch.
template <class S>
struct Window {
  static constexpr S guard = sizeof(S) == 1 ? S(-99) : S(-12345);

  RowMajorMatrix<S> storage;
  Index top = 0, left = 0, rows = 0, cols = 0;

  View<S> view() { return meso::view(storage).block(top, left, rows, cols); }
  View<const S> view() const { return meso::view(storage).block(top, left, rows, cols); }
  View<const S> constant() const { return view(); }
  S& operator()(Index i, Index j) { return storage(top + i, left + j); }
  double operator()(Index i, Index j) const { return static_cast<double>(storage(top + i, left + j)); }
  /// Row-major copy in double.
  oracle::Matrix values() const { return oracle::matrix(view()); }

  bool intact() const {
    for (Index i = 0; i < storage.rows(); ++i)
      for (Index j = 0; j < storage.cols(); ++j) {
        const bool inside = i >= top && i < top + rows && j >= left && j < left + cols;
        if (!inside && storage(i, j) != guard) return false;
      }
    return true;
  }
};

/// Random shapes and values of one case: a pure function of (seed, name, number), and a note of what was drawn.
class Draw {
 public:
  Draw(std::uint64_t seed, std::string_view name, Index number)
      : random_{seed, stream_of(name) + static_cast<std::uint64_t>(number) * 0x9E3779B97F4A7C15u} {}

  double uniform(double low, double high) { return low + (high - low) * random_.uniform(index_++); }
  double log_uniform(double low, double high) { return std::exp(uniform(std::log(low), std::log(high))); }
  double normal() { return random_.normal(index_++); }
  bool chance(double probability) { return random_.uniform(index_++) < probability; }
  Index between(Index low, Index high) { return low + random_.below(index_++, high - low + 1); }

  /// A size from `least` to `most`; 0 and 1 come up as often as one in ten, where they are allowed.
  Index size(const char* name, Index least, Index most) {
    Index n = between(least, most);
    if (least <= 0 && chance(0.1)) n = 0;
    if (least <= 1 && chance(0.1)) n = (std::min)(Index{1}, most);
    return note(name, n);
  }
  template <class T>
  T note(const char* name, T value) {
    notes_ += message(notes_.empty() ? "" : ", ", name, " ", value);
    return value;
  }
  const std::string& notes() const { return notes_; }

  /// An unset window: of the guard alone. Margins of 0 to 3 rows and 0 to 19 columns, so that every alignment of a row
  /// comes up, and contiguous ones too.
  template <class S>
  Window<S> window(Index rows, Index cols) {
    Window<S> w;
    const bool contiguous = chance(0.25);
    const Index above = contiguous ? 0 : between(0, 3), below = contiguous ? 0 : between(0, 3);
    const Index before = contiguous ? 0 : between(0, 19), after = contiguous ? 0 : between(0, 19);
    w.storage = RowMajorMatrix<S>::Constant(above + rows + below, before + cols + after, Window<S>::guard);
    w.top = above, w.left = before, w.rows = rows, w.cols = cols;
    return w;
  }
  /// A window of N(mean, scale²) numbers.
  template <class S>
  Window<S> normals(Index rows, Index cols, double scale = 1, double mean = 0) {
    Window<S> w = window<S>(rows, cols);
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < cols; ++j) w(i, j) = static_cast<S>(mean + scale * normal());
    return w;
  }
  /// A window of multiples of 1/4 of size ≤ 2: products and short sums of them are exact.
  template <class S>
  Window<S> quarters(Index rows, Index cols) {
    Window<S> w = window<S>(rows, cols);
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < cols; ++j) w(i, j) = static_cast<S>(0.25 * static_cast<double>(between(-8, 8)));
    return w;
  }

 private:
  Random random_;
  std::uint64_t index_ = 0;
  std::string notes_;
};

}  // namespace meso::test
