#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include <meso/core/check.hpp>
#include <meso/stats/running_mean.hpp>

namespace meso {

/// Positions of a sequence as the statistics tell them apart: the first token, where outliers gather, and the rest.
enum class PositionClass { first, rest };

/// Of one token: what HiddenStateStatistics keeps of it.
struct TokenStatistics {
  double kurtosis = 0;  ///< κ over channels; NaN without variance, and with NaN or infinities
  double top = 0;       ///< max |x|
};

/// Streaming outlier statistics of the residual stream X_l (tokens × width) after block l = 1 … L.
///
/// Kurtosis: per (layer, position) the mean over sequences of the token's κ over channels (see meso::kurtosis), then
/// the mean over the positions of a class, first or rest, then the mean over layers.
/// Maximum absolute activation: max_d |x| of a token, averaged in the same way.
/// Layer 0 stands for the embedding: kept and reported, but never averaged in.
/// Source: Kaul et al., "From Attention to Activation", ICLR 2025, §3.
/// Numerics: κ two-pass in double, sums compensated: merging parts and one pass over the union agree to a few u.
/// Tokens without variance or with NaN have no κ: they are counted by `undefined`, and left out of the mean of κ.
/// Getters give NaN where there is no data.
class HiddenStateStatistics {
 public:
  /// Adds hidden states after block `layer`: a view or any dense expression, in any storage order.
  /// Shapes: x (batch·time, width), row = sequence·time + position.
  /// Throws: std::invalid_argument when layer < 0, time < 1, or rows are no multiple of time.
  template <class X>
  void add(Index layer, const X& x, Index time) {
    token_statistics(x, scratch_);  // of meso/stats/outliers.hpp
    add_tokens(layer, scratch_, time);
  }
  /// The same of a view on the device of `context`; of a GPU two numbers a token come back.
  template <class Context, class X>
  void add(Context& context, Index layer, const X& x, Index time) {
    token_statistics(context, x, scratch_);
    add_tokens(layer, scratch_, time);
  }
  /// The same from what is kept of each token.
  void add_tokens(Index layer, std::span<const TokenStatistics> tokens, Index time) {
    const Index rows = static_cast<Index>(tokens.size());
    check(layer >= 0, "HiddenStateStatistics: layer ", layer, " is negative");
    check(time >= 1 && rows % time == 0, "HiddenStateStatistics: x has ", rows,
          " rows, which are no multiple of the sequence length ", time);
    if (rows == 0) return;
    grow(layer, time);
    Layer& to = layers_[static_cast<std::size_t>(layer)];
    for (Index row = 0; row < rows; ++row) {
      const TokenStatistics& token = tokens[static_cast<std::size_t>(row)];
      const Index position = row % time;
      Cell& cell = to.positions[static_cast<std::size_t>(position)];
      Extremes& extremes = to.extremes[position == 0 ? 0 : 1];
      cell.top.add(token.top);
      raise(extremes.top, token.top);
      if (std::isnan(token.kurtosis)) {
        ++extremes.undefined;
      } else {
        cell.kurtosis.add(token.kurtosis);
        raise(extremes.kurtosis, token.kurtosis);
      }
    }
  }

  /// Adds what another accumulator has seen.
  void merge(const HiddenStateStatistics& other) {
    for (std::size_t l = 0; l < other.layers_.size(); ++l) {
      const Layer& from = other.layers_[l];
      grow(static_cast<Index>(l), static_cast<Index>(from.positions.size()));
      Layer& to = layers_[l];
      for (std::size_t i = 0; i < from.positions.size(); ++i) {
        to.positions[i].kurtosis.merge(from.positions[i].kurtosis);
        to.positions[i].top.merge(from.positions[i].top);
      }
      for (std::size_t c = 0; c < 2; ++c) {
        to.extremes[c].undefined += from.extremes[c].undefined;
        raise(to.extremes[c].kurtosis, from.extremes[c].kurtosis);
        raise(to.extremes[c].top, from.extremes[c].top);
      }
    }
  }

  /// L, the largest layer number seen; 0 if none.
  Index layers() const { return std::max<Index>(0, static_cast<Index>(layers_.size()) - 1); }
  /// Number of positions of the longest sequence seen in this layer.
  Index positions(Index layer) const { return find(layer) ? static_cast<Index>(find(layer)->positions.size()) : 0; }

