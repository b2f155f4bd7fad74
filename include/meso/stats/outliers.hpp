#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <meso/core/check.hpp>
#include <meso/core/eigen.hpp>
#include <meso/stats/moments.hpp>
#include <vector>

namespace meso {

/// Positions of a sequence as the statistics tell them apart: the first token, where outliers gather, and the rest.
enum class PositionClass { first, rest };

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
  /// Adds hidden states after block `layer`. Shapes: x (batch·time, width), row = sequence·time + position.
  /// Throws: std::invalid_argument when layer < 0, time < 1, or rows are no multiple of time.
  template <class T>
  void add(Index layer, const View<T>& x, Index time) {
    check(layer >= 0, "HiddenStateStatistics: layer ", layer, " is negative");
    check(time >= 1 && x.rows % time == 0, "HiddenStateStatistics: x is ", shape(x),
          ", whose rows are no multiple of the sequence length ", time);
    if (x.rows == 0) return;
    grow(layer, time);
    Layer& to = layers_[static_cast<std::size_t>(layer)];
    const double u = detail::roundoff<typename View<T>::Scalar>();
    for (Index row = 0; row < x.rows; ++row) {
      const Index position = row % time;
      const detail::CentralSums sums = detail::central_sums(x.row(row), x.cols);
      const double kappa = detail::kurtosis_of(sums, u);
      Cell& cell = to.positions[static_cast<std::size_t>(position)];
      Extremes& extremes = to.extremes[position == 0 ? 0 : 1];
      cell.top.add(sums.top);
      raise(extremes.top, sums.top);
      if (std::isnan(kappa)) {
        ++extremes.undefined;
      } else {
        cell.kurtosis.add(kappa);
        raise(extremes.kurtosis, kappa);
      }
    }
  }
  /// The same for any dense expression, in any storage order.
  template <class Derived>
  void add(Index layer, const Eigen::DenseBase<Derived>& x, Index time) {
    const RowMajorMatrix<typename Derived::Scalar> values = x.derived();
    add(layer, view(values), time);
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
};

/// One coefficient that stands out.
struct MassiveActivation {
  Index row = 0;  ///< position
  Index col = 0;  ///< channel
  double value = 0;
};

/// Coefficients with |x| > limit and |x| > ratio·median|x| of this hidden state, in row-major order.
/// Source: Sun et al., "Massive Activations in Large Language Models" (2024): limit 100, ratio 1000.
/// Shapes: x (tokens, width), any dense expression. The median of an even number is the mean of the middle two.
template <class Derived>
std::vector<MassiveActivation> massive_activations(const Eigen::DenseBase<Derived>& x, double limit = 100,
                                                   double ratio = 1000) {
  const RowMajorMatrix<double> values = x.derived().template cast<double>().matrix();
  std::vector<MassiveActivation> found;
  if (values.size() == 0) return found;
  std::vector<double> sorted(static_cast<std::size_t>(values.size()));
  for (Index i = 0; i < values.size(); ++i) sorted[static_cast<std::size_t>(i)] = std::abs(values.data()[i]);
  const auto middle = sorted.begin() + values.size() / 2;
  std::nth_element(sorted.begin(), middle, sorted.end());
  double median = *middle;
  if (values.size() % 2 == 0) median = (median + *std::max_element(sorted.begin(), middle)) / 2;
  for (Index i = 0; i < values.rows(); ++i)
    for (Index j = 0; j < values.cols(); ++j)
      if (std::abs(values(i, j)) > limit && std::abs(values(i, j)) > ratio * median)
        found.push_back({i, j, values(i, j)});
  return found;
}

/// Thresholds of OutlierChannels.
struct OutlierChannelOptions {
  double magnitude = 6.0;        ///< an outlier has |x| ≥ magnitude
  double layer_share = 0.25;     ///< share of layers in which the channel must have one
  double position_share = 0.06;  ///< share of all (layer, token) pairs in which it must have one
};

/// Outlier channels of a model: those with |x| ≥ 6 in at least 25 % of the layers and 6 % of all tokens of all layers.
/// Source: Dettmers et al., "LLM.int8()" (2022), §4.
class OutlierChannels {
 public:
  explicit OutlierChannels(OutlierChannelOptions options = {}) : options_(options) {}

  /// Adds hidden states of one layer ≥ 0. Shapes: x (tokens, width), any dense expression.
  /// Throws: std::invalid_argument on a negative layer or when the width differs from an earlier one.
  template <class Derived>
  void add(Index layer, const Eigen::DenseBase<Derived>& x) {
    check(layer >= 0, "OutlierChannels: layer ", layer, " is negative");
    grow(layer, x.cols());
    Layer& to = layers_[static_cast<std::size_t>(layer)];
    const RowMajorMatrix<double> values = x.derived().template cast<double>().matrix();
    to.tokens += values.rows();
    to.hits += (values.array().abs() >= options_.magnitude).template cast<Index>().colwise().sum().transpose();
  }
  void merge(const OutlierChannels& other) {
    for (std::size_t l = 0; l < other.layers_.size(); ++l) {
      if (other.layers_[l].tokens == 0) continue;
      grow(static_cast<Index>(l), other.width_);
      layers_[l].tokens += other.layers_[l].tokens;
      layers_[l].hits += other.layers_[l].hits;
    }
  }

  /// Share of layers, and of (layer, token) pairs, in which the channel has an outlier.
  double layer_share(Index channel) const {
    Index layers = 0, with = 0;
    for (const Layer& l : layers_) {
      layers += l.tokens > 0;
      with += l.tokens > 0 && l.hits[channel] > 0;
    }
    return static_cast<double>(with) / static_cast<double>(layers);
  }
  double position_share(Index channel) const {
    Index tokens = 0, with = 0;
    for (const Layer& l : layers_) {
      tokens += l.tokens;
      with += l.tokens > 0 ? l.hits[channel] : 0;
    }
    return static_cast<double>(with) / static_cast<double>(tokens);
  }
  /// The outlier channels, ascending.
  std::vector<Index> channels() const {
    std::vector<Index> found;
    for (Index j = 0; j < width_; ++j)
      if (layer_share(j) >= options_.layer_share && position_share(j) >= options_.position_share) found.push_back(j);
    return found;
  }

 private:
  struct Layer {
    Index tokens = 0;
    Eigen::Array<Index, Eigen::Dynamic, 1> hits;
  };
  void grow(Index layer, Index width) {
    check(width_ == 0 || width == width_, "OutlierChannels: width ", width, " after width ", width_);
    width_ = width;
    if (static_cast<Index>(layers_.size()) <= layer) layers_.resize(static_cast<std::size_t>(layer) + 1);
    Layer& l = layers_[static_cast<std::size_t>(layer)];
    if (l.hits.size() == 0) l.hits.setZero(width);
  }

  OutlierChannelOptions options_;
  Index width_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace meso
