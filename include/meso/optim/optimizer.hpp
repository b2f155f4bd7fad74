#pragma once
#include <algorithm>
#include <array>
#include <meso/optim/driver.hpp>
#include <meso/optim/gradient_range.hpp>
#include <meso/optim/rotation/no_rotation.hpp>
#include <meso/optim/rotation/rotation.hpp>
#include <meso/optim/tiles.hpp>
#include <meso/optim/update_rule.hpp>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace meso {

/// All that an optimizer of S remembers: what a checkpoint must hold, but for the plans, which follow from the names.
template <class S, class Plan>
struct OptimizerState {
  ParameterLayout layout;  ///< of the first step
  /// One buffer of layout.size() elements a moment, empty if not used. A rotation may order a parameter's its own way.
  std::vector<Buffer<S>> moments;
  std::vector<Index> steps;                ///< of each parameter: how often it was updated
  std::vector<std::optional<Plan>> plans;  ///< of each parameter that was ever updated
  /// Of plain Eigen data, and no part of a checkpoint: where the parameter lay in the last step and what that left.
  const S* address = nullptr;
  Buffer<S> values = {};
};

/// Drives an update rule over parameters. Per parameter, in this order:
///   g' = gradient_scale·g,  coupled decay: g' += λθ
///   u  = rule.direction(g'),  with a rotation Q: u = Qᵀ rule.direction(Q g')
///   decoupled decay: θ *= 1 − lr·λ
///   θ −= lr·u,  lr = learning_rate · learning_rate_factor · the parameter's learning_rate_scale
/// Decay applies to kinds matrix and embedding, with `decay_vectors` to gains, biases and normalizers too.
/// A frozen parameter is left alone with its moments and its step count: unfrozen later it starts as if new.
/// State is sized at the first step; from then on a step allocates nothing.
/// Error: of one step, ≤ (3|θ| + 3·lr·|u|)·u and lr times that of the rule's u; g' ≤ 4u·(|gradient_scale·g| + λ|θ|).
/// Numerics: the gradient is never rescaled on its own account. Adam's and RMSProp's rules take finite ones within ±2⁶³ in
/// float, under a rotation before it too. NaN and Inf pass through. Element-wise work is cut into fixed tiles: the same bits
/// for any number of threads.
/// Throws: std::invalid_argument for a bad hyper-parameter or option, in the constructor and in every step, which then
/// changes nothing; and when one optimizer meets two layouts, two scalars or two Eigen parameters.
template <class Rule, class RotationPolicy = NoRotation>
class Optimizer {
 public:
  Rule rule;
  RotationPolicy rotation;
  bool decay_vectors = false;

  explicit Optimizer(Rule update_rule = {}, RotationPolicy rotation_policy = {})
      : rule(std::move(update_rule)), rotation(std::move(rotation_policy)) {
    check_settings();
  }

  /// One step of all parameters that are not frozen. Frozen flags and learning rate scales are those of
  /// parameters.layout.
  template <class Products, class S>
  void step(CpuContext<Products>& context, Parameters<S>& parameters, const Parameters<S>& gradients,
            const StepOptions& options = {}) {
    detail::check_options(options);
    detail::check_gradients(parameters, gradients);
    advance<S>(context, parameters.layout, parameters.values.data(), gradients.values.data(), options);
  }

