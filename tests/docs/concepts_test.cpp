// The types of docs/concepts.md, word for word, and one use of each. The first test holds the page to that.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <fstream>
#include <iterator>
#include <meso/meso.hpp>
#include <string>

#include "tests/support/gradient_check.hpp"
#include "tests/support/random.hpp"

namespace {

using meso::Array, meso::ConstArray, meso::Index, meso::View;

struct CubicAttention {
  static constexpr Index parameters_per_head = 0;
  static constexpr bool scaled_scores = true;

  template <class S>
  void forward(const meso::Row& row, ConstArray<S>, ConstArray<S> z, Array<S> p) const {
    p = z.cube() / std::sqrt(static_cast<S>(row.context));
  }
  template <class S>
  void backward(const meso::Row& row, ConstArray<S>, ConstArray<S> z, ConstArray<S>, ConstArray<S> dp, Array<S> dz,
                Array<S>) const {
    dz = S(3) / std::sqrt(static_cast<S>(row.context)) * z.square() * dp;  // p = z³/√T
  }
};

struct ColumnSoftmax {
  static constexpr Index parameters_per_head = 0;
  static constexpr bool scaled_scores = true;

  template <class S>
  void forward_matrix(const meso::ScoreMatrix&, ConstArray<S>, const View<const S>& z, const View<S>& p) const {
    using Columns = Eigen::Array<S, 1, Eigen::Dynamic>;
    const Columns top = meso::map(z).colwise().maxCoeff().array();
    meso::map(p) = (meso::map(z).array().rowwise() - top).exp().matrix();
    const Columns sum = meso::map(p).colwise().sum().array();
    meso::map(p).array().rowwise() /= sum;
  }
  template <class S>
  void backward_matrix(const meso::ScoreMatrix&, ConstArray<S>, const View<const S>&, const View<const S>& p,
                       const View<const S>& dp, const View<S>& dz, Array<S>) const {
    using Columns = Eigen::Array<S, 1, Eigen::Dynamic>;
    const Columns delta = meso::map(p).cwiseProduct(meso::map(dp)).colwise().sum().array();
    meso::map(dz) = (meso::map(p).array() * (meso::map(dp).array().rowwise() - delta)).matrix();
  }
};

struct FixedSink {
  double logit = 2;

  static constexpr Index parameters_per_head = 0;
  static constexpr bool scaled_scores = true;

  template <class S>
  S null_logit(const meso::Row&, ConstArray<S>) const {
    return static_cast<S>(logit);
  }
  template <class S>
  void forward(const meso::Row&, ConstArray<S>, ConstArray<S> z, Array<S> p) const {
    meso::null_logit_forward<S>(static_cast<S>(logit), z, p);
  }
  template <class S>
  void backward(const meso::Row&, ConstArray<S>, ConstArray<S>, ConstArray<S> p, ConstArray<S> dp, Array<S> dz,
                Array<S>) const {
    meso::null_logit_backward<S>(p, dp, dz);
  }
};

struct AbsNorm {
  double epsilon = 1e-5;

  static constexpr Index saved_per_row = 1;
  Index parameter_count(Index) const { return 1; }
  Index declare(meso::ParameterLayout& layout, const std::string& prefix, Index) const {
    return layout.add(prefix + ".gain", 1, 1, meso::ParameterKind::gain);
  }
  template <class S>
  void initialize(Index, Array<S> theta) const {
    theta[0] = S(1);
  }

  template <class S>
  void forward(ConstArray<S> theta, ConstArray<S> x, Array<S> y, Array<S> saved) const {
    saved[0] = S(1) / (x.abs().mean() + static_cast<S>(epsilon));
    y = x * (theta[0] * saved[0]);
  }
  template <class S>
  void backward(ConstArray<S> theta, ConstArray<S> x, ConstArray<S> saved, ConstArray<S> dy, Array<S> dx,
                Array<S> dtheta) const {
    const S r = saved[0], dot = (dy * x).sum();
    dtheta[0] += r * dot;  // y = γ·r·x, r = 1/(mean|x| + ε)
    dx = (theta[0] * r) * (dy - x.sign() * (r * dot / static_cast<S>(x.size())));
  }
};

struct Unordered {
  static constexpr bool learned_table = false;
};

struct OnePairRotary {
  double angle = 0.1;

  static constexpr bool learned_table = false;
  Index table_size(Index) const { return 2; }

