#include <boost/test/unit_test.hpp>
#include <meso/normalizer.hpp>
#include <meso/normalizer/null_mass.hpp>
#include <string>

#include "rows.hpp"
#include "studies.hpp"

namespace meso::test {

namespace {

using oracle::Vector;

/// A run of n numbers at any alignment.
template <class S>
class Run {
 public:
  Run(Draw& draw, Index n, S fill)
      : offset_(oracle::at(draw.between(0, 15))), data_(oracle::at(n) + offset_ + 8, fill) {
    size_ = n;
  }
  Run(Draw& draw, const Vector& x) : Run(draw, static_cast<Index>(x.size()), S(0)) {
    for (std::size_t i = 0; i < x.size(); ++i) data_[offset_ + i] = static_cast<S>(x[i]);
  }
  Array<S> out() { return array(data_.data() + offset_, size_); }
  ConstArray<S> in() const { return array(data_.data() + offset_, size_); }
  double operator[](std::size_t i) const { return static_cast<double>(data_[offset_ + i]); }

 private:
  std::size_t offset_;
  Index size_;
  std::vector<S> data_;
};

template <class S>
Vector normals(Draw& draw, Index n, double scale, double mean = 0) {
  Vector x;
  for (Index i = 0; i < n; ++i) x.push_back(static_cast<double>(static_cast<S>(mean + scale * draw.normal())));
  return x;
}

const char* const gradient_bound = "p·(Σ(n + 1 + ε)p\\|dp\\| + (2 + ε)\\|dp − Δ\\|), ε of p";

/// `bounds`: of p, dz, dtheta and the null mass, in this order; the last two if there are any.
template <class S, class N>
Study rows(const std::string& name, const N& normalizer, const std::vector<std::string>& bounds) {
  Study study{name, "1–200 keys, scores N(μ, σ²), \\|μ\\| ≤ 5, σ ≤ 8", {}, {}};
  constexpr bool learned = N::parameters_per_head > 0, null = NullLogitNormalizer<N, S> && !std::is_same_v<N, Softmax>;
  const char* const results[] = {" p", " dz", learned ? " dθ" : " p_∅", " p_∅"};
  for (std::size_t k = 0; k < bounds.size(); ++k)
    study.quantities.push_back({name + results[k], bounds[k], in_scalar<S>});
  study.run = [normalizer](Draw& draw, std::vector<Comparison>& to) {
    const Index n = draw.size("keys", 0, draw.chance(0.2) ? 200 : 24);
    const double scale = draw.note("scale", draw.log_uniform(0.02, 8)), mean = draw.note("mean", draw.uniform(-5, 5));
    RowCase x{normals<S>(draw, n, scale, mean), normals<S>(draw, n, 1), 0, n + draw.between(0, 9), unit_roundoff<S>};
    if (draw.chance(0.2) && n > 1) x.z[1] = x.z[0];
    if (draw.chance(0.1) && n > 1) x.z[oracle::at(n) - 1] = 0;
    x.theta = static_cast<double>(static_cast<S>(draw.uniform(-2, 2)));
    draw.note("theta", x.theta);
    const RowAnswer expected = answer(normalizer, x);

    Run<S> z(draw, x.z), dp(draw, x.dp), p(draw, n, S(-7)), dz(draw, n, S(-7));
    Run<S> theta(draw, Vector(static_cast<std::size_t>(N::parameters_per_head), x.theta)),
        dtheta(draw, N::parameters_per_head, S(0));
    const Row row{0, n > 0 ? n - 1 : 0, n, x.context};
    normalizer.forward(row, theta.in(), z.in(), p.out());
    normalizer.backward(row, theta.in(), z.in(), p.in(), dp.in(), dz.out(), dtheta.out());
    for (std::size_t j = 0; j < x.z.size(); ++j) {
      to[0].add(p[j], expected.p[j], expected.p_bound[j], std::is_same_v<N, Sparsemax> ? 1.0 : std::abs(expected.p[j]));
      if (std::isfinite(expected.dz_bound[j]))
        to[1].add(dz[j], expected.dz[j], expected.dz_bound[j], expected.dz_terms[j]);
    }
    std::size_t next = 2;
    if (learned && n > 0) to[next].add(dtheta[0], expected.dtheta, expected.dtheta_bound, expected.dtheta_terms);
    next += learned;
    if (null && n > 0)
      to[next].add(null_mass<N, S>(normalizer, row, theta.in(), z.in(), p.in()), expected.null, expected.null_bound,
                   expected.null);
  };
  return study;
}

/// lse = log(e^s + Σ e^z).
template <class S>
Study log_sum_exp() {
  return {"null_logit_forward",
          "1–200 keys, scores N(μ, σ²), \\|μ\\| ≤ 5, σ ≤ 8; \\|s\\| ≤ 8",
          {{"null_logit_forward lse", "2n + 16 + \\|lse\\|", in_scalar<S>}},
          [](Draw& draw, std::vector<Comparison>& to) {
            const Index n = draw.size("keys", 1, draw.chance(0.2) ? 200 : 24);
            const Vector z = normals<S>(draw, n, draw.log_uniform(0.02, 8), draw.uniform(-5, 5));
            const double s = static_cast<double>(static_cast<S>(draw.note("s", draw.uniform(-8, 8))));
            Run<S> in(draw, z), p(draw, n, S(-7));
            double sum = std::exp(s);
            for (const double v : z) sum += std::exp(v);
            const double lse = std::log(sum), actual = null_logit_forward<S>(static_cast<S>(s), in.in(), p.out());
            to[0].add(actual, lse, 2 * static_cast<double>(n) + 16 + std::abs(lse), std::max<double>(1, std::abs(lse)));
          }};
}

template <class S>
Study sinkhorn() {
  return {"Sinkhorn",
          "≤ 12 × 12, x/ε N(0, σ²), σ ≤ 4, 1–5 iterations",
          {{"Sinkhorn p", "(T + 1)(4·max\\|x\\|/ε + R + C + 24), T iterations", in_scalar<S>},
           {"Sinkhorn dx", "2^T(T + 1)(ε_p + R + C + 3)·Σp\\|dp\\|/ε, ε_p of p", in_scalar<S>}},
          [](Draw& draw, std::vector<Comparison>& to) {
            const Index rows = draw.size("rows", 0, 12), cols = draw.size("cols", 0, 12);
            const Sinkhorn normalizer{.epsilon = std::ldexp(1.0, static_cast<int>(draw.between(-1, 1))),
                                      .iterations = draw.size("iterations", 1, 5)};
            draw.note("epsilon", normalizer.epsilon);
            const Window<S> z = draw.normals<S>(rows, cols, normalizer.epsilon * draw.log_uniform(0.1, 4)),
                            dp = draw.normals<S>(rows, cols);
            Window<S> p = draw.window<S>(rows, cols), dz = draw.window<S>(rows, cols);
            const ConstArray<S> none(nullptr, 0);
            normalizer.forward_matrix(ScoreMatrix{0, cols}, none, z.view(), p.view());
            normalizer.backward_matrix(ScoreMatrix{0, cols}, none, z.view(), p.constant(), dp.view(), dz.view(),
                                       Array<S>(nullptr, 0));
            const Vector x = z.values().data, slope = dp.values().data;
            const Vector expected = oracle::sinkhorn(x, rows, cols, normalizer.epsilon, normalizer.iterations);
            const Vector gradient =
                oracle::sinkhorn_backward(x, rows, cols, normalizer.epsilon, normalizer.iterations, slope);
            double top = 0, sum = 0;
            for (std::size_t i = 0; i < x.size(); ++i) {
              top = std::max<double>(top, std::abs(x[i]) / normalizer.epsilon);
              sum += expected[i] * std::abs(slope[i]);
            }
            const double t = static_cast<double>(normalizer.iterations), sizes = static_cast<double>(rows + cols);
            const double relative = (t + 1) * (4 * top + sizes + 24);
            const double bound = std::exp2(t) * (t + 1) * (relative + sizes + 3) * sum / normalizer.epsilon;
            for (Index i = 0; i < rows; ++i)
              for (Index j = 0; j < cols; ++j) {
                const std::size_t k = oracle::at(i * cols + j);
                to[0].add_relative(static_cast<double>(p(i, j)), expected[k], relative);
                to[1].add(static_cast<double>(dz(i, j)), gradient[k], bound, sum / normalizer.epsilon);
              }
            to[0].require(p.intact(), "p written outside its window");
            to[1].require(dz.intact(), "dz written outside its window");
          }};
}

}  // namespace

template <class S>
std::vector<Study> normalizer_studies() {
  const std::string null = "\\|s − m\\| + log(n + 1) + n + 16";
  return {
      rows<S>("Softmax", Softmax{}, {"\\|x − m\\| + log n + n + 16", gradient_bound}),
      rows<S>("Softmax1", Softmax1{}, {"\\|x − m\\| + m + n + 16", gradient_bound, null}),
      rows<S>("SoftmaxN", SoftmaxN{.n = 4}, {"\\|x − m\\| + \\|log N\\| + log(n + 1) + n + 16", gradient_bound, null}),
      rows<S>("LearnedSink", LearnedSink{},
              {"\\|x − m\\| + log(n + 1) + n + 16", gradient_bound, "p_∅·(Σ(n + 1 + ε)p\\|dp\\| + (2 + ε_∅)\\|Δ\\|)",
               null}),
      log_sum_exp<S>(),
      rows<S>("SigmoidAttention", SigmoidAttention{},
              {"\\|x + b\\| + \\|b\\| + 8", "p\\|dp\\|(\\|x + b\\| + \\|b\\| + 11)"}),
      rows<S>("SigmoidAttention, b = −log n", SigmoidAttention{SigmoidAttention::Bias::visible},
              {"\\|x + b\\| + \\|b\\| + 8", "p\\|dp\\|(\\|x + b\\| + \\|b\\| + 11)"}),
      rows<S>("ReluAttention", ReluAttention{}, {"1", "1"}),
      rows<S>("Softpick", Softpick{},
              {"\\|x − m\\| + log n + n + 32", "e^x/D·(Σ(n + 1 + ε)p\\|dp\\| + (3 + ε)\\|1[x>0]dp − Δ\\|), ε of p"}),
      rows<S>("ScalableSoftmax", ScalableSoftmax{},
              {"8·max\\|y\\| + log n + n + 16", "\\|c\\|·(that of softmax's dy + 3\\|dy\\|)",
               "log n·Σ\\|x\\|(that of dy + (n + 3)\\|dy\\|)"}),
      rows<S>("Sparsemax", Sparsemax{}, {"n + 4, absolute", "\\|dp\\| + (n + 2)·mean\\|dp\\| on the support"}),
      sinkhorn<S>(),
  };
}
MESO_TEST_STUDIES(normalizer_studies);

}  // namespace meso::test
