#include <meso/cuda/clip.cuh>
#include <meso/cuda/optimizer.cuh>

#include "tests/cuda/device_test.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/extreme_gradients.hpp"
#include "tests/support/oracle_optim.hpp"

using namespace meso;
using namespace meso::test;

namespace {

ParameterLayout layout_of_kinds() {
  ParameterLayout layout;
  layout.add("matrix", 5, 61, ParameterKind::matrix);
  layout.add("bias", 1, 61, ParameterKind::bias);
  layout.add("frozen", 2, 17, ParameterKind::matrix);
  layout.add("table", 7, 11, ParameterKind::embedding);
  layout.freeze("frozen");
  layout.scale_learning_rate("table", 0.5);
  return layout;
}

/// What one coordinate remembers.
struct Coordinate {
  double theta = 0, moments[3] = {}, first_error = 0;
};

double direction(const cuda::SgdRule& r, Coordinate& c, double g, Index t) {
  if (r.momentum == 0) return g;
  c.moments[0] = oracle::sgd_buffer(c.moments[0], g, r.momentum, r.dampening, t == 1);
  return r.nesterov ? g + r.momentum * c.moments[0] : c.moments[0];
}
double direction(const cuda::RmsPropRule& r, Coordinate& c, double g, Index) {
  c.moments[0] = oracle::average(c.moments[0], g * g, r.alpha);
  if (r.centered) c.moments[1] = oracle::average(c.moments[1], g, r.alpha);
  double u = oracle::rmsprop_direction(g, c.moments[0], c.moments[1], r.epsilon);
  if (r.momentum > 0) u = c.moments[2] = r.momentum * c.moments[2] + u;
  return u;
}
template <class Variant>
double direction(const BasicAdamRule<Variant>& r, Coordinate& c, double g, Index t) {
  c.moments[0] = oracle::average(c.moments[0], g, r.beta1);
  c.moments[1] = oracle::average(c.moments[1], g * g, r.beta2);
  return oracle::adam_direction(c.moments[0], c.moments[1], r.beta1, r.beta2, r.epsilon, static_cast<double>(t));
}

/// Four steps from the same gradients. Each step adds 3u|θ| + 15·lr·u|direction|, and errors of moments add as much
/// again: 40u of max(|θ|, lr·|direction|) a step holds for all rules.
template <class C, class Rule>
void check_rule(const Rule& rule) {
  const double u = roundoff<C>();
  on_device([&](cuda::Context& context) {
    cuda::Parameters<C> theta(layout_of_kinds()), gradient(theta.layout);
    const ParameterLayout& layout = theta.layout;
    const auto size = static_cast<std::size_t>(layout.size());
    std::vector<C> values(size, C(0)), slopes(size, C(0));
    std::vector<Coordinate> expected(size);
    for (const ParameterInfo& info : layout)
      for (Index i = info.offset; i < info.offset + info.size(); ++i)
        values[oracle::at(i)] = static_cast<C>(Random{1, 1}.normal(static_cast<std::uint64_t>(i)));
    for (std::size_t i = 0; i < size; ++i) expected[i].theta = static_cast<double>(values[i]);
    cuda::upload(context, values.data(), layout.size(), theta.values.data());
    cuda::Optimizer<Rule> optimizer(rule);
    for (Index t = 1; t <= 4; ++t) {
      for (const ParameterInfo& info : layout)
        for (Index i = info.offset; i < info.offset + info.size(); ++i)
          slopes[oracle::at(i)] =
              static_cast<C>(Random{2, static_cast<std::uint64_t>(t)}.normal(static_cast<std::uint64_t>(i)));
      cuda::upload(context, slopes.data(), layout.size(), gradient.values.data());
      const StepOptions options{.learning_rate_factor = 0.75, .gradient_scale = 0.5};
      optimizer.step(context, theta, gradient, options);
      for (const ParameterInfo& info : layout) {
        if (info.frozen) continue;
        const bool decays = info.kind == ParameterKind::matrix || info.kind == ParameterKind::embedding;
        const double decay = decays ? rule.weight_decay : 0;
        const double rate = rule.learning_rate * 0.75 * info.learning_rate_scale;
        for (Index i = info.offset; i < info.offset + info.size(); ++i) {
          Coordinate& c = expected[oracle::at(i)];
          const double g =
              0.5 * static_cast<double>(slopes[oracle::at(i)]) + (Rule::decoupled_decay ? 0 : decay * c.theta);
          const double d = direction(rule, c, g, t);
          c.first_error += 40 * u * (std::abs(c.theta) + rate * (1 + std::abs(d)));
          c.theta = (Rule::decoupled_decay ? 1 - rate * decay : 1) * c.theta - rate * d;
        }
      }
    }
    cuda::download(context, theta.values.data(), layout.size(), values.data());
    for (const ParameterInfo& info : layout)
      for (Index i = info.offset; i < info.offset + info.size(); ++i) {
        const Coordinate& c = expected[oracle::at(i)];
        const double value = static_cast<double>(values[oracle::at(i)]);
        if (info.frozen) {
          MESO_CHECK(value == c.theta);
          continue;
        }
        MESO_CHECK_WITHIN(value, c.theta, c.first_error);
      }
    for (const C padding : {values[305], values[319]}) MESO_CHECK(padding == C(0));
  });
}

}  // namespace

