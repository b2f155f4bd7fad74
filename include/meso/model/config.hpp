#pragma once
#include <concepts>

#include <meso/attention/mask.hpp>
#include <meso/attention/position.hpp>
#include <meso/layer/activation.hpp>
#include <meso/model/layout.hpp>
#include <meso/norm/norm.hpp>
#include <meso/normalizer/normalizer.hpp>

namespace meso {

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

}  // namespace meso
