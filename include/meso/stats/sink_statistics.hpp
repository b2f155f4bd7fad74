#pragma once
#include <cstddef>
#include <limits>
#include <vector>

#include <meso/core/buffer.hpp>
#include <meso/core/check.hpp>
#include <meso/stats/sink_sums.hpp>

namespace meso {

/// Streaming statistics of attention weights, row by row, per (layer, head) and in total.
///
/// Of one query row with weights p over its visible keys and null mass p_∅ (0 for softmax; other normalizers may give
/// their deficit 1 − Σp), averaged over the rows of query i ≥ 2 (1-based; i ≥ 1 on option):
///   first_token_proportion            share of rows whose weight on key 1 is strictly larger than every other visible
///                                     weight. A row of zeros never counts; the null slot is no candidate.
///   first_token_proportion_with_null  the same, but the weight on key 1 must also be strictly larger than p_∅
///   nowhere_proportion                share of rows whose p_∅ is strictly larger than every visible weight
///   first_token_mass, null_mass       mean weight on key 1; mean p_∅
///   entropy                           mean of −Σ p ln p, nats, p_∅ a summand if > 0; NaN once a weight is negative
///   sink_rate                         Sink_k^ε: α_k = mean of p_ik over the queries i ≥ k of a sequence; the share of
///                                     (sequence, layer, head) with α_k > ε. Needs end_sequence() after each sequence.
/// Both proportions are needed: a head that attends nowhere still has a largest weight among near-zero ones.
/// A row that does not see key 1 (a sliding window, first_key > 0) has weight 0 there.
/// Source: Kaul et al., "From Attention to Activation", ICLR 2025, §3; the sink rate: Gu et al., arXiv 2410.10781.
/// Numerics: in double, sums compensated: a merge and one pass over the union agree to a few u.
/// Error: shares exact, masses ≤ 3u, entropy ≤ (keys + 8)·u of double, relative.
/// Getters take (layer, head), (layer) or nothing, the total over all rows, and give NaN where there are none.
class SinkStatistics {
 public:
  static constexpr Index all = -1;

  explicit SinkStatistics(SinkOptions options = {}) : options_(options) {}
  const SinkOptions& options() const { return options_; }

  /// Adds the row of one query. `weights`: a vector expression, visible keys in order, the first being key `first_key`;
  /// query and keys 0-based, layer and head any numbers ≥ 0.
  /// Throws: std::invalid_argument when layer, head, query or first_key is negative.
  template <class Weights>
  void add_row(Index layer, Index head, Index query, const Weights& weights, double null_mass, Index first_key = 0) {
    check(layer >= 0 && head >= 0 && query >= 0 && first_key >= 0, "SinkStatistics: layer ", layer, ", head ", head,
          ", query ", query, ", first key ", first_key, ": none may be negative");
    const AttentionRowStatistics row =  // of meso/stats/sinks.hpp
        attention_row_statistics(weights, null_mass, first_key, options_, scratch_);
    grow(layer, head).add(options_, query, row);
  }

  /// Adds a causal matrix of weights: row i is query i with visible keys 0 … i; what lies above the diagonal is not
  /// read. `null_masses`: a vector of one p_∅ a query. Both any dense expression.
  /// Throws: std::invalid_argument unless weights are square with as many rows as null_masses has values.
  template <class Weights, class Null>
  void add_causal(Index layer, Index head, const Weights& weights, const Null& null_masses) {
    check(weights.rows() == weights.cols() && null_masses.size() == weights.rows(), "SinkStatistics: weights are (",
          weights.rows(), ", ", weights.cols(), ") with ", null_masses.size(),
          " null masses; they must be square, with one null mass a row");
    add_causal_rows(layer, head, weights, [&](Index i) { return static_cast<double>(null_masses.derived()(i)); });
  }
  /// The same for weights without a null mass.
  template <class Weights>
  void add_causal(Index layer, Index head, const Weights& weights) {
    check(weights.rows() == weights.cols(), "SinkStatistics: weights are (", weights.rows(), ", ", weights.cols(),
          "); they must be square");
    add_causal_rows(layer, head, weights, [](Index) { return 0.0; });
  }

