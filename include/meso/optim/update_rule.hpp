#pragma once
#include <concepts>
#include <meso/core/eigen.hpp>
#include <meso/optim/check_rule.hpp>
#include <type_traits>
#include <utility>

namespace meso {

namespace detail {

template <class R, class S, class Moments = std::make_index_sequence<static_cast<std::size_t>(R::moments)>>
struct HasDirection;
template <class R, class S, std::size_t... K>
    struct HasDirection<R, S, std::index_sequence<K...>> : std::bool_constant <
                                                           requires(const R& rule, ConstArray<S> g, Array<S> u) {
  rule.direction(Index{1}, g, u, (static_cast<void>(K), u)...);
} > {};

}  // namespace detail

/// The element-wise part of an optimizer: from the gradient to the direction of the step. meso::Optimizer does the rest
/// (decay, learning rate, rotation, state, threads). A rule is a plain aggregate of hyper-parameters.
/// Members of a rule R, for scalar S:
///   double learning_rate, weight_decay;
///   static constexpr int  moments;            state buffers of the parameters' size, zero at the start
///   static constexpr bool decoupled_decay;    true: θ *= 1 − lr·λ before the step; false: g += λθ
///   direction(step, g, u, moment...);         u = what is subtracted times the learning rate; moments are updated
/// and, if wanted,
///   bool uses(k);                             false: moment k is not allocated and has length 0 in direction
///   validate();                               throws std::invalid_argument for bad hyper-parameters; in every step
///   static constexpr bool gradients_within_range = true;   direction takes g by detail::within_range: a rotation gets it
///                                             so too, lest a sum of finite numbers overflows
/// All runs are Array<S> or ConstArray<S> (Eigen maps, passed by value), a part of one parameter; u overlaps nothing.
/// step is 1 the first time that a parameter is updated. The library's rules take any runs, so that their headers need no
/// Eigen: the optimizer of the GPU has the same rules.
template <class R, class S>
concept UpdateRule = std::floating_point<S> && requires(const R rule) {
  { rule.learning_rate } -> std::convertible_to<double>;
  { rule.weight_decay } -> std::convertible_to<double>;
  { R::moments } -> std::convertible_to<int>;
  { R::decoupled_decay } -> std::convertible_to<bool>;
} && detail::HasDirection<R, S>::value;

}  // namespace meso
