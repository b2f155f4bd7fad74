#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <meso/core/gemm.hpp>
#include <meso/core/parameter.hpp>
#include <meso/quant/absmax.hpp>
#include <meso/quant/int8_gemm.hpp>
#include <meso/quant/quantized_matrix.hpp>
#include <vector>

namespace meso {

/// Copy of a model's parameters in which every weight of a linear layer (kind matrix) is fake-quantized: quantization
/// of weights alone. Embeddings, a tied head among them, gains, biases and normalizer parameters stay as they are.
/// Throws: std::invalid_argument on NaN or an infinity, and on bad options.
template <class S, class Scheme, class R = NearestEven>
Parameters<S> quantize_weights(const Parameters<S>& parameters, const Scheme& scheme,
                               const Granularity& granularity = per_row, const R& rounding = {}) {
  Parameters<S> quantized = parameters;
  for (Index i = 0; i < parameters.layout.count(); ++i)
    if (parameters.layout[i].kind == ParameterKind::matrix)
      map(quantized[i]) = fake_quantize(map(parameters[i]), scheme, granularity, rounding);
  return quantized;
}

/// Absmax quantization of linear layers: weights (out, in) once, activations (tokens, in) in every call.
struct AbsmaxLinear {
  Granularity weights = per_tensor;
  Granularity activations = per_tensor;
  int bits = 8;
};
/// Weights and activations per tensor.
inline constexpr AbsmaxLinear absmax8_coarse{per_tensor, per_tensor, 8};
/// Weights per output channel, activations per tensor.
inline constexpr AbsmaxLinear absmax8_moderate{per_row, per_tensor, 8};
/// Weights per output channel, activations per token.
inline constexpr AbsmaxLinear absmax8_fine{per_row, per_row, 8};

namespace detail {

/// Throws unless (weight … weight + count − 1) are parameters of one width whose outputs fill y.
template <class S>
void check_linear(const Parameters<S>& parameters, Index weight, Index count, const View<const S>& x,
                  const View<S>& y) {
  check(weight >= 0 && count >= 1 && weight + count <= parameters.layout.count(), "linear: parameters ", weight, " … ",
        weight + count - 1, " of ", parameters.layout.count());
  Index out = 0;
  for (Index i = weight; i < weight + count; ++i) {
    const ParameterInfo& w = parameters.layout[i];
    check(w.cols == x.cols, "linear: x is ", shape(x), " but ", w.name, " is (", w.rows, ", ", w.cols, ")");
    out += w.rows;
  }
  check_shape("linear", "y", y, x.rows, out);
}

/// y = x wᵀ + bias for weights weight … weight + count − 1 side by side, in floating point.
template <class Products, class S>
void float_linear(CpuContext<Products>& context, const Parameters<S>& weights, const Parameters<S>& biases,
                  Index weight, Index count, Index bias, const View<const S>& x, const View<S>& y) {
  for (Index i = 0, col = 0; i < count; ++i) {
    const View<const S> w = weights[weight + i];
    gemm<Products, S>(context, x, w, y.col_range(col, w.rows), {.transpose_b = true},
                      bias < 0 ? nullptr : biases[bias + i].data);
    col += w.rows;
  }
}

}  // namespace detail

/// Linear layers in 8-bit integers: y = s_x s_w (q_x q_wᵀ) + bias with int8 products and int32 sums.
/// A functor that a model calls for each of its linear layers. Weights of kind matrix are quantized once, on
/// construction; a linear layer on any other kind (a tied head) runs in floating point from the parameters of the call,
/// as do biases.
/// Shapes: x (tokens, in), y (tokens, Σ out); `count` weights and, unless bias < 0, `count` biases are adjacent.
/// Error: against SimulatedLinear ≤ (in + 9)·u·(Σ_k |x̂_k||ŵ_k| + |bias|): the sums of integers are exact; their
/// conversion, the two scales, their product and the bias add round 4 times, the simulation in + 5 times.
/// Throws: std::invalid_argument on a shape mismatch, on NaN or an infinity, and for a granularity whose blocks cut a
/// row, since one integer sum needs one scale.
template <class S>
class QuantizedLinear {
 public:
  QuantizedLinear(const Parameters<S>& parameters, const AbsmaxLinear& scheme) : scheme_(scheme) {
    check(scheme.weights.cols == 0 && scheme.activations.cols == 0,
          "QuantizedLinear: blocks that cut a row need SimulatedLinear");
    weights_.resize(static_cast<std::size_t>(parameters.layout.count()));
    for (Index i = 0; i < parameters.layout.count(); ++i) {
      if (parameters.layout[i].kind != ParameterKind::matrix) continue;
      Weight& w = weights_[static_cast<std::size_t>(i)];
      w.matrix = quantize(map(parameters[i]), Absmax{scheme.bits}, scheme.weights);
      w.scales.resize(w.matrix.rows());
      for (Index j = 0; j < w.matrix.rows(); ++j) w.scales[j] = w.matrix.scale(j, 0);
    }
  }