  /// One step of a single vector or matrix: any dense Eigen lvalue in any storage order, its gradient any dense
  /// expression of the same shape. A vector is the parameter (1, n).
  /// Without a rotation decay applies to whatever is passed, as in PyTorch; with one, vectors do not decay unless
  /// `decay_vectors`. The rotation of the parameter is that of the name "theta".
  /// One optimizer serves one parameter, for plain data have no name to keep a state under. A parameter that lies where
  /// the last one lay is the same, whatever was done to its values meanwhile; so is one that lies elsewhere and holds what
  /// the last step left (moved, copied, returned by value). Another one is refused: use an optimizer for each, or
  /// meso::Parameters for all. Not seen is another one in reused memory, or of the very same values.
  template <class Theta, class Gradient>
  void step(Eigen::DenseBase<Theta>& theta, const Eigen::DenseBase<Gradient>& gradient,
            const StepOptions& options = {}) {
    using S = typename Theta::Scalar;
    static_assert(std::is_same_v<S, typename Gradient::Scalar>, "the gradient must have the parameter's scalar type");
    const Index rows = theta.rows(), cols = theta.cols(), size = theta.size();
    check(gradient.rows() == rows && gradient.cols() == cols, "optimizer: the parameter is (", rows, ", ", cols,
          ") but its gradient is (", gradient.rows(), ", ", gradient.cols(), ")");
    detail::check_options(options);
    const bool vector = rows == 1 || cols == 1;
    const Index layout_rows = vector ? 1 : rows, layout_cols = vector ? size : cols;
    State<S>& now = state<S>();
    const ParameterLayout& known = now.layout;
    if (known.count() != 1 || known[0].name != "theta" || known[0].rows != layout_rows ||
        known[0].cols != layout_cols) {
      ParameterLayout layout;
      layout.add("theta", layout_rows, layout_cols, vector && rotated ? ParameterKind::bias : ParameterKind::matrix);
      prepare<S>(context_, layout);
    }
    using Dense = Eigen::Map<Eigen::Array<S, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;
    now.values.resize(size);
    const auto scratch = context_.workspace.template take<S>(size);
    Dense values(now.values.data(), rows, cols), slope(scratch.data(), rows, cols);
    const S* const address = &theta.derived().coeffRef(0, 0);
    if (now.address != nullptr && now.address != address) {
      slope = theta.derived().array();
      const auto same = [](S a, S b) { return a == b || (a != a && b != b); };
      check(
          std::equal(values.data(), values.data() + size, slope.data(), same), "optimizer: the (", rows, ", ", cols,
          ") parameter of this step lies elsewhere than that of the last one and does not hold what it left, "
          "so that it is another one; use an optimizer for each parameter, or meso::Parameters for all (reset forgets "
          "the first)");
    }
    values = theta.derived().array();
    slope = gradient.derived().array();
    advance<S>(context_, known, values.data(), slope.data(), options);
    theta.derived().array() = values;
    now.address = address;
  }

  /// Back to the state before the first step; forgets the layout too.
  void reset() {
    float_ = {};
    double_ = {};
    steps_ = 0;
  }

  /// Calls of step since the start or the last reset.
  Index steps() const { return steps_; }

  template <class S>
  using State = OptimizerState<S, RotationPlan<RotationPolicy, S>>;
  template <class S>
  State<S>& state() {
    if constexpr (std::is_same_v<S, float>) {
      return float_;
    } else {
      static_assert(std::is_same_v<S, double>, "optimizers work on float and double");
      return double_;
    }
  }
  template <class S>
  const State<S>& state() const {
    return const_cast<Optimizer*>(this)->template state<S>();
  }

  /// Sizes the state and builds the rotations, as the first step does. To read a checkpoint into state(), call it
  /// first.
  template <class S, class Products>
  void prepare(CpuContext<Products>& context, const ParameterLayout& layout) {
    static_assert(UpdateRule<Rule, S>, "the rule does not satisfy meso::UpdateRule (see meso/optim/update_rule.hpp)");
    static_assert(Rotation<RotationPolicy, S>,
                  "the rotation does not satisfy meso::Rotation (see meso/optim/rotation/rotation.hpp)");
    State<S>& now = state<S>();
    check_settings();
    detail::check_other_scalar<S>(std::is_same_v<S, float> ? double_.layout : float_.layout);
    if (now.layout.count() == 0) {
      State<S> fresh{
          layout, std::vector<Buffer<S>>(static_cast<std::size_t>(Rule::moments)),
          std::vector<Index>(static_cast<std::size_t>(layout.count())),
          std::vector<std::optional<RotationPlan<RotationPolicy, S>>>(static_cast<std::size_t>(layout.count()))};
      build_plans<S>(context, layout, fresh);
      now = std::move(fresh);
    } else {
      if (&layout != &now.layout) detail::check_same_layout(now.layout, layout);
      build_plans<S>(context, layout, now);
    }
    for (int k = 0; k < Rule::moments; ++k)
      if (detail::uses_moment(rule, k)) now.moments[static_cast<std::size_t>(k)].resize(layout.size());
  }

