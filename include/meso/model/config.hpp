#pragma once
#include <concepts>
#include <cstdint>

#include <meso/attention/mask.hpp>
#include <meso/attention/position.hpp>
#include <meso/core/check.hpp>
#include <meso/layer/activation.hpp>
#include <meso/norm/norm.hpp>
#include <meso/normalizer/normalizer.hpp>

namespace meso {

namespace detail {
template <class A>
struct MaskOf {
  using type = Causal;
};
template <class A>
requires requires { typename A::Mask; }
struct MaskOf<A> {
  using type = typename A::Mask;
};
template <class A>
constexpr bool tied_head() {
  if constexpr (requires { A::tied; })
    return A::tied;
  else
    return true;
}
}  // namespace detail

/// A struct of policies: `Normalizer`, `Norm`, `Position`, `Mlp` and `static constexpr bool bias`.
/// Optional: `Mask` (default Causal) and `static constexpr bool tied` (default true: the head is the embedding).
template <class A, class S>
concept Architecture = requires {
  typename A::Normalizer;
  typename A::Norm;
  typename A::Position;
  typename A::Mlp;
  { A::bias } -> std::convertible_to<bool>;
}
&&AnyNormalizer<typename A::Normalizer, S>&& Norm<typename A::Norm, S>&& Position<typename A::Position>&&
    Activation<typename A::Mlp, S>&& Mask<typename detail::MaskOf<A>::type>;

/// Sizes and policies' hyper-parameters of a Transformer. The first five are required.
template <class A>
struct TransformerConfig {
  Index vocabulary = 0;
  Index width = 0;
  Index layers = 0;
  Index heads = 0;
  Index context = 0;          ///< T: the longest sequence, and what normalizers are told
  Index key_value_heads = 0;  ///< 0: as many as heads; fewer: grouped queries
  Index mlp_width = 0;        ///< 0: 4·width, or 8/3·width rounded up to a multiple of 8 if gated
  std::uint64_t seed = 0;     ///< of the initial weights
  typename A::Normalizer normalizer{};
  typename A::Norm norm{};
  typename A::Position position{};
  typename A::Mlp mlp{};
  typename detail::MaskOf<A>::type mask{};
};

/// The same with the zeros that mean "as usual" filled in.
/// Throws: std::invalid_argument that names the first size that is missing or does not fit.
template <class A>
TransformerConfig<A> completed(TransformerConfig<A> c) {
  const auto required = [](const char* name, Index value) {
    check(value > 0, "TransformerConfig: ", name, " is ", value, ", expected a positive number");
  };
  required("vocabulary", c.vocabulary);
  required("width", c.width);
  required("layers", c.layers);
  required("heads", c.heads);
  required("context", c.context);
  check(c.width % c.heads == 0, "TransformerConfig: ", c.heads, " heads do not divide the width ", c.width);
  if (c.key_value_heads == 0) c.key_value_heads = c.heads;
  check(c.key_value_heads > 0 && c.heads % c.key_value_heads == 0, "TransformerConfig: ", c.key_value_heads,
        " key-value heads do not divide the ", c.heads, " heads");
  if (c.mlp_width == 0) c.mlp_width = A::Mlp::gated ? (8 * c.width / 3 + 7) / 8 * 8 : 4 * c.width;
  required("mlp_width", c.mlp_width);
  if constexpr (requires { c.position.table_size(Index{}); }) c.position.table_size(c.width / c.heads);
  return c;
}

}  // namespace meso
