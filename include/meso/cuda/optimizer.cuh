#pragma once
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <meso/cuda/gemm.hpp>
#include <meso/cuda/hadamard.cuh>
#include <meso/cuda/linear.cuh>
#include <meso/cuda/parameter.hpp>
#include <meso/optim/step_options.hpp>

namespace meso::cuda {

/// The element-wise part of SGD on the device; hyper-parameters and equations of meso::SgdRule.
struct SgdRule {
  double learning_rate = 1e-3;
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;

  static constexpr int moments = 1;
  static constexpr bool decoupled_decay = false;
  bool uses(int) const { return momentum > 0; }

  template <class C>
  struct Step {
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
  Step<C> step(Index t) const {
    return {static_cast<C>(momentum), static_cast<C>(1 - dampening), t == 1, nesterov};
  }
};

/// RMSProp on the device; see meso::RmsPropRule.
struct RmsPropRule {
  double learning_rate = 1e-2;
  double alpha = 0.99;
  double epsilon = 1e-8;
  double momentum = 0.0;
  double weight_decay = 0.0;
  bool centered = false;

  static constexpr int moments = 3;
  static constexpr bool decoupled_decay = false;
  bool uses(int k) const { return k == 0 || (k == 1 && centered) || (k == 2 && momentum > 0); }

  template <class C>
  struct Step {
    C keep, take, epsilon, momentum;
    bool centered;