MESO_TEST_SUITE(cuda_optimizer)

MESO_TEST(sgd) {
  check_rule<float>(cuda::SgdRule{.learning_rate = 0.1, .weight_decay = 0.1});
  check_rule<float>(cuda::SgdRule{.learning_rate = 0.1, .momentum = 0.9, .dampening = 0.1});
  check_rule<double>(cuda::SgdRule{.learning_rate = 0.1, .momentum = 0.9, .nesterov = true});
}
MESO_TEST(rmsprop) {
  check_rule<float>(cuda::RmsPropRule{.weight_decay = 0.1});
  check_rule<double>(cuda::RmsPropRule{.momentum = 0.9, .centered = true});
}
MESO_TEST(adam) {
  check_rule<float>(cuda::AdamRule{.weight_decay = 0.1});
  check_rule<double>(cuda::AdamRule{});
}
MESO_TEST(adamw) { check_rule<float>(cuda::AdamWRule{.weight_decay = 0.1}); }

/// Steps at rate 1 from 0, so that θ is minus the direction: never more than bound(t).
template <class C, class Rule, class Bound>
void check_bound(Rule rule, Bound&& bound) {
  rule.learning_rate = 1;
  rule.weight_decay = 0;
  ParameterLayout layout;
  layout.add("theta", 1, extreme_sequences, ParameterKind::matrix);
  for (const double epsilon : {0.0, 1e-50, 1e-30, 1e-8})
    on_device([&](cuda::Context& context) {
      rule.epsilon = epsilon;
      cuda::Optimizer<Rule> optimizer(rule);
      cuda::Parameters<C> theta(layout), gradient(layout);
      std::vector<C> values(static_cast<std::size_t>(extreme_sequences)), zeros = values;
      for (Index t = 1; t <= 40; ++t) {
        for (Index i = 0; i < extreme_sequences; ++i) values[oracle::at(i)] = extreme_gradient<C>(i, t);
        cuda::upload(context, values.data(), extreme_sequences, gradient.values.data());
        cuda::upload(context, zeros.data(), extreme_sequences, theta.values.data());
        optimizer.step(context, theta, gradient);
        cuda::download(context, theta.values.data(), extreme_sequences, values.data());
        const double most = bound(t);
        MESO_CHECK(std::all_of(values.begin(), values.end(), [&](C u) { return std::abs(as_double(u)) <= most; }));
      }
    });
}

