#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <meso/cuda/gemm.hpp>
#include <meso/cuda/hadamard.cuh>
#include <meso/cuda/linear.cuh>
#include <meso/cuda/parameter.hpp>
#include <meso/optim/adam_rule.hpp>
#include <meso/optim/driver.hpp>
#include <meso/optim/gradient_range.hpp>
#include <meso/optim/rmsprop_rule.hpp>
#include <meso/optim/sgd_rule.hpp>

namespace meso::cuda {

/// The rules are those of the CPU. device_step<C>(rule, t) is the element-wise function of step t: f(gradient, moments, i)
/// gives the direction of element i and updates its moments, at most three. A rule of your own needs one in its namespace.
using meso::AdamRule;
using meso::AdamWRule;
using meso::OrthoAdamRule;
using meso::RmsPropRule;
using meso::SgdRule;

/// device_step of SgdRule: the direction of an element.
template <class C>
struct SgdStep {
  C momentum, take;
  bool first, nesterov;

  __device__ C operator()(C g, C* const* moment, Index i) const {
    if (momentum == C(0)) return g;
    C& b = moment[0][i];
    b = first ? g : momentum * b + take * g;
    return nesterov ? g + momentum * b : b;
  }
};
template <class C>
SgdStep<C> device_step(const SgdRule& rule, Index t) {
  return {static_cast<C>(rule.momentum), static_cast<C>(1 - rule.dampening), t == 1, rule.nesterov};
}

/// What meso/optim/gradient_range.hpp does, of an element. NaN passes through, Inf becomes NaN.
template <class C>
struct GradientRange {
  C largest = meso::detail::largest_gradient<C>, largest_square = meso::detail::largest_square<C>;

  __device__ C within(C g) const { return (g > largest ? largest : g < -largest ? -largest : g) + C(0) * g; }
  __device__ C square(C g, C smallest) const {
    const C s = g * g;
    return s < smallest ? smallest : s > largest_square ? largest_square : s;
  }
};

/// device_step of RmsPropRule: the direction of an element.
template <class C>
struct RmsPropStep {
  GradientRange<C> range;
  C keep, take, smallest_square, kappa, smallest_variance, epsilon, momentum;
  bool centered;

  __device__ C operator()(C gradient, C* const* moment, Index i) const {
    const C g = range.within(gradient);
    C& v = moment[0][i];
    v = keep * v + take * range.square(gradient, smallest_square);
    C u;
    if (centered) {
      C& mean = moment[1][i];
      mean = keep * mean + take * g;
      const C variance = v - mean * mean, least = kappa * range.square(gradient, smallest_variance);
      u = g / (detail::root(variance < least ? least : variance) + epsilon);
    } else {
      u = g / (detail::root(v) + epsilon);
    }
    if (momentum == C(0)) return u;
    C& b = moment[2][i];
    b = momentum * b + u;
    return b;
  }
};
template <class C>
RmsPropStep<C> device_step(const RmsPropRule& rule, Index t) {
  const C kappa = rule.kappa<C>(t);
  return {{},
          static_cast<C>(rule.alpha),
          static_cast<C>(1 - rule.alpha),
          meso::detail::smallest_square<C>(1 - rule.alpha),
          kappa,
          meso::detail::smallest_square<C>(kappa),
          static_cast<C>(rule.epsilon),
          static_cast<C>(rule.momentum),
          rule.centered};
}

/// device_step of the Adam family: the direction of an element.
template <class C>
struct AdamStep {
  GradientRange<C> range;
  C beta1, take1, beta2, take2, smallest_square, to_m_hat, to_root_v_hat, epsilon;

  __device__ C operator()(C g, C* const* moment, Index i) const {
    C& m = moment[0][i];
    C& v = moment[1][i];
    m = beta1 * m + take1 * range.within(g);
    v = beta2 * v + take2 * range.square(g, smallest_square);
    return to_m_hat * m / (to_root_v_hat * detail::root(v) + epsilon);
  }
};
template <class C, class Variant>
AdamStep<C> device_step(const BasicAdamRule<Variant>& rule, Index t) {
  return {{},
          static_cast<C>(rule.beta1),
          static_cast<C>(1 - rule.beta1),
          static_cast<C>(rule.beta2),
          static_cast<C>(1 - rule.beta2),
          meso::detail::smallest_square<C>(1 - rule.beta2),
          static_cast<C>(rule.m_correction(t)),
          static_cast<C>(rule.root_v_correction(t)),
          static_cast<C>(rule.epsilon)};
}

/// The original basis.
struct NoRotation {
  template <class C>
  struct Plan {};
};

/// One Haar matrix an axis: the plan of meso::KroneckerRotation in device memory, products by cuBLAS.
template <class C>
struct KroneckerPlan {
  struct Block {
    Index first = 0;
    Index size = 0;
    Buffer<C> q;
    View<const C> matrix() const { return q.view(size, size); }
  };
  std::vector<Block> rows, cols;  ///< rows is empty for a vector