  template <class S>
  void fill(Index position, Index, Array<S> row) const {
    row[0] = static_cast<S>(std::cos(angle * static_cast<double>(position)));
    row[1] = static_cast<S>(std::sin(angle * static_cast<double>(position)));
  }
  template <class S>
  void rotate(ConstArray<S> row, Array<S> x) const {
    const S a = x[0], b = x[1];
    x[0] = a * row[0] - b * row[1];
    x[1] = a * row[1] + b * row[0];
  }
  template <class S>
  void rotate_back(ConstArray<S> row, Array<S> x) const {
    const S a = x[0], b = x[1];
    x[0] = a * row[0] + b * row[1];
    x[1] = b * row[0] - a * row[1];
  }
};

struct Prefix {
  Index length = 2;

  meso::KeyRange visible(Index query, Index keys) const { return {0, std::min(std::max(query + 1, length), keys)}; }
};

struct SquaredRelu {
  static constexpr bool gated = false;

  template <class S>
  void forward(ConstArray<S> x, Array<S> y) const {
    y = x.cwiseMax(S(0)).square();
  }
  template <class S>
  void backward(ConstArray<S> x, ConstArray<S> dy, Array<S> dx) const {
    dx = S(2) * x.cwiseMax(S(0)) * dy;
  }
};

struct Bilinear {
  static constexpr bool gated = true;

  template <class S>
  void forward(ConstArray<S> gate, ConstArray<S> up, Array<S> y) const {
    y = gate * up;
  }
  template <class S>
  void backward(ConstArray<S> gate, ConstArray<S> up, ConstArray<S> dy, Array<S> dgate, Array<S> dup) const {
    dgate = dy * up;
    dup = dy * gate;
  }
};

struct Own {
  using Normalizer = CubicAttention;
  using Norm = AbsNorm;
  using Position = OnePairRotary;
  using Mlp = SquaredRelu;
  using Mask = Prefix;
  static constexpr bool bias = true;
  static constexpr bool tied = true;
};
struct OwnFixedSink : Own {
  using Normalizer = FixedSink;
};

struct SignRule {
  double learning_rate = 1e-4;
  double weight_decay = 0;
  double beta = 0.9;

  static constexpr int moments = 1;
  static constexpr bool decoupled_decay = true;

  template <class S>
  void direction(Index, ConstArray<S> g, Array<S> u, Array<S> m) const {
    m = static_cast<S>(beta) * m + static_cast<S>(1 - beta) * g;
    u = m.sign();
  }
};
using SignDescent = meso::Optimizer<SignRule>;
using RotatedSignDescent = meso::Optimizer<SignRule, meso::KroneckerRotation>;

struct Reversal {
  struct Plan {
    template <class Products, class S>
    void rotate(meso::CpuContext<Products>&, View<const S> in, View<S> out) const {
      std::reverse_copy(in.data, in.data + in.size(), out.data);
    }
    template <class Products, class S>
    void rotate_back(meso::CpuContext<Products>& context, View<const S> in, View<S> out) const {
      rotate(context, in, out);
    }
  };

  template <class S>
  Plan prepare(std::string_view, Index, Index) const {
    return {};
  }
};

struct InverseRoot {
  double operator()(Index step) const { return 1 / std::sqrt(static_cast<double>(step)); }
};

struct PowerOfTwoScale {
  using Storage = std::int8_t;

  template <class S, class R>
  meso::QuantizationGrid<S> grid(S lo, S hi, const R&) const {
    const S top = std::max(std::abs(lo), std::abs(hi));
    if (top == S(0)) return {};
    int exponent = 0;
    std::frexp(top / S(127), &exponent);
    return {std::ldexp(S(1), exponent), 0, -127, 127};
  }
};

struct RoundDown {
  template <class S>
  std::int32_t operator()(S x) const {
    return static_cast<std::int32_t>(std::floor(x));
  }
};

struct ClippedLinear {
  double limit = 6;

  template <class Products, class S>
  void operator()(meso::CpuContext<Products>& context, const meso::Parameters<S>& parameters, Index weight, Index count,
                  Index bias, const meso::ConstView<S>& x, const View<S>& y) const {
    const S top = static_cast<S>(limit);
    const meso::RowMajorMatrix<S> clipped = meso::map(x).cwiseMin(top).cwiseMax(-top);
    meso::FloatLinear{}(context, parameters, weight, count, bias, meso::view(clipped), y);
  }
};

struct StopWhenGood {
  double loss = 1;

  bool operator()(const meso::StepReport& report) const { return report.loss > loss; }
};

struct CountingBatches {
  Index vocabulary = 8;