    __device__ C operator()(C g, C* const* moment, Index i) const {
      C& v = moment[0][i];
      v = keep * v + take * g * g;
      C u;
      if (centered) {
        C& mean = moment[1][i];
        mean = keep * mean + take * g;
        const C variance = v - mean * mean;
        u = g / (detail::root(variance > C(0) ? variance : variance <= C(0) ? C(0) : variance) + epsilon);
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
  Step<C> step(Index) const {
    return {static_cast<C>(alpha), static_cast<C>(1 - alpha), static_cast<C>(epsilon), static_cast<C>(momentum),
            centered};
  }
};

/// Adam on the device; see meso::BasicAdamRule.
template <bool decoupled>
struct BasicAdamRule {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;

  static constexpr int moments = 2;
  static constexpr bool decoupled_decay = decoupled;
  bool uses(int) const { return true; }

  template <class C>
  struct Step {
    C beta1, take1, beta2, take2, to_m_hat, to_root_v_hat, epsilon;

    __device__ C operator()(C g, C* const* moment, Index i) const {
      C& m = moment[0][i];
      C& v = moment[1][i];
      m = beta1 * m + take1 * g;
      v = beta2 * v + take2 * g * g;
      return to_m_hat * m / (to_root_v_hat * detail::root(v) + epsilon);
    }
  };
  template <class C>
  Step<C> step(Index t) const {
    const double n = static_cast<double>(t);
    return {static_cast<C>(beta1),
            static_cast<C>(1 - beta1),
            static_cast<C>(beta2),
            static_cast<C>(1 - beta2),
            static_cast<C>(1 / (1 - std::pow(beta1, n))),
            static_cast<C>(1 / std::sqrt(1 - std::pow(beta2, n))),
            static_cast<C>(epsilon)};
  }
};
using AdamRule = BasicAdamRule<false>;
using AdamWRule = BasicAdamRule<true>;

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

template <class C>
struct StepScalars {
  C gradient_scale, coupled_decay, keep, rate;
};

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

/// The parts of a rotated step.
template <class C>
struct ScaleGradient {
  StepScalars<C> k;
  const C* theta;
  const C* gradient;
  C* out;
  __device__ void operator()(Index, Index i) const {
    out[i] = k.gradient_scale * gradient[i] + k.coupled_decay * theta[i];
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
/// Throws: std::invalid_argument when the layouts differ or one optimizer meets two of them.
template <class Rule, class Plans = NoRotation>
class Optimizer {
 public:
  Rule rule;
  Plans plans;
  bool decay_vectors = false;

  explicit Optimizer(Rule update_rule = {}, Plans rotation_plans = {})
      : rule(std::move(update_rule)), plans(std::move(rotation_plans)) {}

  /// One step of all parameters that are not frozen.
  template <class C>
  void step(Context& context, Parameters<C>& parameters, const Parameters<C>& gradients,
            const StepOptions& options = {}) {
    const ParameterLayout& layout = parameters.layout;
    meso::check(layout.count() == gradients.layout.count() && layout.size() == gradients.values.size(),
                "optimizer: the parameters are ", layout.count(), " in a buffer of ", layout.size(),
                " elements but the gradients are ", gradients.layout.count(), " in ", gradients.values.size());
    State<C>& now = state<C>();
    if (now.steps.empty()) {
      now.steps.assign(static_cast<std::size_t>(layout.count()), 0);
      now.plans.resize(static_cast<std::size_t>(layout.count()));
      for (int k = 0; k < Rule::moments; ++k)
        if (rule.uses(k)) now.moments[k].resize(layout.size());
    }
    meso::check(static_cast<Index>(now.steps.size()) == layout.count(), "optimizer: the first step was of ",
                now.steps.size(), " parameters and this one is of ", layout.count());
    C* const theta = parameters.values.data();
    const C* const gradient = gradients.values.data();
    if constexpr (rotated) {
      for (Index i = 0; i < layout.count(); ++i)
        if (!layout[i].frozen) rotated_step<C>(context, layout[i], i, theta, gradient, options);
    } else {
      const auto same = [&](Index i, Index j) {
        return decays(layout[i]) == decays(layout[j]) &&
               layout[i].learning_rate_scale == layout[j].learning_rate_scale &&
               now.steps[static_cast<std::size_t>(i)] == now.steps[static_cast<std::size_t>(j)];
      };
      detail::for_runs(layout, same, [&](Index i, Index offset, Index count) {
        const auto step = rule.template step<C>(now.steps[static_cast<std::size_t>(i)] + 1);
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

  /// Calls of step since the start.
  Index steps() const { return steps_; }

 private:
  static constexpr bool rotated = !std::is_same_v<Plans, NoRotation>;
  template <class C>
  using Plan = typename Plans::template Plan<C>;
  template <class C>
  struct State {
    Buffer<C> moments[3];
    std::vector<Index> steps;
    std::vector<std::optional<Plan<C>>> plans;
  };

  template <class C>
  State<C>& state() {
    if constexpr (std::is_same_v<C, float>)
      return float_;
    else
      return double_;
  }
  template <class C>
  C* moment(int k, Index offset) {
    Buffer<C>& buffer = state<C>().moments[k];
    return buffer.size() > 0 ? buffer.data() + offset : nullptr;
  }
  bool decays(const ParameterInfo& info) const {
    return decay_vectors || info.kind == ParameterKind::matrix || info.kind == ParameterKind::embedding;
  }
  template <class C>
  detail::StepScalars<C> scalars(const ParameterInfo& info, const StepOptions& options) const {
    const double rate = rule.learning_rate * options.learning_rate_factor * info.learning_rate_scale;
    const double decay = decays(info) ? rule.weight_decay : 0.0;
    return {static_cast<C>(options.gradient_scale), static_cast<C>(Rule::decoupled_decay ? 0.0 : decay),
            static_cast<C>(Rule::decoupled_decay ? 1.0 - rate * decay : 1.0), static_cast<C>(rate)};
  }

  template <class C>
  void rotated_step(Context& context, const ParameterInfo& info, Index i, C* theta, const C* gradient,
                    const StepOptions& options) {
    State<C>& now = state<C>();
    auto& plan = now.plans[static_cast<std::size_t>(i)];
    if (!plan) plan.emplace(plans.template prepare<C>(context, info.name, info.rows, info.cols));
    const auto k = scalars<C>(info, options);
    const auto scratch_a = context.workspace.template take<C>(info.size());
    const auto scratch_b = context.workspace.template take<C>(info.size());
    const View<C> a = scratch_a.view(info.rows, info.cols), b = scratch_b.view(info.rows, info.cols);
    C* const values = theta + info.offset;
    detail::for_elements(context, "optimizer", detail::ScaleGradient<C>{k, values, gradient + info.offset, a.data}, 1,
                         info.size());
    plan->rotate(context, View<const C>(a), b, false);
    const auto step = rule.template step<C>(now.steps[static_cast<std::size_t>(i)] + 1);
    using Step = std::remove_const_t<decltype(step)>;
    detail::for_elements(context, "optimizer",
                         detail::Direction<Step, C>{step, b.data, moment<C>(0, info.offset), moment<C>(1, info.offset),
                                                    moment<C>(2, info.offset), a.data},
                         1, info.size());
    plan->rotate(context, View<const C>(a), b, true);
    detail::for_elements(context, "optimizer", detail::ApplyStep<C>{k, values, b.data}, 1, info.size());
  }

  State<float> float_;
  State<double> double_;
  Index steps_ = 0;
};

}  // namespace meso::cuda
