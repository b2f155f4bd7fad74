#pragma once
#include <string>

#include <meso/core/parameter.hpp>
#include <meso/cuda/math.cuh>

namespace meso::cuda {

/// LayerNorm on the device: equation, shapes and error of meso::LayerNorm, sums in the order of the block.
struct LayerNorm {
  double epsilon = 1e-5;

  static constexpr bool on_device = true, centered = true, single = false;
  static constexpr Index saved_per_row = 2;
  Index parameter_count(Index width) const { return 2 * width; }
  Index declare(ParameterLayout& layout, const std::string& prefix, Index width) const {
    const Index first = layout.add(prefix + ".gain", 1, width, ParameterKind::gain);
    layout.add(prefix + ".bias", 1, width, ParameterKind::bias, ParameterLayout::Placement::packed);
    return first;
  }
};

/// RMSNorm with a gain a channel on the device, as meso::RmsNorm.
struct RmsNorm {
  double epsilon = 1e-5;

  static constexpr bool on_device = true, centered = false, single = false;
  static constexpr Index saved_per_row = 1;
  Index parameter_count(Index width) const { return width; }
  Index declare(ParameterLayout& layout, const std::string& prefix, Index width) const {
    return layout.add(prefix + ".gain", 1, width, ParameterKind::gain);
  }
};

/// RMSNorm with one gain on the device, as meso::RmsNormSingle.
struct RmsNormSingle {
  double epsilon = 1e-5;

  static constexpr bool on_device = true, centered = false, single = true;
  static constexpr Index saved_per_row = 1;
  Index parameter_count(Index) const { return 1; }
  Index declare(ParameterLayout& layout, const std::string& prefix, Index) const {
    return layout.add(prefix + ".gain", 1, 1, ParameterKind::gain);
  }
};

namespace detail {

template <class N, class T>
__global__ void __launch_bounds__(256)
    norm_forward_kernel(Compute<T> epsilon, const T* theta, View<const T> x, View<T> y, View<Compute<T>> saved) {
  using C = Compute<T>;
  MESO_DYNAMIC_SHARED(memory);
  C* const scratch = reinterpret_cast<C*>(memory);
  const Index i = static_cast<Index>(blockIdx.x), n = x.cols, step = static_cast<Index>(blockDim.x),
              start = static_cast<Index>(threadIdx.x);
  C mean = C(0);
  if constexpr (N::centered) {
    for (Index j = start; j < n; j += step) mean += load(x(i, j));
    mean = block_reduce(mean, scratch, Sum{}) / static_cast<C>(n);
  }
  C square = C(0);
  for (Index j = start; j < n; j += step) {
    const C d = load(x(i, j)) - mean;
    square += d * d;
  }
  square = block_reduce(square, scratch, Sum{}) / static_cast<C>(n);
  const C r = C(1) / root(square + epsilon);
  if (start == 0) {
    if constexpr (N::centered) saved(i, 0) = mean;
    saved(i, N::centered ? 1 : 0) = r;
  }
  for (Index j = start; j < n; j += step) {
    const C normal = (load(x(i, j)) - mean) * r;
    if constexpr (N::centered)
      store(y(i, j), normal * load(theta[j]) + load(theta[n + j]));
    else
      store(y(i, j), normal * load(theta[N::single ? 0 : j]));
  }
}

/// dx; for a single gain also gain_terms[i] = r·Σ_j dy·x.
template <class N, class T>
__global__ void __launch_bounds__(256)
    norm_backward_kernel(const T* theta, View<const T> x, View<const Compute<T>> saved, View<const T> dy,
                         View<const T> residual, View<T> dx, Compute<T>* gain_terms) {
  using C = Compute<T>;
  MESO_DYNAMIC_SHARED(memory);
  C* const scratch = reinterpret_cast<C*>(memory);
  const Index i = static_cast<Index>(blockIdx.x), n = x.cols, step = static_cast<Index>(blockDim.x),
              start = static_cast<Index>(threadIdx.x);
  const C mean = N::centered ? saved(i, 0) : C(0), r = saved(i, N::centered ? 1 : 0);
  const auto gain = [&](Index j) { return load(theta[N::single ? 0 : j]); };
  // y = γ ∘ x̂ + β, x̂ = r·(x − mean), g = γ ∘ dy
  C g_sum = C(0), dot = C(0);
  for (Index j = start; j < n; j += step) {
    const C g = N::single ? load(dy(i, j)) : gain(j) * load(dy(i, j));
    g_sum += g;
    dot += g * (load(x(i, j)) - mean);
  }
  if constexpr (N::centered) g_sum = block_reduce(g_sum, scratch, Sum{}) / static_cast<C>(n);
  dot = block_reduce(dot, scratch, Sum{});
  if constexpr (N::single) {
    if (start == 0) gain_terms[i] = r * dot;
    dot *= gain(0);
  }
  const C slope = r * r * dot / static_cast<C>(n);
  for (Index j = start; j < n; j += step) {
    const C g = gain(j) * load(dy(i, j));
    C d = r * (g - (N::centered ? g_sum : C(0)) - (load(x(i, j)) - mean) * slope);
    if (residual.data) d += load(residual(i, j));
    store(dx(i, j), d);
  }
}

/// dγ = dy ∘ x̂, and dβ = dy for a centered norm.
template <class N, class T>
struct NormGainTerms {
  View<const T> x, dy;
  View<const Compute<T>> saved;

