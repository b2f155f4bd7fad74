#pragma once
#include <meso/core/exp.hpp>
#include <meso/layer/activation.hpp>

namespace meso {

/// SwiGLU, the gated activation of Llama's MLP: y = SiLU(gate) ∘ up, SiLU(g) = g·σ(g).
/// Source: Shazeer, "GLU Variants Improve Transformer" (2020), arXiv 2002.05202.
/// Stable form: σ(g) = 1/(1 + e^{−g}); e^{−g} overflows to ∞ where σ underflows to 0.
/// Backward: y = g·σ(g) ∘ up: dup = dy ∘ g·σ(g), dgate = dy ∘ up ∘ σ(g)·(1 + g·(1 − σ(g))).
/// Error: relative, ≤ 10u, y and dup; dgate: ≤ |dy·up|·σ(g)·(10 + 15|g|)·u. Gate −∞ gives NaN, as −∞·0 does.
struct SwiGlu {
  static constexpr bool gated = true;

  template <class S>
  void forward(ConstArray<S> gate, ConstArray<S> up, Array<S> y) const {
    y = gate / (S(1) + flushed_exp(-gate)) * up;
  }
  template <class S>
  void backward(ConstArray<S> gate, ConstArray<S> up, ConstArray<S> dy, Array<S> dgate, Array<S> dup) const {
    dgate = S(1) / (S(1) + flushed_exp(-gate));
    // y = g·σ(g) ∘ up
    dup = dy * gate * dgate;
    dgate = dy * up * dgate * (S(1) + gate * (S(1) - dgate));
  }
};

}  // namespace meso