MESO_TEST(updates_keep_the_bound_of_exact_arithmetic) {
  const auto adam = [](double u) {
    return [u](Index t) { return adam_bound(0.9, 0.999, t) * (1 + (4.5 * static_cast<double>(t) + 8) * u); };
  };
  const auto rmsprop = [](const RmsPropRule& rule, double u) {
    return [=](Index t) {
      const double roundings = 6 + (rule.momentum > 0 ? 3 * static_cast<double>(t) : 0);
      return rmsprop_bound(rule.alpha, rule.momentum, rule.centered, u, t) * (1 + roundings * u);
    };
  };
  check_bound<float>(cuda::AdamRule{}, adam(roundoff<float>()));
  check_bound<double>(cuda::AdamWRule{}, adam(roundoff<double>()));
  for (const RmsPropRule& rule :
       {RmsPropRule{}, RmsPropRule{.centered = true}, RmsPropRule{.alpha = 0.5, .momentum = 0.9, .centered = true}}) {
    check_bound<float>(rule, rmsprop(rule, roundoff<float>()));
    check_bound<double>(rule, rmsprop(rule, roundoff<double>()));
  }
}

/// θ after one step from 1 with one gradient for all elements.
template <class Rule>
float after_one_step(const Rule& rule, float slope) {
  float value = 1;
  on_device([&](cuda::Context& context) {
    ParameterLayout layout;
    layout.add("theta", 1, 1, ParameterKind::matrix);
    cuda::Parameters<float> theta(layout), gradient(layout);
    value = 1;
    cuda::upload(context, &value, 1, theta.values.data());
    cuda::upload(context, &slope, 1, gradient.values.data());
    cuda::Optimizer<Rule>(rule).step(context, theta, gradient);
    cuda::download(context, theta.values.data(), 1, &value);
  });
  return value;
}

MESO_TEST(zero_over_zero_is_zero_and_what_is_not_finite_shows) {
  for (const double epsilon : {0.0, 1e-50}) {
    MESO_CHECK(after_one_step(cuda::AdamRule{.epsilon = epsilon}, 0) == 1);
    MESO_CHECK(after_one_step(cuda::RmsPropRule{.epsilon = epsilon}, 0) == 1);
    MESO_CHECK(after_one_step(cuda::RmsPropRule{.epsilon = epsilon, .centered = true}, 0) == 1);
  }
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    MESO_CHECK(!std::isfinite(after_one_step(cuda::AdamRule{}, bad)));
    MESO_CHECK(!std::isfinite(after_one_step(cuda::RmsPropRule{}, bad)));
    MESO_CHECK(!std::isfinite(after_one_step(cuda::RmsPropRule{.centered = true}, -bad)));
  }
}

MESO_TEST(bad_hyper_parameters_are_refused_with_the_messages_of_the_cpu) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  MESO_CHECK(error_of([] { cuda::Optimizer<cuda::AdamRule>({.learning_rate = 0}); }) ==
             "optimizer: learning_rate is 0, expected a finite number > 0");
  MESO_CHECK(error_of([&] { cuda::Optimizer<cuda::AdamWRule>({.weight_decay = nan}); }) ==
             "optimizer: weight_decay is nan, expected a finite number >= 0");
  MESO_CHECK(error_of([] { cuda::Optimizer<cuda::AdamRule>({.beta2 = 1}); }) ==
             "Adam: beta2 is 1, expected a number in [0, 1)");
  MESO_CHECK(error_of([] { cuda::Optimizer<cuda::RmsPropRule>({.alpha = -0.5}); }) ==
             "RmsProp: alpha is -0.5, expected a number in [0, 1)");
  MESO_CHECK(error_of([] { cuda::Optimizer<cuda::SgdRule>({.nesterov = true}); }) ==
             "Sgd: nesterov expects momentum > 0 and dampening 0, but they are 0 and 0");
}

