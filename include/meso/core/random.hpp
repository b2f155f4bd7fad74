#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include <meso/core/view.hpp>

namespace meso {

/// Philox4x32-10: a counter-based generator; four random words are a pure function of (counter, key).
/// Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011), Random123 known-answer vectors.
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

/// FNV-1a hash of a name: the stream number of everything that is random "by name".
constexpr std::uint64_t stream_of(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

/// Random numbers as pure functions of (seed, stream, index): independent of threads, order and platform.
/// The seed is Philox's key; the counter holds index (low 64 bits) and stream (high 64 bits).
struct Random {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;

  constexpr std::array<std::uint32_t, 4> words(std::uint64_t index) const {
    return philox({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                   static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)},
                  {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  }

  constexpr std::uint64_t bits(std::uint64_t index) const {
    const auto w = words(index);
    return (std::uint64_t{w[1]} << 32) | w[0];
  }

  /// Uniform in [0, 1) with 53 random bits.
  constexpr double uniform(std::uint64_t index) const { return static_cast<double>(bits(index) >> 11) * 0x1p-53; }

  /// Uniform integer in [0, n), n ≥ 1, by scaling 53 random bits; bias below n·2⁻⁵³.
  constexpr Index below(std::uint64_t index, Index n) const {
    return static_cast<Index>(uniform(index) * static_cast<double>(n));
  }

  /// Standard Gaussian by Box–Muller: √(−2 ln u)·cos(2πv), u in (0, 1].
  double normal(std::uint64_t index) const {
    const auto w = words(index);
    const double u = (static_cast<double>(((std::uint64_t{w[1]} << 32) | w[0]) >> 11) + 1.0) * 0x1p-53;
    const double v = static_cast<double>(((std::uint64_t{w[3]} << 32) | w[2]) >> 11) * 0x1p-53;
    return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586476925 * v);
  }
};

/// Fills x with independent N(0, scale²) numbers; element k takes index k of the generator.
template <class S>
void fill_normal(const View<S>& x, const Random& random, double scale = 1.0) {
  for (Index i = 0; i < x.rows; ++i)
    for (Index j = 0; j < x.cols; ++j)
      x(i, j) = static_cast<S>(scale * random.normal(static_cast<std::uint64_t>(i * x.cols + j)));
}

}  // namespace meso
