#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <meso/core/check.hpp>
#include <meso/core/eigen.hpp>
#include <meso/core/tiles.hpp>
#include <meso/stats/hidden_states.hpp>
#include <meso/stats/moments.hpp>
#include <vector>

namespace meso {

/// κ over channels and max |x| of every token (see meso::kurtosis). Shapes: x (tokens, width); out gets tokens entries.
template <class Products, class T>
void token_statistics(CpuContext<Products>& context, const View<T>& x, std::vector<TokenStatistics>& out) {
  const double u = detail::roundoff<typename View<T>::Scalar>();
  out.resize(static_cast<std::size_t>(x.rows));
  const RowTiles tiles = RowTiles::of(x.rows, x.cols);
  parallel_for(context, tiles.count(), [&](Index t, Index) {
    for (Index i = tiles[t].first; i < tiles[t].first + tiles[t].count; ++i) {
      const detail::CentralSums sums = detail::central_sums(x.row(i), x.cols);
      out[static_cast<std::size_t>(i)] = {detail::kurtosis_of(sums, u), std::ldexp(sums.top, sums.exponent)};
    }
  });
}
/// The same on the calling thread.
template <class T>
void token_statistics(const View<T>& x, std::vector<TokenStatistics>& out) {
  CpuContext<> context(1);
  token_statistics(context, x, out);
}
/// The same for any dense expression, in any storage order.
template <class Derived>
void token_statistics(const Eigen::DenseBase<Derived>& x, std::vector<TokenStatistics>& out) {
  const RowMajorMatrix<typename Derived::Scalar> values = x.derived();
  token_statistics(view(values), out);
}

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
