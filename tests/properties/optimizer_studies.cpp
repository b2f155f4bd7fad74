#include <boost/test/unit_test.hpp>
#include <meso/optim.hpp>
#include <string>
#include <vector>

#include "studies.hpp"
#include "support/oracle_optim.hpp"

namespace meso::test {

namespace {

using oracle::Vector;

/// One step of the coordinate: what it was, the gradient, and the state after the step.
struct Coordinate {
  double theta, g;                    // before the step; the gradient as passed
  double rate, scale, coupled, keep;  // lr, gradient scale, λ, 1 − lr·λ
  double step;                        // of this parameter, from 1
  Vector before, after;               // moments
};

/// Bounds of the new moments and of the direction u, in roundings; the exact u given the new moments.
struct Expected {
  Vector moments, moment_bounds;
  double u, u_bound;
};

/// The bounds of the docstrings. SGD's is of the whole step: 6 of its 9 roundings are granted to u here, 3 below.
Expected expected(const SgdRule& rule, const Coordinate& c) {
  const oracle::Slope g = oracle::slope(c.g, c.theta, c.scale, c.coupled);
  if (rule.momentum == 0) return {{}, {}, g.value, 6 * g.magnitude};
  const double old = c.step == 1 ? 0 : c.before[0];
  const double b = oracle::sgd_buffer(old, g.value, rule.momentum, rule.dampening, c.step == 1);
  const double size = rule.momentum * std::abs(old) + g.magnitude;
  return {{b}, {9 * size}, rule.nesterov ? g.value + rule.momentum * b : b, 6 * (g.magnitude + size)};
}
Expected expected(const RmsPropRule& rule, const Coordinate& c) {
  const oracle::Slope g = oracle::slope(c.g, c.theta, c.scale, c.coupled);
  const double v = c.after[0], mean = rule.centered ? c.after[1] : 0;
  Expected e{{oracle::average(c.before[0], g.value * g.value, rule.alpha)},
             {10 * (rule.alpha * c.before[0] + (1 - rule.alpha) * g.magnitude * g.magnitude)},
             oracle::rmsprop_direction(g.value, v, mean, rule.epsilon),
             0};
  e.moments.push_back(rule.centered ? oracle::average(c.before[1], g.value, rule.alpha) : 0);
  e.moment_bounds.push_back(10 * (rule.alpha * std::abs(c.before[1]) + (1 - rule.alpha) * g.magnitude));
  const double left = v - mean * mean, cancellation = rule.centered ? v / std::max<double>(left, 1e-300) : 1;
  // The gradient's own 4 roundings, of g.magnitude, count as the rule's input.
  const double root = std::sqrt(std::max<double>(0, left)) + rule.epsilon;
  e.u_bound = 12 * cancellation * std::abs(e.u) + 4 * g.magnitude / root;
  if (rule.momentum > 0) {
    e.moments.push_back(rule.momentum * c.before[2] + e.u);
    e.moment_bounds.push_back(e.u_bound + 4 * (rule.momentum * std::abs(c.before[2]) + std::abs(e.u)));
    e.u = e.moments[2], e.u_bound = e.moment_bounds[2];
  }
  return e;
}
template <class Variant>
Expected expected(const BasicAdamRule<Variant>& rule, const Coordinate& c) {
  const oracle::Slope g = oracle::slope(c.g, c.theta, c.scale, c.coupled);
  const double u = oracle::adam_direction(c.after[0], c.after[1], rule.beta1, rule.beta2, rule.epsilon, c.step);
  return {
      {oracle::average(c.before[0], g.value, rule.beta1), oracle::average(c.before[1], g.value * g.value, rule.beta2)},
      {10 * (rule.beta1 * std::abs(c.before[0]) + (1 - rule.beta1) * g.magnitude),
       10 * (rule.beta2 * c.before[1] + (1 - rule.beta2) * g.magnitude * g.magnitude)},
      u,
      12 * std::abs(u)};
}

SgdRule drawn(Draw& draw, SgdRule rule) {
  rule.momentum = draw.note("momentum", draw.chance(0.3) ? 0.0 : 0.9);
  rule.nesterov = draw.note("nesterov", rule.momentum > 0 && draw.chance(0.4));
  rule.dampening = draw.note("dampening", rule.nesterov ? 0.0 : 0.25);
  return rule;
}
RmsPropRule drawn(Draw& draw, RmsPropRule rule) {
  rule.centered = draw.note("centered", draw.chance(0.4));
  rule.momentum = draw.note("momentum", draw.chance(0.5) ? 0.0 : 0.9);
  return rule;
}
template <class Variant>
BasicAdamRule<Variant> drawn(Draw& draw, BasicAdamRule<Variant> rule) {
  rule.beta2 = draw.note("beta2", draw.chance(0.5) ? 0.999 : 0.95);
  return rule;
}

/// Four steps of random gradients over a random layout; each step is compared with the definition from the state
/// before it.
template <class S, class Rule>
Study steps(const std::string& name, const std::string& direction, const std::string& moments) {
  return {name,
          "θ, g N(0, 1), 1–4 parameters ≤ 20 × 30, 4 steps; decay, schedule, clipping, rates per group",
          {{name + " θ", direction, in_scalar<S>}, {name + " moments", moments, in_scalar<S>}},
          [](Draw& draw, std::vector<Comparison>& to) {
            Rule rule = drawn(draw, Rule{});
            rule.learning_rate = draw.note("rate", draw.log_uniform(1e-4, 1e-1));
            rule.weight_decay = draw.note("decay", draw.chance(0.5) ? 0.0 : 0.1);
            Optimizer<Rule> optimizer(rule);
            ParameterLayout layout;
            const Index count = draw.size("parameters", 1, 4);
            const ParameterKind kinds[] = {ParameterKind::matrix, ParameterKind::embedding, ParameterKind::gain};
            for (Index i = 0; i < count; ++i) {
              const Index rows = draw.size("rows", 1, 20), cols = draw.size("cols", 1, 30);
              layout.add(message("p", i), rows, cols, kinds[draw.between(0, 2)]);
              layout[i].learning_rate_scale = draw.chance(0.5) ? 1.0 : 0.25;
              layout[i].frozen = draw.chance(0.1);
            }
            Parameters<S> theta(layout), g(layout);
            for (Index i = 0; i < count; ++i)
              for (Index j = 0; j < layout[i].size(); ++j) theta[i].data[j] = static_cast<S>(draw.normal());
            CpuContext<> context(static_cast<int>(draw.between(1, 3)));
            optimizer.template prepare<S>(context, layout);
            for (int step = 1; step <= 4; ++step) {
              const StepOptions options{draw.chance(0.5) ? 1.0 : draw.uniform(0, 1),
                                        draw.chance(0.5) ? 1.0 : draw.uniform(0.1, 1)};
              for (Index i = 0; i < count; ++i)
                for (Index j = 0; j < layout[i].size(); ++j)
                  g[i].data[j] = draw.chance(0.05) ? S(0) : static_cast<S>(draw.normal());
              const Parameters<S> before = theta;
              const std::vector<Buffer<S>> old = optimizer.template state<S>().moments;
              optimizer.step(context, theta, g, options);
              const std::vector<Buffer<S>>& now = optimizer.template state<S>().moments;
              for (Index i = 0; i < count; ++i) {
                const ParameterInfo& info = layout[i];
                const bool decays = info.kind != ParameterKind::gain;
                const double rate = rule.learning_rate * options.learning_rate_factor * info.learning_rate_scale;
                const double decay = decays ? rule.weight_decay : 0.0;
                for (Index j = 0; j < info.size(); ++j) {
                  const Index k = info.offset + j;
                  const double first = static_cast<double>(before.values.data()[k]),
                               last = static_cast<double>(theta.values.data()[k]);
                  if (info.frozen) {
                    to[0].add_exact(last, first);
                    continue;
                  }
                  Coordinate c{first,
                               static_cast<double>(g.values.data()[k]),
                               rate,
                               options.gradient_scale,
                               Rule::decoupled_decay ? 0.0 : decay,
                               Rule::decoupled_decay ? 1 - rate * decay : 1.0,
                               static_cast<double>(step),
                               {},
                               {}};
                  for (std::size_t m = 0; m < now.size(); ++m) {
                    c.before.push_back(old[m].size() > 0 ? static_cast<double>(old[m].data()[k]) : 0.0);
                    c.after.push_back(now[m].size() > 0 ? static_cast<double>(now[m].data()[k]) : 0.0);
                  }
                  const Expected e = expected(rule, c);
                  const double size = std::abs(first) + rate * (std::abs(e.u) + e.u_bound / 6);
                  to[0].add(last, c.keep * first - rate * e.u,
                            3 * std::abs(first) + rate * (e.u_bound + 3 * std::abs(e.u)), size);
                  for (std::size_t m = 0; m < e.moments.size(); ++m)
                    to[1].add(c.after[m], e.moments[m], e.moment_bounds[m], e.moment_bounds[m] / 9);
                }
              }
            }
          }};
}

template <class S>
Study norms_and_schedules() {
  return {"clipping and schedules",
          "1–3 gradients ≤ 300 × 200, N(0, σ²), σ 10⁻³–10³; schedules of ≤ 1000 steps",
          {{"global_norm", "(tile/16 + tiles + 8)·norm", in_double},
           {"clip_scale", "2, absolute", in_double},
           {"Linear, WarmupCosine", "8, absolute", in_double}},
          [](Draw& draw, std::vector<Comparison>& to) {
            ParameterLayout layout;
            const Index count = draw.size("gradients", 1, 3);
            const double scale = draw.log_uniform(1e-3, 1e3);
            for (Index i = 0; i < count; ++i)
              layout.add(message("g", i), draw.size("rows", 1, draw.chance(0.1) ? 300 : 20),
                         draw.size("cols", 1, draw.chance(0.1) ? 200 : 20), ParameterKind::matrix);
            Parameters<S> g(layout);
            long double sum = 0;
            double tiles = 0;
            for (Index i = 0; i < count; ++i) {
              layout[i].frozen = i > 0 && draw.chance(0.2);
              for (Index j = 0; j < layout[i].size(); ++j) {
                g[i].data[j] = static_cast<S>(scale * draw.normal());
                const long double v = static_cast<long double>(g[i].data[j]);
                if (!layout[i].frozen) sum += v * v;
              }
              tiles += std::ceil(static_cast<double>(layout[i].size()) / 16384);
            }
            CpuContext<> context(static_cast<int>(draw.between(1, 3)));
            const double norm = static_cast<double>(std::sqrt(sum)), limit = draw.log_uniform(1e-3, 1e3);
            const double actual = global_norm(context, g, layout);
            to[0].add_relative(actual, norm, 16384.0 / 16 + tiles + 8);
            to[1].add(clip_scale(actual, limit), std::min<double>(1, limit / (actual + 1e-6)), 2, 1);

            const Index total = draw.size("total", 1, 1000), warmup = draw.between(0, total - 1);
            const Index step = draw.note("step", draw.between(1, total + 20));
            const double floor = draw.uniform(0, 1);
            const auto real = [](Index x) { return static_cast<double>(x); };
            to[2].add(Linear{warmup, total, floor}(step),
                      oracle::linear_schedule(real(step), real(warmup), real(total), floor), 8, 1);
            to[2].add(WarmupCosine{warmup, total, floor}(step),
                      oracle::cosine_schedule(real(step), real(warmup), real(total), floor), 8, 1);
          }};
}

}  // namespace

template <class S>
std::vector<Study> optimizer_studies() {
  const std::string averages = "10 of the terms of m and v";
  return {steps<S, SgdRule>("Sgd", "3\\|θ\\| + 9·lr·(\\|g\\| + λ\\|θ\\| + \\|b\\|)", "9 of the terms of b"),
          steps<S, RmsPropRule>(
              "RmsProp", "3\\|θ\\| + lr·(15\\|u\\| + 4\\|g\\|/(√v + ε)), centered 12\\|u\\|v/(v − ḡ²)", averages),
          steps<S, AdamRule>("Adam", "3\\|θ\\| + 15·lr·\\|u\\|", averages),
          steps<S, AdamWRule>("AdamW", "3\\|θ\\| + 15·lr·\\|u\\|", averages), norms_and_schedules<S>()};
}
MESO_TEST_STUDIES(optimizer_studies);

}  // namespace meso::test
