#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <meso/core/check.hpp>
#include <meso/core/random.hpp>
#include <meso/layer/token.hpp>

namespace meso {

/// Sequences of `time` tokens one after the other, and the token that follows each.
struct Batch {
  std::vector<Token> tokens;
  std::vector<Token> targets;
  Index time = 0;
};

/// A run of tokens, cut into a part for training and one for validation.
/// Training batches are random windows, a pure function of (seed, batch number); validation windows lie side by side.
class TokenStream {
 public:
  /// Bytes as tokens: vocabulary 256.
  static TokenStream from_bytes(std::string_view text, double validation_share = 0.1) {
    std::vector<Token> tokens(text.size());
    std::transform(text.begin(), text.end(), tokens.begin(),
                   [](char c) { return static_cast<Token>(static_cast<unsigned char>(c)); });
    return TokenStream(std::move(tokens), validation_share);
  }

  /// Throws: std::invalid_argument if there are no tokens or the share lies outside (0, 1).
  explicit TokenStream(std::vector<Token> tokens, double validation_share = 0.1) : tokens_(std::move(tokens)) {
    check(!tokens_.empty(), "the text is empty");
    check(validation_share > 0 && validation_share < 1, "the validation share is ", validation_share,
          ", expected a number between 0 and 1");
    train_ = static_cast<Index>(static_cast<double>(tokens_.size()) * (1.0 - validation_share));
  }

  Index size() const { return static_cast<Index>(tokens_.size()); }
  std::span<const Token> train() const { return {tokens_.data(), static_cast<std::size_t>(train_)}; }
  std::span<const Token> validation() const { return std::span<const Token>(tokens_).subspan(train().size()); }

  /// Fills `batch` with `sequences` random windows of the training part.
  /// Throws: std::invalid_argument if that part is shorter than a window and its successor.
  void sample(std::uint64_t seed, Index number, Index sequences, Index time, Batch& batch) const {
    const Index starts = static_cast<Index>(train().size()) - time;
    check(starts > 0, "the text has ", train().size(), " tokens to train on, expected more than the context of ", time);
    resize(batch, sequences, time);
    const Random random{seed, stream_of("windows")};
    for (Index i = 0; i < sequences; ++i)
      copy(train(), random.below(static_cast<std::uint64_t>(number * sequences + i), starts), i, batch);
  }

  /// Number of whole windows of the validation part.
  Index validation_windows(Index time) const { return (static_cast<Index>(validation().size()) - 1) / time; }

  /// Fills `batch` with `sequences` windows of the validation part, window number `first` and its successors.
  /// Throws: std::invalid_argument if there are not so many.
  void validation_batch(Index first, Index sequences, Index time, Batch& batch) const {
    check(first + sequences <= validation_windows(time), "the text has ", validation_windows(time),
          " validation windows of ", time, " tokens, expected at least ", first + sequences);
    resize(batch, sequences, time);
    for (Index i = 0; i < sequences; ++i) copy(validation(), (first + i) * time, i, batch);
  }

 private:
  static void resize(Batch& batch, Index sequences, Index time) {
    batch.time = time;
    batch.tokens.resize(static_cast<std::size_t>(sequences * time));
    batch.targets.resize(static_cast<std::size_t>(sequences * time));
  }
  static void copy(std::span<const Token> from, Index start, Index sequence, Batch& batch) {
    const auto source = from.begin() + start;
    std::copy(source, source + batch.time, batch.tokens.begin() + sequence * batch.time);
    std::copy(source + 1, source + 1 + batch.time, batch.targets.begin() + sequence * batch.time);
  }

  std::vector<Token> tokens_;
  Index train_ = 0;
};

}  // namespace meso
