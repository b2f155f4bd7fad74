#pragma once
#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include <meso/cuda/math.cuh>
#include <meso/layer/token.hpp>

namespace meso::cuda {

/// Tokens of a batch in device memory, and, for each token that occurs, the places where it does, in order: so that the
/// gradient of the table needs no atomics.
class TokenBatch {
 public:
  /// Throws: std::invalid_argument on a token outside the vocabulary, which it names.
  void set(Context& context, std::span<const Token> tokens, Index vocabulary) {
    size_ = static_cast<Index>(tokens.size());
    vocabulary_ = vocabulary;
    starts_.assign(static_cast<std::size_t>(vocabulary) + 1, 0);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      meso::check(tokens[i] >= 0 && tokens[i] < vocabulary, "embedding_forward: token ", tokens[i], " at index ", i,
                  " is outside the vocabulary of ", vocabulary);
      ++starts_[static_cast<std::size_t>(tokens[i]) + 1];
    }
    distinct_host_.clear();
    for (Index v = 0; v < vocabulary; ++v)
      if (starts_[static_cast<std::size_t>(v) + 1] > 0) distinct_host_.push_back(static_cast<Token>(v));
    std::partial_sum(starts_.begin(), starts_.end(), starts_.begin());
    places_host_.resize(tokens.size());
    next_.assign(starts_.begin(), starts_.end() - 1);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      places_host_[static_cast<std::size_t>(next_[static_cast<std::size_t>(tokens[i])]++)] = static_cast<int>(i);
    begins_host_.clear();
    for (const Token t : distinct_host_) begins_host_.push_back(starts_[static_cast<std::size_t>(t)]);
    begins_host_.push_back(static_cast<int>(size_));
    const auto send = [&](const auto& from, auto& to) {
      to.resize(static_cast<Index>(from.size()));
      upload(context, from.data(), static_cast<Index>(from.size()), to.data());
    };
    send(tokens, tokens_);
    send(distinct_host_, distinct_);
    send(places_host_, places_);
    send(begins_host_, begins_);
  }

  Index size() const { return size_; }
  /// That of the last set(): every token is below it.
  Index vocabulary() const { return vocabulary_; }
  Index distinct_count() const { return static_cast<Index>(distinct_host_.size()); }
  const Token* tokens() const { return tokens_.data(); }
  const Token* distinct() const { return distinct_.data(); }
  const int* places() const { return places_.data(); }
  const int* begins() const { return begins_.data(); }

 private:
  Index size_ = 0, vocabulary_ = 0;
  std::vector<int> starts_, next_, places_host_, begins_host_;
  std::vector<Token> distinct_host_;
  Buffer<Token> tokens_, distinct_;
  Buffer<int> places_, begins_;
};

/// to = tokens, as a model's cache keeps them. Throws: as TokenBatch::set.
inline void set_tokens(Context& context, std::span<const Token> tokens, Index vocabulary, TokenBatch& to) {
  to.set(context, tokens, vocabulary);
}

namespace detail {

template <class T>
struct EmbeddingForward {
  const Token* tokens;
  Index time;
  View<const T> table, positions;
  View<T> y;

  __device__ void operator()(Index i, Index j) const {
    const T value = table(tokens[i], j);
    if (positions.data)
      store(y(i, j), load(value) + load(positions(i % time, j)));
    else
      y(i, j) = value;
  }
};

template <class T, class C>
struct EmbeddingBackward {
  const Token* distinct;
  const int* begins;
  const int* places;
  View<const T> dy;
  View<C> dtable;

  __device__ void operator()(Index d, Index j) const {
    C sum = C(0);
    for (int k = begins[d]; k < begins[d + 1]; ++k) sum += load(dy(places[k], j));
    dtable(distinct[d], j) += sum;
  }
};

template <class T, class C>
struct PositionBackward {
  Index time;
  View<const T> dy;
  View<C> dpositions;
  bool accumulate;

  __device__ void operator()(Index t, Index j) const {
    C sum = accumulate ? dpositions(t, j) : C(0);
    if (t < time)
      for (Index i = t; i < dy.rows; i += time) sum += load(dy(i, j));
    dpositions(t, j) = sum;
  }
};

template <class C>
struct Fill {
  View<C> x;
  C value;
  __device__ void operator()(Index i, Index j) const { x(i, j) = value; }
};

}  // namespace detail

/// y_i = table[tokens_i] (+ positions[i mod time] if `positions` is not empty), as meso::embedding_forward.
/// Shapes: table (vocabulary, width), positions (≥ time, width) or empty, y (tokens, width).
/// Error: none, u·|y| with positions. Throws: std::invalid_argument on a shape mismatch.
template <class T>
void embedding_forward(Context& context, const TokenBatch& tokens, Index time, const ConstView<T>& table,
                       const ConstView<T>& positions, const View<T>& y) {
  check_shape("embedding_forward", "y", y, tokens.size(), table.cols);
  check_shape("embedding_forward", "table", table, tokens.vocabulary(), table.cols);
  meso::check(!positions.data || (positions.rows >= time && positions.cols == table.cols),
              "embedding_forward: positions are ", shape(positions), ", expected at least (", time, ", ", table.cols,
              ")");
  detail::for_elements(context, "embedding_forward",
                       detail::EmbeddingForward<T>{tokens.tokens(), time, table, positions, y}, y.rows, y.cols);
}

/// Backward of y_i = table[tokens_i]: the rows of dy summed by token, = or +=, each sum in the order of the tokens.
/// Shapes: dy (tokens, width), dtable (vocabulary, width). Error: ≤ (m + 1)·u·Σ|dy| for a row that m tokens share.
/// Throws: std::invalid_argument on a shape mismatch.
template <class T>
void embedding_backward(Context& context, const TokenBatch& tokens, const View<const T>& dy,
                        const View<Compute<std::type_identity_t<T>>>& dtable, Accumulate accumulate) {
  using C = Compute<T>;
  check_shape("embedding_backward", "dy", dy, tokens.size(), dtable.cols);
  check_shape("embedding_backward", "dtable", dtable, tokens.vocabulary(), dtable.cols);
  if (accumulate == Accumulate::no)
    detail::for_elements(context, "embedding_backward", detail::Fill<C>{dtable, C(0)}, dtable.rows, dtable.cols);
  detail::for_elements(context, "embedding_backward",
                       detail::EmbeddingBackward<T, C>{tokens.distinct(), tokens.begins(), tokens.places(), dy, dtable},
                       tokens.distinct_count(), dtable.cols);
}

/// Backward of y_i += positions[i mod time], as meso::position_backward. Error: ≤ sequences·u·Σ|dy|.
/// Shapes: dy (sequences·time, width), dpositions (≥ time, width). Throws: std::invalid_argument on a shape mismatch.
template <class T>
void position_backward(Context& context, Index time, const View<const T>& dy,
                       const View<Compute<std::type_identity_t<T>>>& dpositions, Accumulate accumulate) {
  using C = Compute<T>;
  meso::check(time >= 1 && dy.rows % time == 0 && dpositions.rows >= time && dpositions.cols == dy.cols,
              "position_backward: dpositions are ", shape(dpositions), " and dy is ", shape(dy), " for sequences of ",
              time);
  detail::for_elements(context, "position_backward",
                       detail::PositionBackward<T, C>{time, dy, dpositions, accumulate == Accumulate::yes},
                       dpositions.rows, dpositions.cols);
}

}  // namespace meso::cuda