MESO_TEST(another_layout_scalar_or_factor_is_refused_with_the_messages_of_the_cpu) {
  on_device([](cuda::Context& context) {
    cuda::Parameters<float> theta(layout_of_kinds()), gradient(theta.layout);
    cuda::Optimizer<cuda::AdamRule> optimizer;
    ParameterLayout one;
    one.add("matrix", 5, 61, ParameterKind::matrix);
    const cuda::Parameters<float> other(one);
    MESO_CHECK(error_of([&] { optimizer.step(context, theta, other); }) ==
               "optimizer: the parameters are 4 in a buffer of 512 elements but the gradients are 1 in 320");
    const double infinity = std::numeric_limits<double>::infinity();
    MESO_CHECK(error_of([&] { optimizer.step(context, theta, gradient, {.learning_rate_factor = infinity}); }) ==
               "optimizer: learning_rate_factor is inf, expected a finite number >= 0");
    const double nan = std::numeric_limits<double>::quiet_NaN();
    MESO_CHECK(error_of([&] { optimizer.step(context, theta, gradient, {.gradient_scale = nan}); }) ==
               "optimizer: gradient_scale is nan, expected a finite number >= 0");
    optimizer.rule.beta2 = 1;
    MESO_CHECK(error_of([&] { optimizer.step(context, theta, gradient); }) ==
               "Adam: beta2 is 1, expected a number in [0, 1)");
    optimizer.rule.beta2 = 0.999;
    optimizer.rule.learning_rate = -1;
    MESO_CHECK(error_of([&] { optimizer.step(context, theta, gradient); }) ==
               "optimizer: learning_rate is -1, expected a finite number > 0");
    optimizer.rule.learning_rate = 1e-3;
    theta.layout.scale_learning_rate("bias", nan);
    MESO_CHECK(error_of([&] { optimizer.step(context, theta, gradient); }) ==
               "optimizer: learning_rate_scale of bias is nan, expected a finite number >= 0");
    theta.layout.scale_learning_rate("bias", 1);
    MESO_CHECK(optimizer.steps() == 0);
    optimizer.step(context, theta, gradient);
    ParameterLayout renamed;
    renamed.add("matrix", 61, 5, ParameterKind::matrix);
    for (Index i = 1; i < 4; ++i) {
      const ParameterInfo& info = theta.layout[i];
      renamed.add(info.name, info.rows, info.cols, info.kind);
    }
    cuda::Parameters<float> turned(renamed);
    MESO_CHECK(error_of([&] { optimizer.step(context, turned, cuda::Parameters<float>(renamed)); }) ==
               "optimizer: parameter 0 was matrix (5, 61) in the first step and is matrix (61, 5) now; one optimizer "
               "serves one set of parameters (reset forgets it)");
    cuda::Parameters<double> wide(theta.layout);
    MESO_CHECK(error_of([&] { optimizer.step(context, wide, cuda::Parameters<double>(theta.layout)); }) ==
               "optimizer: the first step was of float parameters and this one is of double; one optimizer serves one "
               "set of parameters (reset forgets it)");
    MESO_CHECK(optimizer.steps() == 1);
    optimizer.reset();
    MESO_CHECK(error_of([&] { optimizer.step(context, wide, cuda::Parameters<double>(theta.layout)); }) == "no error");
    MESO_CHECK(optimizer.steps() == 1);
  });
}

MESO_TEST(norm_of_all_gradients) {
  on_device([](cuda::Context& context) {
    ParameterLayout layout;
    layout.add("a", 130, 301, ParameterKind::matrix);
    layout.add("b", 1, 7, ParameterKind::bias);
    layout.add("c", 3, 3, ParameterKind::matrix);
    cuda::Parameters<float> gradient(layout);
    std::vector<float> values(static_cast<std::size_t>(layout.size()), 0.0f);
    double all = 0, without_b = 0;
    for (const ParameterInfo& info : layout)
      for (Index i = info.offset; i < info.offset + info.size(); ++i) {
        const float x = static_cast<float>(1e20 * Random{1, 1}.normal(static_cast<std::uint64_t>(i)));
        values[oracle::at(i)] = x;
        all += static_cast<double>(x) * static_cast<double>(x);
        if (info.name != "b") without_b += static_cast<double>(x) * static_cast<double>(x);
      }
    cuda::upload(context, values.data(), layout.size(), gradient.values.data());
    MESO_CHECK_WITHIN(cuda::global_norm(context, gradient), std::sqrt(all), 1e-13 * std::sqrt(all));
    layout.freeze("b");
    MESO_CHECK_WITHIN(cuda::global_norm(context, gradient, layout), std::sqrt(without_b), 1e-13 * std::sqrt(without_b));
  });
}

/// Signs of an axis: ±1/√p, one or two passes.
oracle::Vector signs_of(Index size, std::uint64_t seed) {
  const double power = std::exp2(std::floor(std::log2(static_cast<double>(size))));
  oracle::Vector signs;
  for (Index i = 0; i < static_cast<Index>(power < static_cast<double>(size) ? 2 * power : power); ++i)
    signs.push_back((Random{seed, 1}.bits(static_cast<std::uint64_t>(i)) & 1 ? -1 : 1) / std::sqrt(power));
  return signs;
}