  void operator()(Index number, meso::Batch& batch) const {
    batch.time = 4;
    batch.tokens.resize(8);
    batch.targets.resize(8);
    for (std::size_t i = 0; i < 8; ++i) {
      batch.tokens[i] = static_cast<meso::Token>((number + static_cast<Index>(i)) % vocabulary);
      batch.targets[i] = static_cast<meso::Token>((number + static_cast<Index>(i) + 1) % vocabulary);
    }
  }
};

template <class S>
constexpr bool all_concepts_hold() {
  static_assert(meso::Normalizer<CubicAttention, S>);
  static_assert(meso::MatrixNormalizer<ColumnSoftmax, S>);
  static_assert(meso::NullLogitNormalizer<FixedSink, S>);
  static_assert(!meso::NullLogitNormalizer<CubicAttention, S>);
  static_assert(meso::Norm<AbsNorm, S>);
  static_assert(meso::Position<Unordered>);
  static_assert(!meso::RotatingPosition<Unordered, S>);
  static_assert(meso::RotatingPosition<OnePairRotary, S>);
  static_assert(meso::Mask<Prefix>);
  static_assert(meso::ElementwiseActivation<SquaredRelu, S>);
  static_assert(meso::GatedActivation<Bilinear, S>);
  static_assert(meso::Architecture<Own, S>);
  static_assert(meso::Architecture<OwnFixedSink, S>);
  static_assert(meso::UpdateRule<SignRule, S>);
  static_assert(meso::Rotation<Reversal, S>);
  static_assert(meso::Schedule<InverseRoot>);
  static_assert(meso::QuantizationScheme<PowerOfTwoScale, S>);
  static_assert(meso::Rounding<RoundDown, S>);
  return true;
}
static_assert(all_concepts_hold<float>() && all_concepts_hold<double>());

using meso::test::gradient_agrees;
using Vector = Eigen::ArrayXd;

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  BOOST_TEST_REQUIRE(in.good(), path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The C++ blocks of a Markdown page, in order.
std::vector<std::string> blocks_of(const std::string& page) {
  std::vector<std::string> blocks;
  const std::string open = "```cpp\n", close = "```\n";
  for (std::size_t at = page.find(open); at != std::string::npos; at = page.find(open, at)) {
    at += open.size();
    blocks.push_back(page.substr(at, page.find(close, at) - at));
  }
  return blocks;
}

Vector gaussian(Index n, std::uint64_t seed) {
  const meso::RowMajorMatrix<double> x = meso::test::gaussian<double>(n, 1, seed);
  return x.array();
}
template <class V>
auto in(const V& x) {
  return meso::array(static_cast<const double*>(x.data()), x.size());
}
template <class V>
auto out(V& x) {
  return meso::array(x.data(), x.size());
}

BOOST_AUTO_TEST_CASE(the_pages_show_what_is_tested) {
  const std::string root = MESO_SOURCE_DIR "/", own = text_of(root + "tests/docs/concepts_test.cpp"),
                    readme = text_of(root + "examples/readme.cpp");
  const std::vector<std::string> concepts = blocks_of(text_of(root + "docs/concepts.md"));
  BOOST_TEST(concepts.size() >= 16U);
  for (const std::string& block : concepts) BOOST_TEST((own.find(block) != std::string::npos), block);
  const std::vector<std::string> sample = blocks_of(text_of(root + "README.md"));
  BOOST_TEST_REQUIRE(!sample.empty());
  BOOST_TEST(sample.front() == readme);
}

BOOST_AUTO_TEST_CASE(normalizers) {
  const Index n = 5;
  const meso::Row row{0, 4, n, 8};
  Vector z = gaussian(n, 1), dp = gaussian(n, 2), p(n), dz(n);
  const auto check = [&](const auto& normalizer) {
    Vector none(0);
    const auto f = [&](const double*) {
      normalizer.forward(row, in(none), in(z), out(p));
      return (p * dp).sum();
    };
    f(nullptr);
    normalizer.backward(row, in(none), in(z), in(p), in(dp), out(dz), out(none));
    BOOST_TEST(gradient_agrees("dz", f, z.data(), n, dz.data()));
  };
  check(CubicAttention{});
  check(FixedSink{});
  FixedSink{}.forward(row, in(Vector(0)), in(z), out(p));
  BOOST_TEST(meso::null_mass(FixedSink{}, row, in(Vector(0)), in(z), in(p)) + p.sum() == 1.0,
             boost::test_tools::tolerance(1e-14));

  meso::RowMajorMatrix<double> x = meso::test::gaussian<double>(4, 3, 3), w(4, 3), dx(4, 3);
  const meso::RowMajorMatrix<double> dw = meso::test::gaussian<double>(4, 3, 4);
  Vector none(0);
  const auto f = [&](const double*) {
    ColumnSoftmax{}.forward_matrix({}, in(none), meso::test::cview(x), meso::view(w));
    return w.cwiseProduct(dw).sum();
  };
  f(nullptr);
  ColumnSoftmax{}.backward_matrix({}, in(none), meso::test::cview(x), meso::test::cview(w), meso::view(dw),
                                  meso::view(dx), out(none));
  BOOST_TEST(gradient_agrees("dx", f, x.data(), x.size(), dx.data()));
  BOOST_TEST(meso::apply(ColumnSoftmax{}, x).colwise().sum().isOnes(1e-14));
}

BOOST_AUTO_TEST_CASE(an_own_architecture_trains) {
  meso::CpuContext<> context(1);
  meso::Transformer<double, Own> model({.vocabulary = 8, .width = 8, .layers = 1, .heads = 2, .context = 4});
  meso::Parameters<double>& parameters = model.parameters();
  for (Index i = 0; i < parameters.layout.count(); ++i)  // far from the initial symmetry
    for (Index j = 0; j < parameters[i].size(); ++j)
      parameters[i].data[j] +=
          0.3 * meso::Random{1, static_cast<std::uint64_t>(i)}.normal(static_cast<std::uint64_t>(j));
  meso::Batch batch;
  CountingBatches{}(0, batch);
  meso::TransformerCache<double> cache;
  auto gradients = model.gradients();
  model.forward(context, batch.tokens, batch.time, cache);
  model.backward(context, batch.targets, cache, gradients);
  const auto loss = [&](const double*) {
    const View<const double> logits = model.forward(context, batch.tokens, batch.time, cache);
    return meso::cross_entropy<meso::PackedProducts, double>(context, logits, batch.targets, {}).mean();
  };
  for (const meso::ParameterInfo& info : parameters.layout)
    BOOST_TEST(gradient_agrees(info.name, loss, parameters[info.name].data, info.size(), gradients[info.name].data,
                               {.rounding = 4096, .magnitude = 10, .allowed_unresolved = info.size() / 8}));

  RotatedSignDescent optimizer({.learning_rate = 3e-3});
  const Index steps =
      meso::train(context, model, optimizer, InverseRoot{}, CountingBatches{}, {.steps = 400}, StopWhenGood{1.0});
  BOOST_TEST(steps < 400);
  const double plain = meso::evaluate(context, model, CountingBatches{}, 4, cache).mean();
  const double unclipped = meso::evaluate(context, model, CountingBatches{}, 4, cache, ClippedLinear{1e9}).mean();
  const double clipped = meso::evaluate(context, model, CountingBatches{}, 4, cache, ClippedLinear{0.1}).mean();
  BOOST_TEST(plain == unclipped);
  BOOST_TEST(plain < clipped);
}

BOOST_AUTO_TEST_CASE(optimizers) {
  Eigen::VectorXd theta = Eigen::VectorXd::Constant(3, 1.0), gradient(3);
  gradient << 2, 0, -1;
  SignDescent({.learning_rate = 0.5}).step(theta, gradient);
  BOOST_TEST((theta == Eigen::Vector3d(0.5, 1.0, 1.5)));
  Eigen::VectorXd reversed = Eigen::VectorXd::Constant(3, 1.0);
  meso::Optimizer<SignRule, Reversal>({.learning_rate = 0.5}).step(reversed, gradient);
  BOOST_TEST((reversed == theta));
}

BOOST_AUTO_TEST_CASE(activations_and_quantizers) {
  const Eigen::MatrixXd x = meso::test::gaussian<double>(3, 4, 5), y = meso::test::gaussian<double>(3, 4, 6);
  BOOST_TEST((meso::apply(SquaredRelu{}, x) == x.cwiseMax(0.0).cwiseAbs2()));
  BOOST_TEST((meso::apply(Bilinear{}, x, y) == x.cwiseProduct(y)));
  Vector gate = gaussian(4, 7), up = gaussian(4, 8), dy = gaussian(4, 9), h(4), dgate(4), dup(4);
  const auto f = [&](const double*) {
    Bilinear{}.forward(in(gate), in(up), out(h));
    return (h * dy).sum();
  };
  Bilinear{}.backward(in(gate), in(up), in(dy), out(dgate), out(dup));
  BOOST_TEST(gradient_agrees("dgate", f, gate.data(), 4, dgate.data()));
  BOOST_TEST(gradient_agrees("dup", f, up.data(), 4, dup.data()));

  const Eigen::Vector4d values(-1.0, 0.3, 0.0, 127.0);
  const Eigen::MatrixXd rounded = meso::fake_quantize(values, PowerOfTwoScale{}, meso::per_tensor, RoundDown{});
  BOOST_TEST((rounded == Eigen::Vector4d(-2.0, 0.0, 0.0, 126.0)));
}

}  // namespace