 private:
  static constexpr bool rotated = !std::is_same_v<RotationPolicy, NoRotation>;
  /// Elements that the rule sees at once: in the L1 cache, and so few that the processor asks for the next ones while it
  /// divides these.
  static constexpr Index run_size = 256;

  /// They are public and may have changed since the last step.
  void check_settings() const {
    detail::check_rule(rule);
    if constexpr (requires { rotation.validate(); }) rotation.validate();
  }

  template <class S>
  using Scalars = detail::StepScalars<S>;
  template <class S>
  Scalars<S> scalars(const ParameterInfo& info, const StepOptions& options) const {
    return detail::step_scalars<S>(rule, decay_vectors, info, options);
  }

  template <class S, class Products>
  void build_plans(CpuContext<Products>& context, const ParameterLayout& layout, State<S>& target) const {
    const auto missing = [&](Index i) { return !layout[i].frozen && !target.plans[static_cast<std::size_t>(i)]; };
    bool any = false;
    for (Index i = 0; i < layout.count(); ++i) any = any || missing(i);
    if (!any) return;
    parallel_for(context, layout.count(), [&](Index i, Index) {
      if (missing(i))
        target.plans[static_cast<std::size_t>(i)].emplace(
            rotation.template prepare<S>(layout[i].name, layout[i].rows, layout[i].cols));
    });
  }

  template <class S, class Products>
  void advance(CpuContext<Products>& context, const ParameterLayout& layout, S* theta, const S* gradient,
               const StepOptions& options) {
    prepare<S>(context, layout);
    if constexpr (rotated) {
      for (Index i = 0; i < layout.count(); ++i)
        if (!layout[i].frozen) advance_rotated<S>(context, layout[i], i, theta, gradient, options);
    } else {
      advance_plain<S>(context, layout, theta, gradient, options);
    }
    State<S>& now = state<S>();
    for (Index i = 0; i < layout.count(); ++i)
      if (!layout[i].frozen) ++now.steps[static_cast<std::size_t>(i)];
    ++steps_;
  }

  /// u = the direction of `count` elements from `first` of the flat buffer.
  template <class S>
  void direction(State<S>& now, Index parameter, Index first, Index count, const S* g, S* u) const {
    [&]<std::size_t... K>(std::index_sequence<K...>) {
      [[maybe_unused]] const auto moment = [&](Buffer<S>& m) {
        return array(m.size() ? m.data() + first : nullptr, m.size() ? count : 0);
      };
      rule.direction(now.steps[static_cast<std::size_t>(parameter)] + 1, array(g, count), array(u, count),
                     moment(now.moments[K])...);
    }
    (std::make_index_sequence<static_cast<std::size_t>(Rule::moments)>{});
  }

  template <class S>
  static void scaled_gradient(const Scalars<S>& k, const S* theta, const S* g, S* out, Index count) {
    if (k.coupled_decay == S(0))
      array(out, count) = k.gradient_scale * array(g, count);
    else
      array(out, count) = k.gradient_scale * array(g, count) + k.coupled_decay * array(theta, count);
  }
  template <class S>
  static void apply(const Scalars<S>& k, S* theta, const S* u, Index count) {
    if (k.keep == S(1))
      array(theta, count) -= k.rate * array(u, count);
    else
      array(theta, count) = k.keep * array(theta, count) - k.rate * array(u, count);
  }

