#pragma once
// What a model asks of the CPU besides its ops, and the ops that another device does differently.
#include <span>
#include <utility>
#include <vector>

#include <meso/attention/attention.hpp>
#include <meso/core/parameter.hpp>
#include <meso/layer/cross_entropy.hpp>
#include <meso/model/config.hpp>
#include <meso/model/device.hpp>

namespace meso {

namespace detail {

/// True, or an error that names the policy; the compiler's note adds the member that it lacks. One assertion a concept,
/// none on a disjunction: of these g++ reports nothing.
template <class A, class S>
constexpr bool checked_architecture() {
  constexpr bool named = requires {
    typename A::Normalizer;
    typename A::Norm;
    typename A::Position;
    typename A::Mlp;
    A::bias;
  };
  if constexpr (named) {
    if constexpr (!MatrixNormalizer<typename A::Normalizer, S>)
      static_assert(Normalizer<typename A::Normalizer, S>,
                    "the architecture's Normalizer does not satisfy meso::Normalizer, nor meso::MatrixNormalizer (see "
                    "meso/normalizer/normalizer.hpp)");
    static_assert(Norm<typename A::Norm, S>,
                  "the architecture's Norm does not satisfy meso::Norm (see meso/norm/norm.hpp)");
    static_assert(Position<typename A::Position>,
                  "the architecture's Position does not satisfy meso::Position (see meso/attention/position.hpp)");
    static_assert(Mask<typename MaskOf<A>::type>,
                  "the architecture's Mask does not satisfy meso::Mask (see meso/attention/mask.hpp)");
    if constexpr (requires { requires A::Mlp::gated; })
      static_assert(GatedActivation<typename A::Mlp, S>,
                    "the architecture's Mlp does not satisfy meso::Activation, gated (see meso/layer/activation.hpp)");
    else
      static_assert(ElementwiseActivation<typename A::Mlp, S>,
                    "the architecture's Mlp does not satisfy meso::Activation (see meso/layer/activation.hpp)");
  }
  static_assert(
      Architecture<A, S>,
      "the architecture does not satisfy meso::Architecture: it needs Normalizer, Norm, Position, Mlp and bias "
      "(see meso/model/config.hpp)");
  return true;
}

}  // namespace detail

/// The CPU: policies as they are, nothing to send, and attention keeps nothing.
template <>
struct ModelDevice<Cpu> {
  template <class T>
  using Buffer = meso::Buffer<T>;
  template <class S>
  using Parameters = meso::Parameters<S>;
  using Tokens = std::vector<Token>;
  template <class P>
  using Policy = P;

  static constexpr Cpu no_context{};  ///< for a model without a context

  template <class P>
  static const P& policy(const P& p) {
    return p;
  }
  static Index attention_saved(const AttentionShape&) { return 0; }
  static void check_shape(const AttentionShape&) {}
  template <class Context, class T>
  static T send(Context&, T host) {
    return host;
  }
  template <class A, class S>
  static constexpr bool checked_architecture() {
    return detail::checked_architecture<A, S>();
  }
};

/// to = tokens; they are checked by embedding_forward.
template <class Products>
void set_tokens(CpuContext<Products>&, std::span<const Token> tokens, Index, std::vector<Token>& to) {
  to.assign(tokens.begin(), tokens.end());
}

/// attention_forward where it keeps scalars for the backward pass; here it keeps none: `saved` is empty.
template <class Products, class Normalizer, class Mask, class S>
void attention_forward(CpuContext<Products>& context, const Normalizer& normalizer, const Mask& mask,
                       const AttentionShape& shape, const std::type_identity_t<S>* theta, const ConstView<S>& q,
                       const ConstView<S>& k, const ConstView<S>& v, const View<S>& o, const View<S>& /*saved*/) {
  attention_forward<Products, Normalizer, Mask, S>(context, normalizer, mask, shape, theta, q, k, v, o);
}

/// attention_backward from what attention_forward kept; here it recomputes the weights from q and k.
template <class Products, class Normalizer, class Mask, class S>
void attention_backward(CpuContext<Products>& context, const Normalizer& normalizer, const Mask& mask,
                        const AttentionShape& shape, const std::type_identity_t<S>* theta, const ConstView<S>& q,
                        const ConstView<S>& k, const ConstView<S>& v, const ConstView<S>& /*o*/,
                        const ConstView<S>& /*saved*/, const ConstView<S>& d_o, const View<S>& dq, const View<S>& dk,
                        const View<S>& dv, std::type_identity_t<S>* dtheta, Accumulate accumulate) {
  attention_backward<Products, Normalizer, Mask, S>(context, normalizer, mask, shape, theta, q, k, v, d_o, dq, dk, dv,
                                                    dtheta, accumulate);
}

/// cross_entropy whose loss finish() waits for; here it is there at once.
template <class Products, class S>
LossSum start_cross_entropy(CpuContext<Products>& context, const ConstView<S>& logits, std::span<const Token> targets,
                            const View<S>& dlogits, double gradient_scale) {
  return cross_entropy<Products, S>(context, logits, targets, dlogits, gradient_scale);
}
template <class Products>
LossSum finish(CpuContext<Products>&, const LossSum& loss) {
  return loss;
}

}  // namespace meso
