#pragma once
#include <meso/core/parameter.hpp>
#include <meso/layer/linear.hpp>

namespace meso {

/// How a model multiplies by its weights. A model calls every linear layer through such a policy, so that a quantized
/// one can take its place:
///   linear(context, parameters, weight, count, bias, x, y);
/// `count` adjacent weights, numbers weight … weight + count − 1, share the input x; their outputs stand side by side
/// in y; bias is the number of the first bias, or −1.
/// A policy may take an epilogue as a last argument, as gemm does; then the model runs the activation in it.
/// Shapes: x (tokens, in), y (tokens, Σ out). Error: as linear_forward. Throws: std::invalid_argument on a mismatch.
struct FloatLinear {
  template <class Products, class S, class Epilogue = NoEpilogue>
  void operator()(CpuContext<Products>& context, const Parameters<S>& parameters, Index weight, Index count, Index bias,
                  const ConstView<S>& x, const View<S>& y, const Epilogue& epilogue = {}) const {
    // Packed neighbors are one (Σ out, in) matrix: one product serves them all.
    const View<const S> first = parameters[weight];
    linear_forward<Products, S>(context, x, {first.data, y.cols, first.cols, first.stride},
                                bias < 0 ? nullptr : parameters[bias].data, y, epilogue);
    (void)count;
  }
};

}  // namespace meso
