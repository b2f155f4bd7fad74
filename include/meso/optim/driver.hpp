#pragma once
// What the optimizers of the CPU and of the GPU share: what they check, and the scalars of a parameter's step. No Eigen.
#include <meso/core/parameter.hpp>
#include <meso/optim/check_rule.hpp>
#include <meso/optim/step_options.hpp>
#include <type_traits>

namespace meso::detail {

template <class Rule>
void check_rule(const Rule& rule) {
  check_positive("optimizer", "learning_rate", rule.learning_rate);
  check_not_negative("optimizer", "weight_decay", rule.weight_decay);
  if constexpr (requires { rule.validate(); }) rule.validate();
}

inline void check_options(const StepOptions& options) {
  check_not_negative("optimizer", "learning_rate_factor", options.learning_rate_factor);
  check_not_negative("optimizer", "gradient_scale", options.gradient_scale);
}

/// Both have a layout and a buffer `values`.
template <class Parameters>
void check_gradients(const Parameters& parameters, const Parameters& gradients) {
  check(parameters.layout.count() == gradients.layout.count() && parameters.values.size() == gradients.values.size(),
        "optimizer: the parameters are ", parameters.layout.count(), " in a buffer of ", parameters.values.size(),
        " elements but the gradients are ", gradients.layout.count(), " in ", gradients.values.size());
  for (const ParameterInfo& info : parameters.layout)
    check(info.learning_rate_scale >= 0 && std::isfinite(info.learning_rate_scale),
          "optimizer: learning_rate_scale of ", info.name, " is ", info.learning_rate_scale,
          ", expected a finite number >= 0");
}

/// `other`: the layout of the state in float if S is double, in double if S is float.
template <class S>
void check_other_scalar(const ParameterLayout& other) {
  constexpr bool single = std::is_same_v<S, float>;
  check(other.count() == 0, "optimizer: the first step was of ", single ? "double" : "float",
        " parameters and this one is of ", single ? "float" : "double",
        "; one optimizer serves one set of parameters (reset forgets it)");
}

inline void check_same_layout(const ParameterLayout& first, const ParameterLayout& now) {
  check(first.count() == now.count(), "optimizer: the first step was of ", first.count(),
        " parameters and this one is of ", now.count(),
        "; one optimizer serves one set of parameters (reset forgets it)");
  for (Index i = 0; i < now.count(); ++i) {
    const ParameterInfo &a = first[i], &b = now[i];
    check(a.name == b.name && a.rows == b.rows && a.cols == b.cols && a.offset == b.offset, "optimizer: parameter ", i,
          " was ", a.name, " (", a.rows, ", ", a.cols, ") in the first step and is ", b.name, " (", b.rows, ", ",
          b.cols, ") now; one optimizer serves one set of parameters (reset forgets it)");
  }
}

/// g' = gradient_scale·g + coupled_decay·θ, then θ = keep·θ − rate·u.
template <class S>
struct StepScalars {
  S gradient_scale, coupled_decay, keep, rate;
  bool plain_gradient() const { return gradient_scale == S(1) && coupled_decay == S(0); }
};

inline bool decays(const ParameterInfo& info, bool decay_vectors) {
  return decay_vectors || info.kind == ParameterKind::matrix || info.kind == ParameterKind::embedding;
}

template <class S, class Rule>
StepScalars<S> step_scalars(const Rule& rule, bool decay_vectors, const ParameterInfo& info,
                            const StepOptions& options) {
  const double rate = rule.learning_rate * options.learning_rate_factor * info.learning_rate_scale;
  const double decay = decays(info, decay_vectors) ? rule.weight_decay : 0.0;
  return {static_cast<S>(options.gradient_scale), static_cast<S>(Rule::decoupled_decay ? 0.0 : decay),
          static_cast<S>(Rule::decoupled_decay ? 1.0 - rate * decay : 1.0), static_cast<S>(rate)};
}

}  // namespace meso::detail