  /// out = Q_row in Q_colᵀ, back Q_rowᵀ in Q_col. Shapes: (rows, cols), contiguous, no overlap.
  void rotate(Context& context, const View<const C>& in, const View<C>& out, bool back) const {
    const auto scratch = context.workspace.template take<C>(rows.empty() ? 0 : in.size());
    const View<C> left = scratch.view(in.rows, in.cols);
    for (const Block& b : rows)
      gemm<C, C>(context, b.matrix(), in.row_range(b.first, b.size), left.row_range(b.first, b.size),
                 {.transpose_a = back});
    const View<const C> from = rows.empty() ? in : View<const C>(left);
    for (const Block& b : cols)
      gemm<C, C>(context, from.col_range(b.first, b.size), b.matrix(), out.col_range(b.first, b.size),
                 {.transpose_b = !back});
  }
};

/// Signs and Walsh–Hadamard transforms an axis: the plan of meso::HadamardRotation in device memory.
template <class C>
struct HadamardPlan {
  HadamardAxis<C> rows, cols;

  void rotate(Context& context, const View<const C>& in, const View<C>& out, bool back) const {
    hadamard_rotate<C>(context, rows, cols, back, in, out);
  }
};

namespace detail {

using meso::detail::StepScalars;

/// The whole step of one run.
template <class Step, class C>
__global__ void __launch_bounds__(256) step_kernel(Step step, StepScalars<C> k, C* theta, const C* gradient, C* moment0,
                                                   C* moment1, C* moment2, Index count) {
  C* const moments[3] = {moment0, moment1, moment2};
  const Index stride = static_cast<Index>(gridDim.x) * 256;
  for (Index i = static_cast<Index>(blockIdx.x) * 256 + static_cast<Index>(threadIdx.x); i < count; i += stride) {
    const C value = theta[i];
    const C u = step(k.gradient_scale * gradient[i] + k.coupled_decay * value, moments, i);
    theta[i] = k.keep * value - k.rate * u;
  }
}

/// The parts of a rotated step. `within_range`: of a rule that takes gradients so, before a sum of the rotation overflows.
template <class C, bool within_range>
struct ScaleGradient {
  StepScalars<C> k;
  const C* theta;
  const C* gradient;
  C* out;
  GradientRange<C> range;
  __device__ void operator()(Index, Index i) const {
    const C g = k.gradient_scale * gradient[i] + k.coupled_decay * theta[i];
    out[i] = within_range ? range.within(g) : g;
  }
};
template <class Step, class C>
struct Direction {
  Step step;
  const C* gradient;
  C *moment0, *moment1, *moment2, *out;
  __device__ void operator()(Index, Index i) const {
    C* const moments[3] = {moment0, moment1, moment2};
    out[i] = step(gradient[i], moments, i);
  }
};
template <class C>
struct ApplyStep {
  StepScalars<C> k;
  C* theta;
  const C* u;
  __device__ void operator()(Index, Index i) const { theta[i] = k.keep * theta[i] - k.rate * u[i]; }
};

}  // namespace detail

/// Drives an update rule over parameters on the device, in the order of meso::Optimizer: scale, coupled decay, rotation,
/// direction, rotation back, decoupled decay, step. `Plans` makes the rotation's plans: plans(context, name, rows, cols).
/// State lies in device memory, in C (float for bf16 models), sized at the first step.
/// Numerics: neighbors with equal scalars go in one launch. Error: as meso::Optimizer.
/// Throws: as meso::Optimizer: std::invalid_argument for a bad hyper-parameter or option, in every step too, when the
/// layouts differ, and when one optimizer meets two layouts or two scalars.
template <class Rule, class Plans = NoRotation>
class Optimizer {
 public:
  Rule rule;
  Plans plans;
  bool decay_vectors = false;

  explicit Optimizer(Rule update_rule = {}, Plans rotation_plans = {})
      : rule(std::move(update_rule)), plans(std::move(rotation_plans)) {
    check_settings();
  }

  /// One step of all parameters that are not frozen.
  template <class C>
  void step(Context& context, Parameters<C>& parameters, const Parameters<C>& gradients,
            const StepOptions& options = {}) {
    const ParameterLayout& layout = parameters.layout;
    check_settings();
    meso::detail::check_options(options);
    meso::detail::check_gradients(parameters, gradients);
    prepare<C>(context, layout);
    State<C>& now = state<C>();
    C* const theta = parameters.values.data();
    const C* const gradient = gradients.values.data();
    if constexpr (rotated) {
      for (Index i = 0; i < layout.count(); ++i)
        if (!layout[i].frozen) rotated_step<C>(context, layout[i], i, theta, gradient, options);
    } else {
      const auto same = [&](Index i, Index j) {
        return meso::detail::decays(layout[i], decay_vectors) == meso::detail::decays(layout[j], decay_vectors) &&
               layout[i].learning_rate_scale == layout[j].learning_rate_scale &&
               now.steps[static_cast<std::size_t>(i)] == now.steps[static_cast<std::size_t>(j)];
      };
      detail::for_runs(layout, same, [&](Index i, Index offset, Index count) {
        const auto step = device_step<C>(rule, now.steps[static_cast<std::size_t>(i)] + 1);
        using Step = std::remove_const_t<decltype(step)>;
        const Index blocks = (count + 255) / 256;
        launch(context, "optimizer", {{static_cast<unsigned>(blocks < 65536 ? blocks : 65536)}, {256}},
               detail::step_kernel<Step, C>, step, scalars<C>(layout[i], options), theta + offset, gradient + offset,
               moment<C>(0, offset), moment<C>(1, offset), moment<C>(2, offset), count);
      });
    }
    for (Index i = 0; i < layout.count(); ++i)
      if (!layout[i].frozen) ++now.steps[static_cast<std::size_t>(i)];
    ++steps_;
  }

