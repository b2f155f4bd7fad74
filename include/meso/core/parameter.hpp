#pragma once
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <meso/core/buffer.hpp>
#include <meso/core/check.hpp>

namespace meso {

/// What a parameter is. Weight decay and rotation go by kind, and so does quantization (matrix alone).
enum class ParameterKind { matrix, embedding, gain, bias, normalizer };

/// One named tensor inside the flat buffer: rows × cols, row-major, starting at `offset` elements.
/// Weights are (out, in). Vectors are 1 × n.
struct ParameterInfo {
  std::string name;
  Index rows = 0;
  Index cols = 0;
  Index offset = 0;
  ParameterKind kind = ParameterKind::matrix;
  bool frozen = false;               ///< an optimizer leaves it and its moments alone
  double learning_rate_scale = 1.0;  ///< multiplies the optimizer's learning rate: a learning rate per group

  Index size() const { return rows * cols; }
};

/// Names, shapes and offsets shared by weights, gradients and moments, each one contiguous buffer of `size()`.
/// Every parameter starts on a 64-byte boundary (16 elements), unless it is packed behind its predecessor so that one
/// matrix product can serve both. Padding stays zero.
class ParameterLayout {
 public:
  enum class Placement { aligned, packed };

  /// Appends a parameter and returns its number. Its name stays what it is here: find and prefixes go by it.
  /// Throws std::invalid_argument on a duplicate name, an empty shape, and one that no Index counts the elements of.
  Index add(std::string name, Index rows, Index cols, ParameterKind kind, Placement placement = Placement::aligned) {
    check(rows > 0 && cols > 0, "parameter ", name, ": shape (", rows, ", ", cols, ") is empty");
    constexpr Index step = 16, most = (std::numeric_limits<Index>::max)() - 2 * step;
    check(rows <= most / cols && rows * cols <= most - end_, "parameter ", name, ": shape (", rows, ", ", cols,
          ") behind ", end_, " elements has too many to count, expected at most ", most, " in all");
    check(numbers_.emplace(name, count()).second, "parameter ", name, " is declared twice");
    const Index offset = placement == Placement::packed ? end_ : (end_ + step - 1) / step * step;
    parameters_.push_back({std::move(name), rows, cols, offset, kind});
    end_ = offset + rows * cols;
    return count() - 1;
  }

  Index count() const { return static_cast<Index>(parameters_.size()); }
  /// Elements of a buffer with this layout, padding included.
  Index size() const { return (end_ + 15) / 16 * 16; }
  /// Elements without padding: the number that papers quote.
  Index trainable() const {
    Index sum = 0;
    for (const ParameterInfo& p : parameters_) sum += p.frozen ? 0 : p.size();
    return sum;
  }

  const ParameterInfo& operator[](Index i) const { return parameters_[static_cast<std::size_t>(i)]; }
  ParameterInfo& operator[](Index i) { return parameters_[static_cast<std::size_t>(i)]; }

  /// Throws std::invalid_argument if there is no such name.
  Index find(std::string_view name) const {
    const auto found = numbers_.find(name);
    check(found != numbers_.end(), "there is no parameter named ", name);
    return found->second;
  }
  const ParameterInfo& operator[](std::string_view name) const { return (*this)[find(name)]; }
  ParameterInfo& operator[](std::string_view name) { return (*this)[find(name)]; }

  /// Sets `frozen` on every parameter whose name begins with `prefix`; returns how many.
  Index freeze(std::string_view prefix, bool frozen = true) {
    return for_prefix(prefix, [&](ParameterInfo& p) { p.frozen = frozen; });
  }
  /// Multiplies the learning rate of every parameter whose name begins with `prefix`; returns how many.
  Index scale_learning_rate(std::string_view prefix, double scale) {
    return for_prefix(prefix, [&](ParameterInfo& p) { p.learning_rate_scale = scale; });
  }

  auto begin() const { return parameters_.begin(); }
  auto end() const { return parameters_.end(); }

 private:
  template <class F>
  Index for_prefix(std::string_view prefix, F&& f) {
    Index n = 0;
    for (auto at = numbers_.lower_bound(prefix); at != numbers_.end(); ++at, ++n) {
      if (std::string_view(at->first).substr(0, prefix.size()) != prefix) break;
      f((*this)[at->second]);
    }
    return n;
  }

  std::vector<ParameterInfo> parameters_;
  std::map<std::string, Index, std::less<>> numbers_;  // in the order of names, so that a prefix is one run
  Index end_ = 0;
};

/// View of parameter `info` inside a flat buffer that starts at `data`.
template <class T>
View<T> parameter_view(T* data, const ParameterInfo& info) {
  return {data + info.offset, info.rows, info.cols, info.cols};
}

/// A layout and one flat buffer of values: a model's weights, or gradients.
template <class S>
struct Parameters {
  ParameterLayout layout;
  Buffer<S> values;

  Parameters() = default;
  explicit Parameters(ParameterLayout l) : layout(std::move(l)), values(layout.size()) {}

  View<S> operator[](Index i) { return parameter_view(values.data(), layout[i]); }
  View<const S> operator[](Index i) const { return parameter_view(values.data(), layout[i]); }
  View<S> operator[](std::string_view name) { return (*this)[layout.find(name)]; }
  View<const S> operator[](std::string_view name) const { return (*this)[layout.find(name)]; }
};

}  // namespace meso