  /// Kurtosis, averaged over layers 1 … L; of one layer; of one (layer, 0-based position).
  double kurtosis(PositionClass c) const {
    return over_layers([&](Index l) { return kurtosis(l, c); });
  }
  double kurtosis(Index layer, PositionClass c) const { return over_positions(layer, c, &Cell::kurtosis); }
  double kurtosis_at(Index layer, Index position) const { return at(layer, position, &Cell::kurtosis); }
  /// κ − 3.
  double excess_kurtosis(PositionClass c) const { return kurtosis(c) - 3; }
  double excess_kurtosis(Index layer, PositionClass c) const { return kurtosis(layer, c) - 3; }

  /// Mean maximum absolute activation: averaged over layers 1 … L; of one layer; of one (layer, 0-based position).
  double max_abs(PositionClass c) const {
    return over_layers([&](Index l) { return max_abs(l, c); });
  }
  double max_abs(Index layer, PositionClass c) const { return over_positions(layer, c, &Cell::top); }
  double max_abs_at(Index layer, Index position) const { return at(layer, position, &Cell::top); }

  /// Largest κ of a single token and largest |x|, in one layer.
  double largest_kurtosis(Index layer, PositionClass c) const { return extreme(layer, c, &Extremes::kurtosis); }
  double largest_abs(Index layer, PositionClass c) const { return extreme(layer, c, &Extremes::top); }

  /// Tokens seen, and those among them that have no kurtosis, in one layer.
  Index tokens(Index layer, PositionClass c) const {
    Index sum = 0;
    if (const Layer* l = find(layer))
      for (std::size_t i = begin(c); i < end(*l, c); ++i) sum += l->positions[i].top.count;
    return sum;
  }
  Index undefined(Index layer, PositionClass c) const { return find(layer) ? find(layer)->of(c).undefined : 0; }

 private:
  static constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  struct Cell {
    RunningMean kurtosis, top;
  };
  struct Extremes {
    Index undefined = 0;
    double kurtosis = -1, top = -1;  // −1: none
  };
  struct Layer {
    std::vector<Cell> positions;
    Extremes extremes[2];
    const Extremes& of(PositionClass c) const { return extremes[c == PositionClass::first ? 0 : 1]; }
  };

  void grow(Index layer, Index time) {
    const std::size_t l = static_cast<std::size_t>(layer), t = static_cast<std::size_t>(time);
    if (layers_.size() <= l) layers_.resize(l + 1);
    if (layers_[l].positions.size() < t) layers_[l].positions.resize(t);
  }
  const Layer* find(Index layer) const {
    const bool seen = layer >= 0 && layer < static_cast<Index>(layers_.size());
    return seen ? &layers_[static_cast<std::size_t>(layer)] : nullptr;
  }
  static std::size_t begin(PositionClass c) { return c == PositionClass::first ? 0 : 1; }
  static std::size_t end(const Layer& l, PositionClass c) {
    return c == PositionClass::first ? std::min<std::size_t>(1, l.positions.size()) : l.positions.size();
  }
  static void raise(double& largest, double x) {
    if (x > largest || std::isnan(x)) largest = x;
  }

  template <class F>
  double over_layers(F&& f) const {
    RunningMean mean;
    for (Index l = 1; l <= layers(); ++l) {
      if (!find(l)->positions.empty()) mean.add(f(l));
    }
    return mean.value();
  }
  double over_positions(Index layer, PositionClass c, RunningMean Cell::*what) const {
    RunningMean mean;
    if (const Layer* l = find(layer))
      for (std::size_t i = begin(c); i < end(*l, c); ++i)
        if ((l->positions[i].*what).count > 0) mean.add((l->positions[i].*what).value());
    return mean.value();
  }
  double at(Index layer, Index position, RunningMean Cell::*what) const {
    if (position < 0 || position >= positions(layer)) return nan;
    return (find(layer)->positions[static_cast<std::size_t>(position)].*what).value();
  }
  double extreme(Index layer, PositionClass c, double Extremes::*what) const {
    const Layer* l = find(layer);
    return !l || l->of(c).*what < 0 ? nan : l->of(c).*what;
  }

  std::vector<Layer> layers_;
  std::vector<TokenStatistics> scratch_;
};

}  // namespace meso