  /// One pass over memory: every run goes from gradient to values while it is in the L1 cache.
  template <class S, class Products>
  void advance_plain(CpuContext<Products>& context, const ParameterLayout& layout, S* theta, const S* gradient,
                     const StepOptions& options) {
    State<S>& now = state<S>();
    const auto tiles = detail::element_tiles(context, layout);
    const auto scratch = context.workspace.template take<S>(workers(context) * 2 * run_size);
    parallel_for(context, tiles.size(), [&](Index t, Index worker) {
      const detail::ElementTile tile = tiles.data()[t];
      const ParameterInfo& info = layout[tile.parameter];
      const Scalars<S> k = scalars<S>(info, options);
      S *const u = scratch.data() + worker * 2 * run_size, *const scaled = u + run_size;
      const Index begin = info.offset + tile.first;
      for (Index first = begin; first < begin + tile.count; first += run_size) {
        const Index count = std::min<Index>(run_size, begin + tile.count - first);
        const S* g = gradient + first;
        if (!k.plain_gradient()) {
          scaled_gradient<S>(k, theta + first, g, scaled, count);
          g = scaled;
        }
        direction<S>(now, tile.parameter, first, count, g, u);
        apply<S>(k, theta + first, u, count);
      }
    });
  }

  template <class S, class Products>
  void advance_rotated(CpuContext<Products>& context, const ParameterInfo& info, Index i, S* theta, const S* gradient,
                       const StepOptions& options) {
    State<S>& now = state<S>();
    const auto& plan = *now.plans[static_cast<std::size_t>(i)];
    const Scalars<S> k = scalars<S>(info, options);
    const auto load = [&](Index offset, Index count, S* x) {
      scaled_gradient<S>(k, theta + info.offset + offset, gradient + info.offset + offset, x, count);
      // Within the range of the rule before it is turned, so that no sum of the rotation overflows.
      if constexpr (detail::takes_gradients_within_range<Rule>) array(x, count) = detail::within_range(array(x, count));
    };
    const auto in_runs = [&](Index offset, Index count, const S* g, S* u) {
      for (Index j = 0; j < count; j += run_size)
        direction<S>(now, i, info.offset + offset + j, std::min<Index>(run_size, count - j), g + j, u + j);
    };
    const auto store = [&](Index offset, Index count, const S* x) {
      apply<S>(k, theta + info.offset + offset, x, count);
    };
    if constexpr (requires { plan.around(context, info.rows, info.cols, load, in_runs, store); }) {
      plan.around(context, info.rows, info.cols, load, in_runs, store);
    } else {
      const auto scratch_a = context.workspace.template take<S>(info.size());
      const auto scratch_b = context.workspace.template take<S>(info.size());
      S *const a = scratch_a.data(), *const b = scratch_b.data();
      const auto tiles = [&](auto&& f) {
        const Index size = detail::element_tile_size;
        parallel_for(context, (info.size() + size - 1) / size,
                     [&](Index t, Index) { f(t * size, std::min<Index>(size, info.size() - t * size)); });
      };
      tiles([&](Index first, Index count) { load(first, count, a + first); });
      plan.rotate(context, View<const S>(scratch_a.view(info.rows, info.cols)), scratch_b.view(info.rows, info.cols));
      tiles([&](Index first, Index count) { in_runs(first, count, b + first, a + first); });
      plan.rotate_back(context, View<const S>(scratch_a.view(info.rows, info.cols)),
                       scratch_b.view(info.rows, info.cols));
      tiles([&](Index first, Index count) { store(first, count, b + first); });
    }
  }

  State<float> float_;
  State<double> double_;
  Index steps_ = 0;
  CpuContext<> context_{1};  // of plain Eigen data
};

}  // namespace meso
