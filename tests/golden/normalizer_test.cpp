#include <algorithm>
#include <functional>
#include <meso/normalizer.hpp>
#include <meso/normalizer/null_mass.hpp>

#include "golden.hpp"

using namespace meso;
using namespace meso::test;
using Values = Eigen::ArrayXd;

namespace {

constexpr Index model_context = 12;

/// One row in double: scores, gradient of the weights, golden weights, learned parameter.
struct Known {
  Values z, dp, p;
  double theta;
  double n() const { return static_cast<double>(z.size()); }
};

/// Bounds of one row, in roundings: of p, dz, dtheta, null mass.
struct Bounds {
  Values p, dz;
  double dtheta = 0, null = 0;
};

/// Of weights with `relative` roundings each and dz = factor ∘ (dp − Δ), Δ = Σ p dp:
/// Δ errs by E = Σ p|dp|(relative + n + 1), dz by factor·((relative + 4)·(|dp| + Σ p|dp|) + E).
Bounds of_softmax(const Known& k, const Values& relative, const Values& factor) {
  const Values terms = k.p * k.dp.abs();
  const double delta = terms.sum(), error = (terms * (relative + k.n() + 1)).sum();
  return {k.p * relative, factor * ((relative + 4) * (k.dp.abs() + delta) + error)};
}

/// p_j = e^{z_j}/(e^s + Σ e^z): |z_j − m| + |s| + log(n + 1) + n + 16 roundings; the null mass the same with s for z_j.
/// ds = −p_∅ Δ.
Bounds of_family(const Known& k, double s) {
  const double top = std::max<double>(s, k.z.maxCoeff());
  const double rest = (std::isfinite(s) ? std::abs(s) : 0) + std::log(k.n() + 1) + k.n() + 16;
  const Values relative = (k.z - top).abs() + rest;
  Bounds b = of_softmax(k, relative, k.p);
  if (std::isfinite(s)) {
    const double null = std::exp(s - top) / (std::exp(s - top) + (k.z - top).exp().sum());
    const double own = std::abs(s - top) + rest;
    b.null = null * own;
    b.dtheta = null * (k.p * k.dp.abs() * (relative + k.n() + own + 4)).sum();
  }
  return b;
}

template <class S, class N>
void check_rows(const std::string& name, const N& normalizer, const std::string& theta_name,
                const std::function<Bounds(const Known&)>& bounds) {
  for (const Index keys : {1, 9, 33}) {
    const std::string inputs = "normalizer/rows_" + std::to_string(keys), outputs = inputs + "/" + name;
    const RowMajorMatrix<S> z = golden::load<S>(inputs + "/z"), dp = golden::load<S>(inputs + "/dp");
    const RowMajorMatrix<double> golden_p = golden::load<double>(outputs + "/p");
    RowMajorMatrix<S> theta(z.rows(), 0), p(z.rows(), keys), dz(z.rows(), keys), null(z.rows(), 1);
    if (N::parameters_per_head > 0) theta = golden::load<S>(inputs + "/" + theta_name);
    RowMajorMatrix<S> dtheta = RowMajorMatrix<S>::Zero(theta.rows(), theta.cols());
    std::vector<Bounds> bound;
    for (Index i = 0; i < z.rows(); ++i) {
      const Row row{i, i, keys, model_context};
      const auto in = [&](const RowMajorMatrix<S>& x) { return row_array(cview(x), i); };
      normalizer.forward(row, in(theta), in(z), row_array(view(p), i));
      normalizer.backward(row, in(theta), in(z), in(p), in(dp), row_array(view(dz), i), row_array(view(dtheta), i));
      null(i, 0) = static_cast<S>(null_mass<N, S>(normalizer, row, in(theta), in(z), in(p)));
      const auto values = [&](const auto& x) { return Values(x.row(i).transpose().template cast<double>().array()); };
      bound.push_back(
          bounds({values(z), values(dp), values(golden_p), theta.cols() > 0 ? static_cast<double>(theta(i, 0)) : 0.0}));
    }
    const auto at = [&](Index i) -> const Bounds& { return bound[static_cast<std::size_t>(i)]; };
    BOOST_TEST(golden::agrees<S>(outputs + "/p", p, [&](Index i, Index j) { return at(i).p[j]; }));
    BOOST_TEST(golden::agrees<S>(outputs + "/dz", dz, [&](Index i, Index j) { return at(i).dz[j]; }));
    if (theta.cols() > 0)
      BOOST_TEST(golden::agrees<S>(outputs + "/dtheta", dtheta, [&](Index i, Index) { return at(i).dtheta; }));
    if (std::filesystem::exists(golden::file(outputs + "/null")))
      BOOST_TEST(golden::agrees<S>(outputs + "/null", null, [&](Index i, Index) { return at(i).null; }));
  }
}

BOOST_AUTO_TEST_SUITE(golden_normalizer)

BOOST_AUTO_TEST_CASE_TEMPLATE(null_logit_family, S, golden::Scalars) {
  const double infinity = std::numeric_limits<double>::infinity();
  check_rows<S>("softmax", Softmax{}, "", [&](const Known& k) { return of_family(k, -infinity); });
  check_rows<S>("softmax1", Softmax1{}, "", [](const Known& k) { return of_family(k, 0); });
  check_rows<S>("softmax_n", SoftmaxN{.n = 4}, "", [](const Known& k) { return of_family(k, std::log(4.0)); });
  check_rows<S>("learned_sink", LearnedSink{}, "sink", [](const Known& k) { return of_family(k, k.theta); });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(sigmoid, S, golden::Scalars) {
  // p: |x + b| + |b| + 8 roundings; dz = p(1 − p)dp: 1 − p errs by those of p and one more.
  const auto bounds = [](const Known& k, double b) {
    const Values relative = (k.z - b).abs() + b + 8;
    return Bounds{k.p * relative, k.p * k.dp.abs() * (2 * relative + 4)};
  };
  check_rows<S>("sigmoid", SigmoidAttention{}, "",
                [&](const Known& k) { return bounds(k, std::log(static_cast<double>(model_context))); });
  check_rows<S>("sigmoid_visible", SigmoidAttention{SigmoidAttention::Bias::visible}, "",
                [&](const Known& k) { return bounds(k, std::log(k.n())); });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(relu, S, golden::Scalars) {
  check_rows<S>("relu", ReluAttention{}, "", [](const Known& k) { return Bounds{k.p, k.dp.abs() / k.n()}; });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(softpick, S, golden::Scalars) {
  // p: |x − m| + log n + n + 32 roundings; dz = e^x/(Σ|e^x − 1| + ε)·(dp or 0 − ±Δ).
  check_rows<S>("softpick", Softpick{}, "", [](const Known& k) {
    const double top = std::max<double>(0, k.z.maxCoeff());
    const Values relative = (k.z - top).abs() + std::log(k.n()) + k.n() + 32;
    const double sum = (k.z.unaryExpr([](double v) { return std::abs(std::expm1(v)); })).sum() + 1e-8;
    return of_softmax(k, relative, k.z.exp() / sum);
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(scalable_softmax, S, golden::Scalars) {
  // y = c·x, c = s·log n: p has 8·max|y| + log n + n + 16 roundings; dx = c·dy; ds = log n·Σ x·dy.
  check_rows<S>("ssmax", ScalableSoftmax{}, "ssmax", [](const Known& k) {
    const double c = std::abs(k.theta) * std::log(k.n());
    const double top = 8 * c * k.z.abs().maxCoeff() + std::log(k.n()) + k.n() + 16;
    Bounds b = of_softmax(k, Values::Constant(k.z.size(), top), k.p);
    b.dtheta = std::log(k.n()) * (k.z.abs() * (k.n() + 4) * b.dz).sum();
    b.dz *= 4 * c;
    return b;
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(sparsemax, S, golden::Scalars) {
  // p: n + 4 absolute roundings of numbers ≤ 1; dz = dp − mean(dp).
  check_rows<S>("sparsemax", Sparsemax{}, "", [](const Known& k) {
    return Bounds{Values::Constant(k.z.size(), k.n() + 4),
                  Values::Constant(k.z.size(), (k.n() + 3) * k.dp.abs().maxCoeff())};
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(sinkhorn, S, golden::Scalars) {
  struct Shape {
    Index rows, cols;
  };
  struct Options {
    double epsilon;
    Index iterations;
  };
  for (const auto [rows, cols] : {Shape{5, 7}, {6, 6}, {1, 4}, {4, 1}})
    for (const auto [epsilon, iterations] : {Options{1, 3}, {0.5, 4}, {1, 1}}) {
      const std::string inputs = "normalizer/sinkhorn_" + std::to_string(rows) + "_" + std::to_string(cols),
                        outputs = inputs + "/iterations_" + std::to_string(iterations);
      const RowMajorMatrix<S> z = golden::load<S>(inputs + "/z"), dp = golden::load<S>(inputs + "/dp");
      RowMajorMatrix<S> p(rows, cols), dz(rows, cols);
      const Sinkhorn normalizer{.epsilon = epsilon, .iterations = iterations};
      const ConstArray<S> none(nullptr, 0);
      normalizer.forward_matrix(ScoreMatrix{0, model_context}, none, cview(z), view(p));
      normalizer.backward_matrix(ScoreMatrix{0, model_context}, none, cview(z), cview(p), cview(dp), view(dz),
                                 Array<S>(nullptr, 0));
      // p: the stated bound. A step of the backward pass, dL −= P ∘ sum(dL), at most doubles Σ|dL| ≤ max|dp|·Σp (times
      // C/R by columns) and adds the roundings of P and of its sum.
      const double steps = static_cast<double>(iterations), r = static_cast<double>(rows),
                   c = static_cast<double>(cols);
      const double relative = (steps + 1) * (golden::largest(z) / epsilon * 4 + r + c + 24);
      const double growth = std::pow(2.0, steps) * (steps + 1) * std::max<double>(1, c / r);
      const double gradient = growth * (relative + r + c) * golden::largest(dp) * r / epsilon;
      BOOST_TEST(golden::agrees<S>(outputs + "/p", p,
                                   [&](Index i, Index j) { return relative * static_cast<double>(p(i, j)); }));
      BOOST_TEST(golden::agrees<S>(outputs + "/dz", dz, [&](Index, Index) { return gradient; }));
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
