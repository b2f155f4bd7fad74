#pragma once
#include <algorithm>
#include <meso/core/context.hpp>
#include <string_view>

namespace meso {

/// The original basis. An optimizer with it rotates nothing and updates all parameters in one pass.
struct NoRotation {
  struct Plan {
    template <class Products, class S>
    void rotate(CpuContext<Products>&, View<const S> in, View<S> out) const {
      std::copy(in.data, in.data + in.size(), out.data);
    }
    template <class Products, class S>
    void rotate_back(CpuContext<Products>& context, View<const S> in, View<S> out) const {
      rotate(context, in, out);
    }
  };

  template <class S>
  Plan prepare(std::string_view, Index, Index) const {
    return {};
  }
};

}  // namespace meso
