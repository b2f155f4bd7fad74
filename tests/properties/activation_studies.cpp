#include <boost/test/unit_test.hpp>
#include <meso/layer/gelu.hpp>
#include <meso/layer/mlp.hpp>
#include <meso/layer/relu.hpp>
#include <meso/layer/swiglu.hpp>
#include <string>

#include "studies.hpp"

namespace meso::test {

namespace {

/// f(x), f'(x) and their absolute bounds, in roundings.
struct Stated {
  double y, slope, y_bound, slope_bound;
};

Stated stated(const Gelu&, double x) { return {oracle::gelu(x), oracle::gelu_derivative(x), 8 * std::abs(x), 10}; }
Stated stated(const GeluTanh&, double x) {
  const double s = 1 / (1 + std::exp(-2 * std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
  return {oracle::gelu_tanh(x), oracle::gelu_tanh_derivative(x), 11 * std::abs(x),
          18 + 2 * s * std::abs(x) * (1.6 + 0.22 * x * x)};
}
Stated stated(const Relu&, double x) { return {x > 0 ? x : 0, x > 0 ? 1.0 : 0.0, 0, 0}; }

template <class S, class A>
Study elementwise(const std::string& name, const std::string& forward, const std::string& backward) {
  return {name,
          "N(0, σ²), σ ≤ 6, windows ≤ 30 × 150",
          {{name + " y", forward, in_scalar<S>}, {name + " dx", backward, in_scalar<S>}},
          [](Draw& draw, std::vector<Comparison>& to) {
            const Index rows = draw.size("rows", 0, 30), cols = draw.size("cols", 0, 150);
            const Window<S> x = draw.normals<S>(rows, cols, draw.note("scale", draw.log_uniform(0.01, 6))),
                            dy = draw.normals<S>(rows, cols);
            Window<S> out = draw.window<S>(rows, cols), dx = draw.window<S>(rows, cols);
            CpuContext<> context(static_cast<int>(draw.between(1, 3)));
            activation_forward<PackedProducts, A, S>(context, A{}, x.view(), out.view());
            activation_backward<PackedProducts, A, S>(context, A{}, x.view(), dy.view(), dx.view());
            for (Index i = 0; i < rows; ++i)
              for (Index j = 0; j < cols; ++j) {
                const double v = x(i, j), d = dy(i, j);
                const Stated s = stated(A{}, v);
                to[0].add(static_cast<double>(out(i, j)), s.y, s.y_bound, std::abs(v));
                to[1].add(static_cast<double>(dx(i, j)), d * s.slope, std::abs(d) * s.slope_bound, std::abs(d));
              }
            to[0].require(out.intact(), "y written outside its window");
            to[1].require(dx.intact(), "dx written outside its window");
          }};
}

template <class S>
Study swiglu() {
  return {"SwiGlu",
          "N(0, σ²), σ ≤ 6, windows ≤ 30 × 150",
          {{"SwiGlu y", "10\\|y\\|", in_scalar<S>},
           {"SwiGlu dgate", "\\|dy·up\\|·σ(g)(10 + 15\\|g\\|)", in_scalar<S>},
           {"SwiGlu dup", "10\\|dup\\|", in_scalar<S>}},
          [](Draw& draw, std::vector<Comparison>& to) {
            const Index rows = draw.size("rows", 0, 30), cols = draw.size("cols", 0, 150);
            const Window<S> x = draw.normals<S>(rows, 2 * cols, draw.note("scale", draw.log_uniform(0.01, 6))),
                            dy = draw.normals<S>(rows, cols);
            Window<S> y = draw.window<S>(rows, cols), dx = draw.window<S>(rows, 2 * cols);
            CpuContext<> context(static_cast<int>(draw.between(1, 3)));
            activation_forward<PackedProducts, SwiGlu, S>(context, SwiGlu{}, x.view(), y.view());
            activation_backward<PackedProducts, SwiGlu, S>(context, SwiGlu{}, x.view(), dy.view(), dx.view());
            for (Index i = 0; i < rows; ++i)
              for (Index j = 0; j < cols; ++j) {
                const double gate = x(i, j), up = x(i, cols + j), d = dy(i, j);
                to[0].add_relative(static_cast<double>(y(i, j)), oracle::silu(gate) * up, 10);
                const double scale = std::abs(d * up) / (1 + std::exp(-gate));
                to[1].add(static_cast<double>(dx(i, j)), d * up * oracle::silu_derivative(gate),
                          scale * (10 + 15 * std::abs(gate)), scale * (1 + std::abs(gate)));
                to[2].add_relative(static_cast<double>(dx(i, cols + j)), d * oracle::silu(gate), 10);
              }
            to[0].require(y.intact(), "y written outside its window");
            to[1].require(dx.intact(), "dx written outside its window");
          }};
}

}  // namespace

template <class S>
std::vector<Study> activation_studies() {
  return {elementwise<S, Gelu>("Gelu", "8\\|x\\|", "10\\|dy\\|"),
          elementwise<S, GeluTanh>("GeluTanh", "11\\|x\\|", "(18 + 2σ(2v)\\|x\\|(1.6 + 0.22x²))\\|dy\\|"),
          elementwise<S, Relu>("Relu", "0", "0"), swiglu<S>()};
}
MESO_TEST_STUDIES(activation_studies);

}  // namespace meso::test
