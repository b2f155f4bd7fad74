#pragma once
#include <meso/cuda/math.cuh>

namespace meso::cuda {

namespace detail {

template <class F>
struct NonFiniteElement {
  View<const F> x;
  int* flag;
  __device__ void operator()(Index i, Index j) const {
    const Compute<F> value = load(x(i, j));
    if (!(value - value == Compute<F>(0))) *flag = 1;
  }
};

}  // namespace detail

/// False if x holds a NaN or an infinity, as meso::all_finite; waits for the device.
template <class T>
bool all_finite(Context& context, const View<T>& x) {
  using F = std::remove_const_t<T>;
  const auto flag = context.workspace.template take<int>(1);
  clear(context, flag.data(), 1);
  detail::for_elements(context, "all_finite", detail::NonFiniteElement<F>{x, flag.data()}, x.rows, x.cols);
  int found = 0;
  download(context, flag.data(), 1, &found);
  return found == 0;
}

}  // namespace meso::cuda
