#pragma once
#include <string_view>
#include <utility>

#include <meso/core/parameter.hpp>
#include <meso/cuda/context.hpp>

namespace meso::cuda {

/// A layout and one flat buffer of values in device memory, as meso::Parameters.
template <class S>
struct Parameters {
  ParameterLayout layout;
  Buffer<S> values;

  Parameters() = default;
  explicit Parameters(ParameterLayout l) : layout(std::move(l)), values(layout.size()) {}

  View<S> operator[](Index i) { return at<S>(values.data(), i); }
  View<const S> operator[](Index i) const { return at<const S>(values.data(), i); }
  View<S> operator[](std::string_view name) { return (*this)[layout.find(name)]; }
  View<const S> operator[](std::string_view name) const { return (*this)[layout.find(name)]; }

 private:
  template <class T>
  View<T> at(T* data, Index i) const {
    const ParameterInfo& info = layout[i];
    return {data + info.offset, info.rows, info.cols, info.cols};
  }
};

/// The same values on the device. The layouts are equal.
template <class S>
Parameters<S> upload(Context& context, const meso::Parameters<S>& from) {
  Parameters<S> to(from.layout);
  upload(context, from.values.data(), from.values.size(), to.values.data());
  return to;
}
/// The same values on the host; waits for them.
template <class S>
meso::Parameters<S> download(Context& context, const Parameters<S>& from) {
  meso::Parameters<S> to(from.layout);
  download(context, from.values.data(), from.values.size(), to.values.data());
  return to;
}

namespace detail {

/// Calls f(first parameter, offset, count) for runs of neighbors that are not frozen, without padding between them, and
/// that same(i, j) joins.
template <class Same, class F>
void for_runs(const ParameterLayout& layout, Same&& same, F&& f) {
  for (Index i = 0; i < layout.count();) {
    if (layout[i].frozen) {
      ++i;
      continue;
    }
    Index j = i;
    while (j + 1 < layout.count() && !layout[j + 1].frozen &&
           layout[j].offset + layout[j].size() == layout[j + 1].offset && same(i, j + 1))
      ++j;
    f(i, layout[i].offset, layout[j].offset + layout[j].size() - layout[i].offset);
    i = j + 1;
  }
}

}  // namespace detail
}  // namespace meso::cuda
