#pragma once
#include <meso/cuda/math.cuh>

namespace meso::cuda {

/// The orthogonal map of one axis of length d, p = 2^⌊log₂ d⌋, as meso::HadamardRotation has it: signs (±1/√p) and H_p on
/// [0, p), and if p < d the same again, with other signs, on [d − p, d).
template <class C>
struct HadamardAxis {
  Index size = 0;
  Index power = 1;
  Buffer<C> signs;  ///< `power` of the first pass, and `power` of the second if there is one
};

namespace detail {

inline constexpr Index hadamard_factor = 1024, hadamard_tile = 4096;

/// Where the elements of many vectors lie: element e of vector a is at a·vector_stride + e·element_stride. One launch
/// multiplies by I ⊗ H_factor ⊗ I: it combines the elements e that differ in (e / step) mod factor.
struct HadamardShape {
  Index vectors, vector_stride, element_stride, power, factor, step, lanes;
};

template <class C>
__global__ void __launch_bounds__(256)
    hadamard_kernel(const C* in, C* out, HadamardShape s, const C* before, const C* after) {
  MESO_DYNAMIC_SHARED(memory);
  C* const x = reinterpret_cast<C*>(memory);  // factor × lanes
  const Index groups = s.power / s.factor, total = s.vectors * groups;
  const Index first = static_cast<Index>(blockIdx.x) * s.lanes, thread = static_cast<Index>(threadIdx.x);
  const Index lanes = first + s.lanes < total ? s.lanes : total - first;
  const bool columns = s.vector_stride == 1;  // neighbors in memory are neighboring vectors, else neighboring elements
  // The element number of entry t of the combination that lane l works on, and its place.
  const auto element = [&](Index l, Index t) {
    const Index g = columns ? (first + l) / s.vectors : (first + l) % groups;
    return g / s.step * (s.step * s.factor) + t * s.step + g % s.step;
  };
  const auto place = [&](Index l, Index e) {
    const Index a = columns ? (first + l) % s.vectors : (first + l) / groups;
    return a * s.vector_stride + e * s.element_stride;
  };
  const bool lane_first = columns || s.step > 1;
  const auto each = [&](auto&& f) {
    for (Index k = thread; k < s.factor * lanes; k += 256) {
      const Index l = lane_first ? k % lanes : k / s.factor, t = lane_first ? k / lanes : k % s.factor;
      f(l, t, element(l, t));
    }
  };
  each([&](Index l, Index t, Index e) {
    const C value = in[place(l, e)];
    x[t * s.lanes + l] = before ? value * before[e] : value;
  });
  for (Index h = 1; h < s.factor; h *= 2) {
    __syncthreads();
    for (Index k = thread; k < s.factor / 2 * lanes; k += 256) {
      const Index l = k % lanes, b = k / lanes, t = b / h * (2 * h) + b % h;
      C& low = x[t * s.lanes + l];
      C& high = x[(t + h) * s.lanes + l];
      const C sum = low + high, difference = low - high;
      low = sum;
      high = difference;
    }
  }
  __syncthreads();
  each([&](Index l, Index t, Index e) {
    const C value = x[t * s.lanes + l];
    out[place(l, e)] = after ? value * after[e] : value;
  });
}

/// out = after ∘ H_p (before ∘ in) for every vector; factors of at most 1,024 in shared memory, one after another.
template <class C>
void hadamard(Context& context, const C* in, C* out, Index vectors, Index vector_stride, Index element_stride,
              Index power, const C* before, const C* after) {
  Index step = 1;
  do {
    HadamardShape s{vectors, vector_stride, element_stride, power, power / step, step, 1};
    if (s.factor > hadamard_factor) s.factor = hadamard_factor;
    const Index total = vectors * (power / s.factor), most = hadamard_tile / s.factor;
    s.lanes = most < 1 ? 1 : most > 32 ? 32 : most;
    const bool last = step * s.factor == power;
    launch(context, "hadamard",
           {{blocks_for(total, s.lanes)}, {256}, sizeof(C) * static_cast<std::size_t>(s.factor * s.lanes)},
           hadamard_kernel<C>, in, out, s, step == 1 ? before : nullptr, last ? after : nullptr);
    in = out;
    step *= s.factor;
  } while (step < power);
}

template <class C>
void hadamard_axis(Context& context, const HadamardAxis<C>& axis, bool back, const C* in, C* out, Index vectors,
                   Index vector_stride, Index element_stride) {
  const C* const signs = axis.signs.data();
  const Index rest = axis.size - axis.power, shift = rest * element_stride;
  if (!back) {
    hadamard<C>(context, in, out, vectors, vector_stride, element_stride, axis.power, signs, nullptr);
    if (rest > 0)
      hadamard<C>(context, out + shift, out + shift, vectors, vector_stride, element_stride, axis.power,
                  signs + axis.power, nullptr);
  } else {
    if (rest > 0) {
      hadamard<C>(context, out + shift, out + shift, vectors, vector_stride, element_stride, axis.power, nullptr,
                  signs + axis.power);
    }
    hadamard<C>(context, out, out, vectors, vector_stride, element_stride, axis.power, nullptr, signs);
  }
}

}  // namespace detail

/// out = Q_row in Q_colᵀ, or with `back` Q_rowᵀ in Q_col, as the plan of meso::HadamardRotation.
/// Shapes: in, out (rows, cols), contiguous; out may be in. A vector (1, n) has only its axis of n.
/// Error: ≤ (2·log₂ rows + 2·log₂ cols + 8)·u·‖in‖_F element-wise.
template <class C>
void hadamard_rotate(Context& context, const HadamardAxis<C>& rows, const HadamardAxis<C>& cols, bool back,
                     const ConstView<C>& in, const View<C>& out) {
  check_same_shape<const C, C>("hadamard_rotate", "in", in, "out", out);
  check_shape("hadamard_rotate", "in", in, rows.size, cols.size);
  if (in.data != out.data) copy(context, in.data, in.size(), out.data);
  detail::hadamard_axis<C>(context, cols, back, out.data, out.data, in.rows, in.cols, 1);
  if (in.rows > 1) detail::hadamard_axis<C>(context, rows, back, out.data, out.data, in.cols, 1, in.cols);
}

}  // namespace meso::cuda