  __device__ void operator()(Index i, Index j, Compute<T> (&out)[N::centered ? 2 : 1]) const {
    using C = Compute<T>;
    const C mean = N::centered ? saved(i, 0) : C(0), r = saved(i, N::centered ? 1 : 0), d = load(dy(i, j));
    out[0] = d * (load(x(i, j)) - mean) * r;
    if constexpr (N::centered) out[1] = d;
  }
};

/// total = or += Σ values, one block, in a fixed order.
template <class C>
__global__ void __launch_bounds__(256) sum_kernel(const C* values, Index count, C* total, bool accumulate) {
  MESO_DYNAMIC_SHARED(memory);
  C* const scratch = reinterpret_cast<C*>(memory);
  C sum = C(0);
  for (Index i = static_cast<Index>(threadIdx.x); i < count; i += 256) sum += values[i];
  sum = block_reduce(sum, scratch, Sum{});
  if (threadIdx.x == 0) *total = accumulate ? *total + sum : sum;
}

}  // namespace detail

/// Gains 1, biases 0, on the host. Shapes: theta (1, parameter_count(width)), the gains first.
template <class N, class S>
requires(N::on_device) void initialize_norm(const N&, Index width, const meso::View<S>& theta) {
  for (Index j = 0; j < theta.cols; ++j) theta(0, j) = j < (N::single ? 1 : width) ? S(1) : S(0);
}

/// y = norm(x) for every row, as meso::norm_forward: one block a row, two passes.
/// Shapes: x, y (tokens, width), saved (tokens, N::saved_per_row), theta parameter_count(width) values.
/// Error: that of the CPU's policy, n/2 replaced by n/threads + log₂ threads, and one rounding to T.
/// Throws: std::invalid_argument on a shape mismatch.
template <class N, class T>
void norm_forward(Context& context, const N& norm, const std::type_identity_t<T>* theta, const ConstView<T>& x,
                  const View<T>& y, const View<Compute<T>>& saved) {
  check_same_shape<const T, T>("norm_forward", "x", x, "y", y);
  check_shape("norm_forward", "saved", saved, x.rows, N::saved_per_row);
  launch(context, "norm_forward", {{blocks_for(x.rows, 1)}, {detail::row_threads(x.cols)}, sizeof(Compute<T>) * 32},
         detail::norm_forward_kernel<N, T>, static_cast<Compute<T>>(norm.epsilon), theta, x, y, saved);
}

/// dx = residual + ∂/∂x of y = norm(x); dtheta = or += the gradient of the parameters, as meso::norm_backward.
/// `residual` may be an empty view, and may be dx.
/// Numerics: dtheta is summed over chunks of 128 rows, then over the chunks in order: the same bits in every run.
/// Throws: std::invalid_argument on a shape mismatch.
template <class N, class T>
void norm_backward(Context& context, const N&, const std::type_identity_t<T>* theta, const ConstView<T>& x,
                   const View<const Compute<std::type_identity_t<T>>>& saved, const ConstView<T>& dy,
                   const ConstView<T>& residual, const View<T>& dx, Compute<std::type_identity_t<T>>* dtheta,
                   Accumulate accumulate) {
  using C = Compute<T>;
  check_same_shape<const T, const T>("norm_backward", "x", x, "dy", dy);
  check_same_shape<const T, T>("norm_backward", "x", x, "dx", dx);
  check_shape("norm_backward", "saved", saved, x.rows, N::saved_per_row);
  if (residual.data) check_same_shape<const T, const T>("norm_backward", "x", x, "residual", residual);
  // Before dx, which may be where dy or the residual lies.
  if constexpr (!N::single)
    detail::sum_columns<N::centered ? 2 : 1, C>(context, "norm_backward", detail::NormGainTerms<N, T>{x, dy, saved},
                                                x.rows, x.cols, dtheta, accumulate);
  const auto terms = context.workspace.template take<C>(N::single ? x.rows : 0);
  launch(context, "norm_backward", {{blocks_for(x.rows, 1)}, {detail::row_threads(x.cols)}, sizeof(C) * 32},
         detail::norm_backward_kernel<N, T>, theta, x, saved, dy, residual, dx, terms.data());
  if constexpr (N::single)
    launch(context, "norm_backward", {{1}, {256}, sizeof(C) * 32}, detail::sum_kernel<C>, terms.data(), x.rows, dtheta,
           accumulate == Accumulate::yes);
}

}  // namespace meso::cuda
