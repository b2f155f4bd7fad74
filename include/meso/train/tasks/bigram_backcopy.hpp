#pragma once
#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <meso/train/data.hpp>

namespace meso {

/// Bigram-Backcopy: sequences in which a head has work to do at some positions only, so that a softmax head must park
/// its weight on a sink at the others.
///   x₀ = ⟨s⟩; x₁ is drawn from the frequencies of the symbols that are no triggers; then, if x_t is a trigger,
///   x_{t+1} = x_{t−1}, else x_{t+1} is drawn from the bigram row of x_t.
/// The triggers are the three most frequent symbols. Starting from another symbol keeps two triggers from ever standing
/// side by side, where each would copy the other for ever.
/// Symbols are those of Shannon's experiments: the letters without case, and one space for any run of other bytes.
/// (With punctuation as symbols a comma, which a space always follows, would copy itself for ever.)
/// Source: Guo et al., "Active-Dormant Attention Heads" (arXiv 2410.13835), §2; the table is counted from a text.
class BigramBackcopy {
 public:
  static constexpr Token start = 0;  ///< ⟨s⟩; the symbols of the text follow from 1 on: space, a, b, …

  /// Counts the bigrams of `text`. Throws: std::invalid_argument with fewer than five distinct symbols.
  explicit BigramBackcopy(std::string_view text) {
    const std::string symbols = folded(text);
    std::array<Index, 128> count{}, number{};
    for (const char c : symbols) ++count[static_cast<std::size_t>(c)];
    for (std::size_t c = 0; c < count.size(); ++c)
      if (count[c] > 0) number[c] = ++symbols_;
    check(symbols_ >= 5, "Bigram-Backcopy: the text has ", symbols_,
          " distinct symbols (letters and the space), expected at least 5");
    const auto at = [this](Index i, Index j) { return static_cast<std::size_t>(i * vocabulary() + j); };
    const auto token = [&](char c) { return number[static_cast<std::size_t>(c)]; };
    cumulative_.assign(at(vocabulary(), 0), 0.0);
    for (const char c : symbols) cumulative_[at(0, token(c))] += 1.0;
    for (std::size_t t = 0; t + 1 < symbols.size(); ++t)
      cumulative_[at(token(symbols[t]), token(symbols[t + 1]))] += 1.0;

    std::vector<Token> order(static_cast<std::size_t>(symbols_));
    std::iota(order.begin(), order.end(), 1);
    std::stable_sort(order.begin(), order.end(), [&](Token a, Token b) {
      return cumulative_[static_cast<std::size_t>(a)] > cumulative_[static_cast<std::size_t>(b)];
    });
    std::copy(order.begin(), order.begin() + 3, triggers_.begin());
    for (const Token t : triggers_) cumulative_[static_cast<std::size_t>(t)] = 0.0;  // x₁ is no trigger
    for (Index i = 0; i <= symbols_; ++i) {
      const auto row = cumulative_.begin() + static_cast<Index>(at(i, 0));
      std::partial_sum(row, row + vocabulary(), row);
    }
  }

  Index vocabulary() const { return symbols_ + 1; }
  std::array<Token, 3> triggers() const { return triggers_; }
  bool is_trigger(Token x) const { return std::find(triggers_.begin(), triggers_.end(), x) != triggers_.end(); }

  /// Fills `batch` with `sequences` sequences of `time` tokens: a pure function of (seed, number).
  void sample(std::uint64_t seed, Index number, Index sequences, Index time, Batch& batch) const {
    batch.time = time;
    batch.tokens.resize(static_cast<std::size_t>(sequences * time));
    batch.targets.resize(batch.tokens.size());
    const Random random{seed, stream_of("bigram-backcopy")};
    for (Index i = 0; i < sequences; ++i) {
      Token before = start, x = start;
      for (Index t = 0; t < time; ++t) {
        const std::size_t at = static_cast<std::size_t>(i * time + t);
        const Token next =
            is_trigger(x) ? before : draw(x, random.uniform((static_cast<std::uint64_t>(number) << 32) + at));
        batch.tokens[at] = x;
        batch.targets[at] = next;
        before = x;
        x = next;
      }
    }
  }

 private:
  static std::string folded(std::string_view text) {
    std::string symbols;
    for (const char c : text) {
      if (c >= 'a' && c <= 'z')
        symbols += c;
      else if (c >= 'A' && c <= 'Z')
        symbols += static_cast<char>(c - 'A' + 'a');
      else if (!symbols.empty() && symbols.back() != ' ')
        symbols += ' ';
    }
    return symbols;
  }

  Token draw(Token x, double uniform) const {
    const auto row = cumulative_.begin() + x * vocabulary();
    const double total = row[symbols_];
    if (total <= 0) return static_cast<Token>(1 + static_cast<Index>(uniform * static_cast<double>(symbols_)));
    return static_cast<Token>(std::upper_bound(row, row + symbols_, uniform * total) - row);
  }

  Index symbols_ = 0;
  std::array<Token, 3> triggers_{};
  std::vector<double> cumulative_;  ///< (vocabulary, vocabulary); row 0 holds the frequencies of x₁
};

}  // namespace meso