  /// Back to the state before the first step; forgets the layout too.
  void reset() {
    float_ = {};
    double_ = {};
    steps_ = 0;
  }

  /// Calls of step since the start or the last reset.
  Index steps() const { return steps_; }

 private:
  static_assert(Rule::moments <= 3, "an update rule has at most three moments on the device");
  static constexpr bool rotated = !std::is_same_v<Plans, NoRotation>;
  template <class C>
  using Plan = typename Plans::template Plan<C>;
  template <class C>
  struct State {
    ParameterLayout layout;  // of the first step
    Buffer<C> moments[3];
    std::vector<Index> steps;
    std::vector<std::optional<Plan<C>>> plans;
  };

  /// They are public and may have changed since the last step.
  void check_settings() const {
    meso::detail::check_rule(rule);
    if constexpr (requires { plans.rotation.validate(); }) plans.rotation.validate();
  }

  template <class C>
  State<C>& state() {
    if constexpr (std::is_same_v<C, float>) {
      return float_;
    } else {
      static_assert(std::is_same_v<C, double>, "optimizers work on float and double");
      return double_;
    }
  }
  /// Sizes the state and makes the plans that are not there yet.
  template <class C>
  void prepare(Context& context, const ParameterLayout& layout) {
    meso::detail::check_other_scalar<C>(std::is_same_v<C, float> ? double_.layout : float_.layout);
    State<C>& now = state<C>();
    if (now.layout.count() == 0) {
      now.layout = layout;
      now.steps.assign(static_cast<std::size_t>(layout.count()), 0);
      now.plans.resize(static_cast<std::size_t>(layout.count()));
    } else {
      meso::detail::check_same_layout(now.layout, layout);
    }
    if constexpr (rotated)
      for (Index i = 0; i < layout.count(); ++i) {
        auto& plan = now.plans[static_cast<std::size_t>(i)];
        if (!layout[i].frozen && !plan)
          plan.emplace(plans.template prepare<C>(context, layout[i].name, layout[i].rows, layout[i].cols));
      }
    for (int k = 0; k < Rule::moments; ++k)
      if (meso::detail::uses_moment(rule, k)) now.moments[k].resize(layout.size());
  }
  template <class C>
  C* moment(int k, Index offset) {
    Buffer<C>& buffer = state<C>().moments[k];
    return buffer.size() > 0 ? buffer.data() + offset : nullptr;
  }
  template <class C>
  detail::StepScalars<C> scalars(const ParameterInfo& info, const StepOptions& options) const {
    return meso::detail::step_scalars<C>(rule, decay_vectors, info, options);
  }

  template <class C>
  void rotated_step(Context& context, const ParameterInfo& info, Index i, C* theta, const C* gradient,
                    const StepOptions& options) {
    State<C>& now = state<C>();
    const Plan<C>& plan = *now.plans[static_cast<std::size_t>(i)];
    const auto k = scalars<C>(info, options);
    const auto scratch_a = context.workspace.template take<C>(info.size());
    const auto scratch_b = context.workspace.template take<C>(info.size());
    const View<C> a = scratch_a.view(info.rows, info.cols), b = scratch_b.view(info.rows, info.cols);
    C* const values = theta + info.offset;
    using Load = detail::ScaleGradient<C, meso::detail::takes_gradients_within_range<Rule>>;
    detail::for_elements(context, "optimizer", Load{k, values, gradient + info.offset, a.data, {}}, 1, info.size());
    plan.rotate(context, View<const C>(a), b, false);
    const auto step = device_step<C>(rule, now.steps[static_cast<std::size_t>(i)] + 1);
    using Step = std::remove_const_t<decltype(step)>;
    detail::for_elements(context, "optimizer",
                         detail::Direction<Step, C>{step, b.data, moment<C>(0, info.offset), moment<C>(1, info.offset),
                                                    moment<C>(2, info.offset), a.data},
                         1, info.size());
    plan.rotate(context, View<const C>(a), b, true);
    detail::for_elements(context, "optimizer", detail::ApplyStep<C>{k, values, b.data}, 1, info.size());
  }

  State<float> float_;
  State<double> double_;
  Index steps_ = 0;
};

}  // namespace meso::cuda