  /// Weight `i` in integers; empty unless it is of kind matrix.
  const QuantizedMatrix<S>& weight(Index i) const { return weights_[static_cast<std::size_t>(i)].matrix; }

  template <class Products>
  void operator()(CpuContext<Products>& context, const Parameters<S>& parameters, Index weight, Index count, Index bias,
                  const ConstView<S>& x, const View<S>& y) const {
    detail::check_linear<S>(parameters, weight, count, x, y);
    if (parameters.layout[weight].kind != ParameterKind::matrix) {
      detail::float_linear<Products, S>(context, parameters, parameters, weight, count, bias, x, y);
      return;
    }
    const detail::QuantizationBlocks blocks(scheme_.activations, x.rows, x.cols);
    const auto values = context.workspace.template take<std::int8_t>(x.rows * x.cols);
    const auto scales = context.workspace.template take<S>(blocks.down);
    const auto zeros = context.workspace.template take<std::int32_t>(blocks.down);
    const View<std::int8_t> q = values.view(x.rows, x.cols);
    detail::quantize_blocks<Products, S>(context, x, Absmax{scheme_.bits}, blocks, NearestEven{}, q,
                                         scales.view(blocks.down, 1), zeros.view(blocks.down, 1));
    for (Index i = 0, col = 0; i < count; ++i) {
      const Weight& w = weights_[static_cast<std::size_t>(weight + i)];
      const Index out = w.matrix.rows();
      const auto sums = context.workspace.template take<std::int32_t>(x.rows * out);
      int8_gemm(context, q, view(w.matrix.values), sums.view(x.rows, out));
      const S* b = bias < 0 ? nullptr : parameters[bias + i].data;
      const RowTiles tiles = RowTiles::of(x.rows, out);
      parallel_for(context, tiles.count(), [&](Index t, Index) {
        for (Index r = tiles[t].first; r < tiles[t].first + tiles[t].count; ++r) {
          const Array<std::int32_t> sum = array(sums.data() + r * out, out);
          Array<S> to = array(y.row(r) + col, out);
          // The smaller scale first: the sum times it overflows or underflows only where y does.
          const S scale = scales.data()[r / blocks.rows];
          to = sum.template cast<S>() * (w.scales.min)(scale) * (w.scales.max)(scale);
          if (b) to += array(b, out);
        }
      });
      col += out;
    }
  }

 private:
  struct Weight {
    QuantizedMatrix<S> matrix;
    Eigen::Array<S, Eigen::Dynamic, 1> scales;  // one an output
  };

  AbsmaxLinear scheme_;
  std::vector<Weight> weights_;
};

/// The same in floating point: fake-quantized weights and activations, multiplied by meso::gemm. Serves every
/// granularity, and is what QuantizedLinear is tested against.
/// Throws: std::invalid_argument on a shape mismatch, and on NaN or an infinity.
template <class S>
class SimulatedLinear {
 public:
  SimulatedLinear(const Parameters<S>& parameters, const AbsmaxLinear& scheme)
      : scheme_(scheme), weights_(quantize_weights(parameters, Absmax{scheme.bits}, scheme.weights)) {}

  template <class Products>
  void operator()(CpuContext<Products>& context, const Parameters<S>& parameters, Index weight, Index count, Index bias,
                  const ConstView<S>& x, const View<S>& y) const {
    detail::check_linear<S>(parameters, weight, count, x, y);
    if (parameters.layout[weight].kind != ParameterKind::matrix) {
      detail::float_linear<Products, S>(context, parameters, parameters, weight, count, bias, x, y);
      return;
    }
    const RowMajorMatrix<S> rounded =
        dequantize(quantize(context, x, Absmax{scheme_.bits}, scheme_.activations, NearestEven{}));
    detail::float_linear<Products, S>(context, weights_, parameters, weight, count, bias, view(rounded), y);
  }

 private:
  AbsmaxLinear scheme_;
  Parameters<S> weights_;
};

}  // namespace meso
