#pragma once
#include <meso/core/view.hpp>

namespace meso {

/// How a model multiplies by its weights. A model calls every linear layer through such a policy, so that a quantized
/// one can take its place:
///   linear(context, parameters, weight, count, bias, x, y);
/// `count` adjacent weights, numbers weight … weight + count − 1, share the input x; their outputs stand side by side
/// in y; bias is the number of the first bias, or −1.
/// A policy may take an epilogue as a last argument, as gemm does; then the model on the CPU runs the activation in it.
/// Shapes: x (tokens, in), y (tokens, Σ out). Error: as linear_forward. Throws: std::invalid_argument on a mismatch.
struct FloatLinear {
  template <class Context, class Parameters, class S, class Device, class... Epilogue>
  void operator()(Context& context, const Parameters& parameters, Index weight, Index, Index bias,
                  const std::type_identity_t<View<const S, Device>>& x, const View<S, Device>& y,
                  const Epilogue&... epilogue) const {
    // Packed neighbors are one (Σ out, in) matrix: one product serves them all.
    const View<const S, Device> first = parameters[weight];
    const View<const S, Device> weights{first.data, y.cols, first.cols, first.stride};
    linear_forward(context, x, weights, bias < 0 ? nullptr : parameters[bias].data, y, epilogue...);
  }
};

}  // namespace meso