  /// Adds the sums over whole sequences of one (layer, head), counted with the same options.
  /// Throws: std::invalid_argument when layer or head is negative.
  void add_sums(Index layer, Index head, const SinkSums& sums) {
    check(layer >= 0 && head >= 0, "SinkStatistics: layer ", layer, ", head ", head, ": none may be negative");
    grow(layer, head).merge(sums);
  }

  /// Ends the sequence whose rows were added: every (layer, head) with rows since the last call adds one to sink_rate.
  void end_sequence() {
    for (auto& heads : cells_)
      for (SinkSums& cell : heads) cell.end_sequence(options_);
  }

  /// Adds what another accumulator has seen, except the rows of a sequence that it has not ended.
  void merge(const SinkStatistics& other) {
    for (std::size_t l = 0; l < other.cells_.size(); ++l)
      for (std::size_t h = 0; h < other.cells_[l].size(); ++h)
        grow(static_cast<Index>(l), static_cast<Index>(h)).merge(other.cells_[l][h]);
  }

  /// One more than the largest layer and head number seen.
  Index layers() const { return static_cast<Index>(cells_.size()); }
  Index heads() const {
    std::size_t most = 0;
    for (const auto& heads : cells_) most = heads.size() > most ? heads.size() : most;
    return static_cast<Index>(most);
  }
  /// Rows that the proportions and means are taken over.
  Index rows(Index layer = all, Index head = all) const { return total(layer, head).rows; }

  double first_token_proportion(Index layer = all, Index head = all) const {
    const SinkSums c = total(layer, head);
    return share(c.first, c.rows);
  }
  double first_token_proportion_with_null(Index layer = all, Index head = all) const {
    const SinkSums c = total(layer, head);
    return share(c.first_with_null, c.rows);
  }
  double nowhere_proportion(Index layer = all, Index head = all) const {
    const SinkSums c = total(layer, head);
    return share(c.nowhere, c.rows);
  }
  double first_token_mass(Index layer = all, Index head = all) const { return total(layer, head).first_mass.value(); }
  double null_mass(Index layer = all, Index head = all) const { return total(layer, head).null_mass.value(); }
  double entropy(Index layer = all, Index head = all) const { return total(layer, head).entropy.value(); }
  double sink_rate(Index layer = all, Index head = all) const {
    const SinkSums c = total(layer, head);
    return share(c.sinks, c.sequences);
  }

 private:
  template <class Weights, class Null>
  void add_causal_rows(Index layer, Index head, const Weights& weights, Null&& null_mass) {
    const auto columns = weights.derived().template cast<double>().matrix().transpose().eval();
    for (Index i = 0; i < columns.cols(); ++i) add_row(layer, head, i, columns.col(i).head(i + 1), null_mass(i));
  }

  SinkSums& grow(Index layer, Index head) {
    const std::size_t l = static_cast<std::size_t>(layer), h = static_cast<std::size_t>(head);
    if (cells_.size() <= l) cells_.resize(l + 1);
    if (cells_[l].size() <= h) cells_[l].resize(h + 1);
    return cells_[l][h];
  }
  SinkSums total(Index layer, Index head) const {
    SinkSums sum;
    for (std::size_t l = 0; l < cells_.size(); ++l) {
      if (layer != all && l != static_cast<std::size_t>(layer)) continue;
      for (std::size_t h = 0; h < cells_[l].size(); ++h)
        if (head == all || h == static_cast<std::size_t>(head)) sum.merge(cells_[l][h]);
    }
    return sum;
  }
  static double share(Index part, Index whole) {
    return whole == 0 ? std::numeric_limits<double>::quiet_NaN()
                      : static_cast<double>(part) / static_cast<double>(whole);
  }

  SinkOptions options_;
  std::vector<std::vector<SinkSums>> cells_;
  Buffer<double> scratch_;
};

}  // namespace meso