/// v = H v, by H_2p = [H_p H_p; H_p −H_p].
void walsh(double* v, Index power) {
  if (power == 1) return;
  const Index half = power / 2;
  walsh(v, half);
  walsh(v + half, half);
  for (Index i = 0; i < half; ++i) {
    const double low = v[i], high = v[half + i];
    v[i] = low + high;
    v[half + i] = low - high;
  }
}
/// Signs and H on [0, p), then, if p < d, on [d − p, d).
oracle::Vector hadamard_axis(oracle::Vector v, const oracle::Vector& signs) {
  const Index size = static_cast<Index>(v.size()), passes = static_cast<Index>(signs.size()) == size ? 1 : 2;
  const Index power = static_cast<Index>(signs.size()) / passes;
  for (Index pass = 0; pass < passes; ++pass) {
    double* const first = v.data() + pass * (size - power);
    for (Index i = 0; i < power; ++i) first[i] *= signs[oracle::at(pass * power + i)];
    walsh(first, power);
  }
  return v;
}

/// Against the definition, and back. A block holds factors of 1,024 and 4,096 numbers at most: the shapes lie around
/// both, along rows and along columns, up to three launches an axis.
MESO_TEST(hadamard_is_its_definition_and_its_inverse_undoes_it) {
  const std::vector<std::pair<Index, Index>> shapes = {
      {1, 1},     {1, 2},    {1, 7},    {3, 5},    {20, 33},  {5, 2500}, {2500, 3}, {1, 1023}, {2, 1024},
      {33, 1025}, {1024, 2}, {1025, 1}, {2, 4095}, {1, 4096}, {1, 4097}, {4097, 2}, {2, 50257}};
  on_device([&](cuda::Context& context) {
    for (const auto& size : shapes) {
      const Index rows = size.first, cols = size.second;
      const auto axis = [&](const oracle::Vector& signs, Index length) {
        cuda::HadamardAxis<double> a;
        a.size = length;
        while (2 * a.power <= length) a.power *= 2;
        a.signs.resize(static_cast<Index>(signs.size()));
        cuda::upload(context, signs.data(), a.signs.size(), a.signs.data());
        return a;
      };
      const oracle::Vector row_signs = signs_of(rows, 3), col_signs = signs_of(cols, 4);
      const auto r = axis(row_signs, rows), c = axis(col_signs, cols);
      DeviceMatrix<double> x(context, rows, cols, 0, 1), y(context, rows, cols), z(context, rows, cols);
      cuda::hadamard_rotate<double>(context, r, c, false, x.constant(), y.view());
      cuda::hadamard_rotate<double>(context, r, c, true, y.constant(), z.view());
      oracle::Matrix expected = x.values();
      const oracle::Matrix in = expected;
      double norm = 0;
      for (const double v : in.data) norm += v * v;
      norm = std::sqrt(norm);
      for (Index i = 0; i < rows; ++i) {
        const oracle::Vector turned = hadamard_axis(expected.row(i), col_signs);
        std::copy(turned.begin(), turned.end(), expected.data.begin() + i * cols);
      }
      for (Index j = 0; j < cols && rows > 1; ++j) {
        oracle::Vector column;
        for (Index i = 0; i < rows; ++i) column.push_back(expected(i, j));
        column = hadamard_axis(column, row_signs);
        for (Index i = 0; i < rows; ++i) expected(i, j) = column[oracle::at(i)];
      }
      // The op's bound, twice: of the reference too.
      const double logs = std::log2(static_cast<double>(rows)) + std::log2(static_cast<double>(cols));
      const double bound = 2 * (2 * logs + 8) * roundoff<double>() * norm;
      check_matrix("rotated", y.values(), expected, [&](Index, Index) { return bound; });
      check_matrix("back", z.values(), in, [&](Index, Index) { return bound; });
      MESO_CHECK(y.intact() && z.intact());
    }
  });
}

MESO_TEST_SUITE_END()
