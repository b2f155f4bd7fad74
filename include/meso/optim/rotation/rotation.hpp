#pragma once
#include <meso/core/context.hpp>
#include <string_view>
#include <utility>

namespace meso {

/// The plan that a rotation makes for one parameter.
template <class R, class S>
using RotationPlan = decltype(std::declval<const R&>().template prepare<S>(std::string_view{}, Index{}, Index{}));

/// A policy that gives every parameter a fixed orthogonal map Q. It is a plain struct of options; what belongs to one
/// parameter is in a plan. Members of a rotation R, for scalar S:
///   prepare<S>(name, rows, cols) → plan;   Q depends on the options, the name and the axis alone
///   validate();                            if wanted: throws std::invalid_argument for bad options
/// and of its plan, all const:
///   rotate     (context, in, out);         out = Q in
///   rotate_back(context, in, out);         out = Qᵀ in
///   around(context, rows, cols, load, direction, store);   if wanted: the whole step, see HadamardRotation
/// Views are (rows, cols), contiguous, and do not overlap; scratch comes from context.workspace. Plans of several
/// parameters are prepared in parallel.
template <class R, class S>
concept Rotation = requires(const R rotation, const RotationPlan<R, S> plan, CpuContext<>& context, View<const S> in,
                            View<S> out) {
  rotation.template prepare<S>(std::string_view{}, Index{}, Index{});
  plan.rotate(context, in, out);
  plan.rotate_back(context, in, out);
};

}  // namespace meso
