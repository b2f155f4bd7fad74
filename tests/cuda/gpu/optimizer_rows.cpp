// Optimizers, rotated and not, and the norm that clips.
#include <meso/cuda/clip.cuh>

#include "tests/cuda/gpu/plans.hpp"
#include "tests/cuda/gpu/table.hpp"
#include "tests/support/oracle_optim.hpp"

namespace meso::table {
namespace {

namespace oracle = test::oracle;

/// Directions of two steps from the gradients g and g/2, in double, one coordinate.
struct Coordinate {
  double moments[3] = {};
};
double direction(const SgdRule& r, Coordinate& c, double g, Index t) {
  return c.moments[0] = oracle::sgd_buffer(c.moments[0], g, r.momentum, r.dampening, t == 1);
}
double direction(const RmsPropRule& r, Coordinate& c, double g, Index) {
  c.moments[0] = oracle::average(c.moments[0], g * g, r.alpha);
  return oracle::rmsprop_direction(g, c.moments[0], 0, r.epsilon);
}
template <class Variant>
double direction(const BasicAdamRule<Variant>& r, Coordinate& c, double g, Index t) {
  c.moments[0] = oracle::average(c.moments[0], g, r.beta1);
  c.moments[1] = oracle::average(c.moments[1], g * g, r.beta2);
  return oracle::adam_direction(c.moments[0], c.moments[1], r.beta1, r.beta2, r.epsilon, static_cast<double>(t));
}

/// Two steps of a square matrix on the device against the same in double on the host. `bytes` an element; `products` of
/// the matrix with blocks of Reflections::most.
template <class Rule, class Plans>
double optimizer_row(Table& table, const std::string& name, const Rule& rule, const Plans& plans, double bytes,
                     double products = 0) {
  cuda::Context& context = table.context;
  return table.line(name, "float", 1e-4, table.float_rate, [&](Index rows) {
    const Index n = rows > table.sizes.checked ? table.sizes.parameter : (std::min<Index>)(rows, 24) + 13;
    ParameterLayout layout;
    layout.add(rotated_name, n, n, ParameterKind::matrix);
    const auto theta = std::make_shared<cuda::Parameters<float>>(layout);
    const auto gradient = std::make_shared<cuda::Parameters<float>>(layout);
    const auto optimizer = std::make_shared<cuda::Optimizer<Rule, Plans>>(rule, plans);
    const Array<float> g(context, n, n, 5), start(context, n, n, 6);
    cuda::copy(context, g.data(), n * n, gradient->values.data());
    cuda::copy(context, start.data(), n * n, theta->values.data());
    const double scale = rows > table.sizes.checked ? 1 : 0.5;
    return Op{[=, &context] { optimizer->step(context, *theta, *gradient, {.gradient_scale = scale}); },
              [=, &context] {
                optimizer->step(context, *theta, *gradient, {.gradient_scale = 0.25});
                std::vector<float> values(at(n * n));
                cuda::download(context, theta->values.data(), n * n, values.data());
                Matrix expected = start.values();
                std::vector<Coordinate> state(at(n * n));
                for (Index t = 1; t <= 2; ++t) {
                  Matrix slope = g.values();
                  for (std::size_t i = 0; i < slope.data.size(); ++i) {
                    slope.data[i] *= t == 1 ? 0.5 : 0.25;
                    if (!Rule::decoupled_decay) slope.data[i] += rule.weight_decay * expected.data[i];
                  }
                  slope = on_host(plans, slope, false);
                  for (std::size_t i = 0; i < slope.data.size(); ++i)
                    slope.data[i] = direction(rule, state[i], slope.data[i], t);
                  slope = on_host(plans, slope, true);
                  for (std::size_t i = 0; i < slope.data.size(); ++i) {
                    if (Rule::decoupled_decay) expected.data[i] *= 1 - rule.learning_rate * rule.weight_decay;
                    expected.data[i] -= rule.learning_rate * slope.data[i];
                  }
                }
                return largest_error(oracle::Vector(values.begin(), values.end()), expected.data);
              },
              bytes * static_cast<double>(n * n),
              products * 2 * static_cast<double>(n * n * (std::min<Index>)(n, Reflections::most))};
  });
}

}  // namespace

void optimizer_rows(Table& table) {
  cuda::Context& context = table.context;
  table.line("global_norm", "float", 1e-6, 1, [&](Index rows) {
    const Index n = rows > table.sizes.checked ? table.sizes.parameter : rows;
    ParameterLayout layout;
    layout.add(rotated_name, n, n, ParameterKind::matrix);
    const auto gradient = std::make_shared<cuda::Parameters<float>>(layout);
    const auto norm = std::make_shared<double>(0);
    const Array<float> g(context, n, n, 5);
    cuda::copy(context, g.data(), n * n, gradient->values.data());
    return Op{[=, &context] { *norm = cuda::global_norm(context, *gradient); },
              [=] {
                double sum = 0;
                for (const double x : g.values().data) sum += x * x;
                return largest_error({*norm}, {std::sqrt(sum)});
              },
              g.bytes()};
  });
  // Bytes an element: gradient, values and moments, read, and written but for the gradient.
  optimizer_row(table, "Sgd, momentum", SgdRule{.learning_rate = 0.01, .momentum = 0.9}, cuda::NoRotation{}, 20);
  optimizer_row(table, "RmsProp", RmsPropRule{}, cuda::NoRotation{}, 20);
  const double adam = optimizer_row(table, "AdamW", AdamWRule{.learning_rate = 0.01}, cuda::NoRotation{}, 28);
  const auto ratio = [&](const char* name, double ms) {
    std::printf("%-32s %-5s %21.3f times AdamW\n", name, "float", ms / adam);
  };
  ratio("OrthoAdam Hadamard",
        optimizer_row(table, "OrthoAdam Hadamard", OrthoAdamRule{.learning_rate = 0.01}, HadamardSigns{}, 28));
  ratio("OrthoAdam Kronecker",
        optimizer_row(table, "OrthoAdam Kronecker", OrthoAdamRule{.learning_rate = 0.01}, Reflections{}, 0, 4));
}

}  // namespace meso::table
