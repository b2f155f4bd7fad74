#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <functional>
#include <meso/optim.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/allocations.hpp"
#include "support/random.hpp"
#include "support/tolerance.hpp"

using namespace meso;
using meso::test::allocations;
using meso::test::within;

namespace {

constexpr double u64 = test::unit_roundoff<double>;

/// A rule of a user: Lion, u = sign(β1·m + (1−β1)g), m = β2·m + (1−β2)g.
struct LionRule {
  double learning_rate = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  static constexpr int moments = 1;
  static constexpr bool decoupled_decay = true;

  template <class S>
  void direction(Index, ConstArray<S> g, Array<S> u, Array<S> m) const {
    u = (static_cast<S>(beta1) * m + static_cast<S>(1 - beta1) * g).sign();
    m = static_cast<S>(beta2) * m + static_cast<S>(1 - beta2) * g;
  }
};
/// The smallest one: no state, not a template.
struct SignRule {
  double learning_rate = 1;
  double weight_decay = 0;
  static constexpr int moments = 0;
  static constexpr bool decoupled_decay = false;
  void direction(Index, ConstArray<double> g, Array<double> u) const { u = g.sign(); }
};
struct NoRule {
  double learning_rate = 1, weight_decay = 0;
  static constexpr int moments = 1;
  static constexpr bool decoupled_decay = false;
  void direction(Index, ConstArray<double>, Array<double>) const {}  // lacks its moment
};
static_assert(UpdateRule<SgdRule, float> && UpdateRule<RmsPropRule, double> && UpdateRule<AdamRule, float> &&
              UpdateRule<AdamWRule, double> && UpdateRule<OrthoAdamRule, float>);
static_assert(UpdateRule<LionRule, float> && UpdateRule<SignRule, double>);
static_assert(!UpdateRule<SignRule, float> && !UpdateRule<NoRule, double> && !UpdateRule<AdamRule, int>);

ParameterLayout small_model() {
  ParameterLayout layout;
  layout.add("embedding", 11, 6, ParameterKind::embedding);
  layout.add("q", 6, 6, ParameterKind::matrix);
  layout.add("k", 6, 6, ParameterKind::matrix, ParameterLayout::Placement::packed);
  layout.add("gain", 1, 6, ParameterKind::gain);
  layout.add("bias", 1, 7, ParameterKind::bias);
  layout.add("sink", 2, 1, ParameterKind::normalizer);
  return layout;
}

/// More elements than a tile, an odd number of them, and parameters that start off a 64-byte boundary.
ParameterLayout large_model() {
  ParameterLayout layout;
  layout.add("a", 131, 301, ParameterKind::matrix);
  layout.add("b", 67, 301, ParameterKind::matrix, ParameterLayout::Placement::packed);
  layout.add("c", 1, 301, ParameterKind::bias);
  return layout;
}

template <class S>
Parameters<S> filled(const ParameterLayout& layout, std::uint64_t seed) {
  Parameters<S> p(layout);
  for (Index i = 0; i < layout.count(); ++i) fill_normal(p[i], Random{seed, stream_of(layout[i].name)});
  return p;
}

template <class S>
bool same_bits(const Buffer<S>& a, const Buffer<S>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), sizeof(S) * static_cast<std::size_t>(a.size())) == 0;
}
template <class T>
auto matrix(View<T> v) {
  return map(v);
}

bool says(const std::function<void()>& f, const std::vector<std::string>& parts) {
  try {
    f();
  } catch (const std::invalid_argument& e) {
    BOOST_TEST_MESSAGE(e.what());
    for (const std::string& part : parts)
      if (std::string(e.what()).find(part) == std::string::npos) return false;
    return true;
  }
  return false;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(optim_optimizer)

// Over a layout every parameter takes the same step as alone as a plain Eigen matrix.
BOOST_AUTO_TEST_CASE(a_layout_equals_its_parameters_one_by_one) {
  CpuContext<> context(1);
  Parameters<double> theta = filled<double>(small_model(), 1);
  const Parameters<double> start = theta;
  AdamW all({.learning_rate = 0.01, .weight_decay = 0});
  for (std::uint64_t step = 0; step < 5; ++step)
    all.step(context, theta, filled<double>(small_model(), 10 + step), {.gradient_scale = 0.5});
  for (Index i = 0; i < start.layout.count(); ++i) {
    RowMajorMatrix<double> alone = matrix(start[i]);
    AdamW one({.learning_rate = 0.01, .weight_decay = 0});
    for (std::uint64_t step = 0; step < 5; ++step)  // eval() before the temporary dies
      one.step(alone, (0.5 * matrix(filled<double>(small_model(), 10 + step)[i])).eval());
    BOOST_TEST(test::all_within(theta[i].data, alone.data(), alone.size(), [](Index) { return 64 * u64; }),
               start.layout[i].name);
  }
}

BOOST_AUTO_TEST_CASE(padding_stays_zero) {
  CpuContext<> context(1);
  Parameters<float> theta = filled<float>(small_model(), 1);
  OrthoAdam<> optimizer({.weight_decay = 0.1});
  optimizer.step(context, theta, filled<float>(small_model(), 2));
  std::vector<bool> used(static_cast<std::size_t>(theta.values.size()));
  for (const ParameterInfo& info : theta.layout)
    for (Index k = 0; k < info.size(); ++k) used[static_cast<std::size_t>(info.offset + k)] = true;
  for (Index k = 0; k < theta.values.size(); ++k)
    if (!used[static_cast<std::size_t>(k)]) BOOST_TEST(theta.values.data()[k] == 0);
}

BOOST_AUTO_TEST_CASE(frozen_parameters_keep_values_moments_and_count) {
  CpuContext<> context(1);
  Parameters<double> theta = filled<double>(small_model(), 1);
  const Parameters<double> start = theta;
  const Parameters<double> g = filled<double>(small_model(), 2);
  theta.layout["q"].frozen = true;
  AdamW optimizer({.learning_rate = 0.1});
  optimizer.step(context, theta, g);
  optimizer.step(context, theta, g);
  const Index q = theta.layout.find("q"), offset = theta.layout["q"].offset;
  BOOST_TEST((matrix(theta["q"]) == matrix(start["q"])));
  BOOST_TEST((matrix(theta["k"]) != matrix(start["k"])));
  for (const Buffer<double>& moment : optimizer.state<double>().moments)
    BOOST_TEST(array(moment.data() + offset, 36).isZero(0));
  BOOST_TEST(optimizer.state<double>().steps[static_cast<std::size_t>(q)] == 0);
  BOOST_TEST(optimizer.steps() == 2);
  // Unfrozen, it starts as if new: the first Adam step is lr·sign(g), not what a late step makes of empty moments.
  theta.layout["q"].frozen = false;
  optimizer.step(context, theta, g);
  for (Index k = 0; k < 36; ++k) {
    const double x = start["q"].data[k], slope = g["q"].data[k];
    BOOST_TEST(within(theta["q"].data[k], x * (1 - 0.1 * 0.01) - 0.1 * slope / (std::abs(slope) + 1e-8), 64 * u64));
  }
}

BOOST_AUTO_TEST_CASE(learning_rate_scale_and_factor_multiply) {
  CpuContext<> context(1);
  Parameters<double> theta(small_model()), g(small_model());
  for (Index i = 0; i < theta.layout.count(); ++i) matrix(g[i]).setOnes();
  theta.layout["k"].learning_rate_scale = 0.25;
  theta.layout["gain"].learning_rate_scale = 0;
  Sgd optimizer({.learning_rate = 0.5});
  optimizer.step(context, theta, g, {.learning_rate_factor = 0.5, .gradient_scale = 3});
  BOOST_TEST((matrix(theta["q"]).array() == -0.75).all());
  BOOST_TEST((matrix(theta["k"]).array() == -0.1875).all());
  BOOST_TEST(matrix(theta["gain"]).isZero(0));
  optimizer.step(context, theta, g, {.learning_rate_factor = 0});
  BOOST_TEST((matrix(theta["q"]).array() == -0.75).all());
}

template <class O>
void check_decay(O optimizer) {
  CpuContext<> context(1);
  Parameters<double> theta(small_model());
  for (Index i = 0; i < theta.layout.count(); ++i) matrix(theta[i]).setOnes();
  const Parameters<double> g(small_model());
  optimizer.step(context, theta, g);
  for (const char* name : {"embedding", "q", "k"}) BOOST_TEST((matrix(theta[name]).array() < 1).all(), name);
  for (const char* name : {"gain", "bias", "sink"})
    BOOST_TEST((matrix(theta[name]).array() < 1).all() == optimizer.decay_vectors, name);
}
BOOST_AUTO_TEST_CASE(decay_goes_by_kind) {
  for (const bool decay_vectors : {false, true}) {
    Sgd sgd({.weight_decay = 0.1});
    AdamW adamw;
    OrthoAdam<> ortho({.weight_decay = 0.1});
    sgd.decay_vectors = adamw.decay_vectors = ortho.decay_vectors = decay_vectors;
    check_decay(sgd);
    check_decay(adamw);
    check_decay(ortho);
  }
}

BOOST_AUTO_TEST_CASE(plain_vectors_decay_as_in_pytorch_but_not_under_a_rotation) {
  const Eigen::VectorXd zero = Eigen::VectorXd::Zero(5);
  Eigen::VectorXd a = Eigen::VectorXd::Ones(5), b = a, c = a;
  AdamW adamw({.learning_rate = 0.5, .weight_decay = 0.5});
  adamw.step(a, zero);
  BOOST_TEST((a.array() == 0.75).all());
  OrthoAdam<> ortho({.learning_rate = 0.5, .weight_decay = 0.5});
  ortho.step(b, zero);
  BOOST_TEST((b.array() == 1).all());
  ortho.reset();
  ortho.decay_vectors = true;
  ortho.step(c, zero);
  BOOST_TEST((c.array() == 0.75).all());
  Eigen::MatrixXd matrix_parameter = Eigen::MatrixXd::Ones(2, 3);
  OrthoAdam<> other({.learning_rate = 0.5, .weight_decay = 0.5});
  other.step(matrix_parameter, Eigen::MatrixXd::Zero(2, 3));
  BOOST_TEST((matrix_parameter.array() == 0.75).all());
}

// The gradient is scaled first, decay is added after: clipping does not touch the decay.
BOOST_AUTO_TEST_CASE(scale_comes_before_coupled_decay) {
  Eigen::VectorXd theta = Eigen::VectorXd::Constant(3, 2.0);
  Sgd optimizer({.learning_rate = 1.0, .weight_decay = 0.25});
  optimizer.step(theta, Eigen::VectorXd::Constant(3, 1.0), {.gradient_scale = 0.5});
  BOOST_TEST((theta.array() == 2.0 - (0.5 + 0.5)).all());
}

BOOST_AUTO_TEST_CASE(one_count_a_step_and_reset) {
  CpuContext<> context(1);
  const Parameters<float> g = filled<float>(small_model(), 3);
  OrthoAdam<> optimizer;
  BOOST_TEST(optimizer.steps() == 0);
  Parameters<float> first = filled<float>(small_model(), 1);
  optimizer.step(context, first, g);
  BOOST_TEST(optimizer.steps() == 1);  // six parameters, one step
  optimizer.step(context, first, g);
  BOOST_TEST(optimizer.steps() == 2);
  optimizer.reset();
  BOOST_TEST(optimizer.steps() == 0);
  Parameters<float> again = filled<float>(small_model(), 1);
  optimizer.step(context, again, g);
  optimizer.step(context, again, g);
  BOOST_TEST(same_bits(first.values, again.values));
  // After a reset another layout and another scalar are welcome.
  optimizer.reset();
  Eigen::VectorXd x = Eigen::VectorXd::Ones(3);
  optimizer.step(x, x.eval());
  BOOST_TEST(optimizer.steps() == 1);
}

BOOST_AUTO_TEST_CASE(a_copy_continues_on_its_own) {
  CpuContext<> context(1);
  const Parameters<float> g = filled<float>(small_model(), 3);
  Parameters<float> a = filled<float>(small_model(), 1);
  OrthoAdam<> optimizer;
  optimizer.step(context, a, g);
  OrthoAdam<> copy = optimizer;
  Parameters<float> b = a;
  optimizer.step(context, a, g);
  copy.step(context, b, g);
  BOOST_TEST(same_bits(a.values, b.values));
}

// state() is all that a checkpoint needs.
BOOST_AUTO_TEST_CASE(state_restores) {
  CpuContext<> context(1);
  const Parameters<double> g = filled<double>(small_model(), 3);
  Parameters<double> a = filled<double>(small_model(), 1);
  OrthoAdam<> optimizer;
  for (int step = 0; step < 3; ++step) optimizer.step(context, a, g);
  OrthoAdam<> restored;
  restored.prepare<double>(context, a.layout);
  restored.state<double>().moments = optimizer.state<double>().moments;
  restored.state<double>().steps = optimizer.state<double>().steps;
  Parameters<double> b = a;
  optimizer.step(context, a, g);
  restored.step(context, b, g);
  BOOST_TEST(same_bits(a.values, b.values));
}

template <class S, class O>
void check_threads(const O& fresh) {
  Parameters<S> expected;
  for (const int threads : {1, 2, 3}) {
    CpuContext<> context(threads);
    O optimizer = fresh;
    Parameters<S> theta = filled<S>(large_model(), 1);
    for (std::uint64_t step = 0; step < 2; ++step)
      optimizer.step(context, theta, filled<S>(large_model(), 7 + step), {.gradient_scale = 0.7});
    if (threads == 1)
      expected = theta;
    else
      BOOST_TEST(same_bits(theta.values, expected.values), threads << " threads");
  }
}
BOOST_AUTO_TEST_CASE(same_bits_for_any_number_of_threads) {
  check_threads<float>(Adam({.weight_decay = 0.1}));
  check_threads<float>(RmsProp({.momentum = 0.9, .centered = true}));
  check_threads<double>(Sgd({.momentum = 0.9}));
  check_threads<float>(OrthoAdam<>({.weight_decay = 0.1}));
  check_threads<double>(OrthoAdam<KroneckerRotation>({}, {.max_dim = 100}));
  check_threads<float>(OrthoAdam<HadamardRotation>());
  check_threads<double>(OrthoAdam<HadamardRotation>());
}

template <class O>
void check_allocations(O optimizer) {
  for (const int threads : {1, 2}) {
    CpuContext<> context(threads);
    optimizer.reset();
    Parameters<float> theta = filled<float>(large_model(), 1);
    const Parameters<float> g = filled<float>(large_model(), 2);
    optimizer.step(context, theta, g, {.gradient_scale = 0.5});
    const long before = allocations;
    for (int step = 0; step < 3; ++step) optimizer.step(context, theta, g, {.gradient_scale = 0.5});
    BOOST_TEST(allocations == before, allocations - before << " allocations with " << threads << " threads");
  }
}
BOOST_AUTO_TEST_CASE(no_allocation_after_the_first_step) {
  check_allocations(Sgd({.momentum = 0.9, .weight_decay = 0.1}));
  check_allocations(RmsProp({.centered = true}));
  check_allocations(AdamW());
  check_allocations(OrthoAdam<>());
  check_allocations(OrthoAdam<HadamardRotation>());
  Eigen::MatrixXd theta = Eigen::MatrixXd::Ones(30, 20), g = theta;
  OrthoAdam<> plain;
  plain.step(theta, g);
  CpuContext<> context(1);
  const Parameters<float> gradients = filled<float>(large_model(), 2);
  global_norm(context, gradients);
  const long before = allocations;
  plain.step(theta, g);
  global_norm(context, gradients);
  BOOST_TEST(allocations == before);
}

BOOST_AUTO_TEST_CASE(only_the_moments_in_use_are_kept) {
  Eigen::VectorXd x = Eigen::VectorXd::Ones(5);
  const Eigen::VectorXd g = x;
  Sgd sgd;
  sgd.step(x, g);
  BOOST_TEST(sgd.state<double>().moments[0].size() == 0);
  sgd.rule.momentum = 0.5;  // a change in midcourse finds an empty buffer
  sgd.step(x, g);
  BOOST_TEST(sgd.state<double>().moments[0].size() == 16);
  RmsProp rmsprop({.momentum = 0.9});
  rmsprop.step(x, g);
  BOOST_TEST(rmsprop.state<double>().moments[0].size() == 16);
  BOOST_TEST(rmsprop.state<double>().moments[1].size() == 0);
  BOOST_TEST(rmsprop.state<double>().moments[2].size() == 16);
}

// --- plain Eigen data

// Eight rows: whole packets in any order of the elements. The scalar end of a loop may round otherwise, where the compiler
// contracts one and not the other.
BOOST_AUTO_TEST_CASE(every_kind_of_eigen_object) {
  const Eigen::MatrixXd values = test::gaussian<double>(8, 2, 1), slopes = test::gaussian<double>(8, 2, 2);
  const auto result = [&](auto theta, const auto& g) {
    AdamW optimizer({.learning_rate = 0.1, .weight_decay = 0.1});
    optimizer.step(theta, g);
    optimizer.step(theta, g);
    return Eigen::MatrixXd(theta.matrix());
  };
  const Eigen::MatrixXd expected = result(values, slopes);
  BOOST_TEST((expected.array() != values.array()).all());
  BOOST_TEST((result(RowMajorMatrix<double>(values), slopes) == expected));
  BOOST_TEST((result(Eigen::Matrix<double, 8, 2>(values), slopes) == expected));
  BOOST_TEST((result(Eigen::ArrayXXd(values.array()), slopes.array()) == expected));
  BOOST_TEST((result(values, RowMajorMatrix<double>(slopes)) == expected));
  BOOST_TEST((result(values, slopes * Eigen::Matrix2d::Identity()) == expected));  // a product expression
  BOOST_TEST((result(Eigen::MatrixXd(values.transpose()), slopes.transpose()) == expected.transpose()));
  // Vectors, columns, rows and fixed sizes.
  const Eigen::VectorXd v = values.col(0), dv = slopes.col(0);
  const Eigen::MatrixXd step = result(v, dv);
  BOOST_TEST((step == expected.col(0)));
  BOOST_TEST((result(Eigen::RowVectorXd(v.transpose()), dv.transpose()) == step.transpose()));
  BOOST_TEST((result(Eigen::Matrix<double, 8, 1>(v), slopes.col(0)) == step));
  BOOST_TEST((result(Eigen::MatrixXd(v), Eigen::MatrixXd(dv)) == step));
  // A map and a block are lvalues as well.
  Eigen::MatrixXd whole = values;
  Eigen::Map<Eigen::VectorXd> flat(whole.data(), 16);
  auto block = whole.block(1, 0, 2, 2);
  AdamW a({.learning_rate = 0.1, .weight_decay = 0.1}), b = a;
  a.step(flat, Eigen::Map<const Eigen::VectorXd>(slopes.data(), 16));
  BOOST_TEST((whole.array() != values.array()).all());
  const Eigen::MatrixXd after = whole;
  b.step(block, slopes.block(1, 0, 2, 2));
  BOOST_TEST(whole(0, 0) == after(0, 0));
  BOOST_TEST(whole(1, 1) != after(1, 1));
}

const std::vector<std::string> another = {"use an optimizer for each parameter", "reset forgets"};

// Their moments would mix: the second is refused, and the first goes on as if nothing had been.
template <class O>
void check_second_is_refused(O optimizer) {
  Eigen::MatrixXd w1 = Eigen::MatrixXd::Zero(3, 2), w2 = w1, expected = w1;
  const Eigen::MatrixXd g = test::gaussian<double>(3, 2, 1);
  O alone = optimizer;
  optimizer.step(w1, g);
  alone.step(expected, g);
  BOOST_TEST(says([&] { optimizer.step(w2, g); }, another));
  BOOST_TEST(w2.isZero(0));
  BOOST_TEST(optimizer.steps() == 1);
  optimizer.step(w1, g);
  alone.step(expected, g);
  BOOST_TEST((w1 == expected));
  optimizer.reset();
  optimizer.step(w2, g);
  BOOST_TEST(says([&] { optimizer.step(w1, g); }, another));
}
BOOST_AUTO_TEST_CASE(a_second_eigen_parameter_is_refused) {
  check_second_is_refused(Sgd());
  check_second_is_refused(RmsProp());
  check_second_is_refused(AdamW());
  check_second_is_refused(OrthoAdam<>());
  // Natural calls: a list of parameters, columns of a matrix, arrays of a program.
  std::vector<Eigen::VectorXf> list(3, Eigen::VectorXf::Ones(5));
  const Eigen::VectorXf g = Eigen::VectorXf::Ones(5);
  Adam of_list, of_columns, of_maps;
  BOOST_TEST(says(
      [&] {
        for (Eigen::VectorXf& w : list) of_list.step(w, g);
      },
      {"the (5, 1) parameter of this step lies elsewhere"}));
  Eigen::MatrixXf whole = Eigen::MatrixXf::Ones(5, 2);
  auto first = whole.col(0), second = whole.col(1);
  of_columns.step(first, g);
  BOOST_TEST(says([&] { of_columns.step(second, g); }, another));
  std::vector<float> a(5), b(5);
  Eigen::Map<Eigen::VectorXf> map_a(a.data(), 5), map_b(b.data(), 5);
  of_maps.step(map_a, g);
  BOOST_TEST(says([&] { of_maps.step(map_b, g); }, another));
}

// The same parameter in another place, or with other values in its place.
BOOST_AUTO_TEST_CASE(an_eigen_parameter_may_move_or_change) {
  const Eigen::VectorXd g = test::gaussian<double>(5, 1, 1);
  const auto after = [&](auto&& between) {
    Adam optimizer({.learning_rate = 0.1});
    std::vector<Eigen::VectorXd> theta(1, Eigen::VectorXd::Ones(5));
    optimizer.step(theta[0], g);
    between(theta, optimizer);
    optimizer.step(theta.back(), g);
    BOOST_TEST(optimizer.steps() == 2);
    return theta.back();
  };
  const Eigen::VectorXd expected = after([](auto&, auto&) {});
  const auto moves = [](auto& theta, auto&) { theta.insert(theta.begin(), 9, Eigen::VectorXd::Zero(5)); };
  const auto copies = [](auto& theta, auto&) { theta.push_back(Eigen::VectorXd(theta[0])); };
  const auto both_are_copied = [](auto& theta, auto& optimizer) {
    const Adam copy = optimizer;
    theta.push_back(Eigen::VectorXd(theta[0]));
    optimizer = copy;
  };
  BOOST_TEST((after(moves) == expected));
  BOOST_TEST((after(copies) == expected));
  BOOST_TEST((after(both_are_copied) == expected));
  // Projected, or begun anew: what the caller does to it is the caller's.
  after([](auto& theta, auto&) { theta[0] = (theta[0] / theta[0].norm()).eval(); });
  after([](auto& theta, auto&) { theta[0].setZero(); });
  // By value, in and out.
  Adam optimizer({.learning_rate = 0.1});
  const auto stepped = [&](Eigen::VectorXd theta) {
    optimizer.step(theta, g);
    return theta;
  };
  BOOST_TEST((stepped(stepped(Eigen::VectorXd::Ones(5))) == expected));
  // NaN is the same NaN elsewhere.
  Eigen::VectorXd lost = Eigen::VectorXd::Constant(5, std::nan("")), elsewhere;
  Adam lost_optimizer;
  lost_optimizer.step(lost, g);
  elsewhere = lost;
  lost_optimizer.step(elsewhere, g);
  BOOST_TEST(lost_optimizer.steps() == 2);
}

BOOST_AUTO_TEST_CASE(rules_of_users) {
  Eigen::VectorXd theta(3), g(3);
  theta << 1, 1, 1;
  g << 5, -0.1, 0;
  Optimizer<SignRule> sign({.learning_rate = 0.5});
  sign.step(theta, g);
  BOOST_TEST((theta == Eigen::Vector3d(0.5, 1.5, 1)));
  Optimizer<LionRule> lion({.learning_rate = 0.25, .weight_decay = 0.5});
  theta << 1, 1, 1;
  lion.step(theta, g);
  BOOST_TEST((theta == Eigen::Vector3d(0.625, 1.125, 0.875)));
  CpuContext<> context(2);
  Parameters<float> p = filled<float>(small_model(), 1);
  Optimizer<LionRule, HadamardRotation> rotated;
  rotated.step(context, p, filled<float>(small_model(), 2));
  BOOST_TEST(rotated.steps() == 1);
}

// A quadratic bowl in a rotated basis: all of them get to the minimum.
template <class O>
void check_descends(O optimizer) {
  const RowMajorMatrix<double> q = haar_matrix<double>(6, Random{1, 5});
  const Eigen::MatrixXd hessian = q * Eigen::VectorXd::LinSpaced(6, 0.5, 2).asDiagonal() * q.transpose();
  Eigen::VectorXd theta = Eigen::VectorXd::LinSpaced(6, -1, 1);
  const Linear schedule{.total = 1000};
  for (int step = 0; step < 1000; ++step)
    optimizer.step(theta, hessian * theta, {.learning_rate_factor = schedule(optimizer.steps() + 1)});
  BOOST_TEST(theta.norm() < 1e-2);
}
BOOST_AUTO_TEST_CASE(all_of_them_descend) {
  check_descends(Sgd({.learning_rate = 0.1}));
  check_descends(Sgd({.learning_rate = 0.02, .momentum = 0.9, .nesterov = true}));
  check_descends(RmsProp({.learning_rate = 0.01}));
  check_descends(Adam({.learning_rate = 0.02}));
  check_descends(AdamW({.learning_rate = 0.02}));
  check_descends(OrthoAdam<>({.learning_rate = 0.02}));
  check_descends(OrthoAdam<DenseRotation>({.learning_rate = 0.02}));
  check_descends(OrthoAdam<HadamardRotation>({.learning_rate = 0.02}));
}

// --- edges

BOOST_AUTO_TEST_CASE(everything_frozen_is_a_step_without_effect) {
  CpuContext<> context(2);
  Parameters<float> theta = filled<float>(small_model(), 1);
  const Parameters<float> start = theta;
  BOOST_TEST(theta.layout.freeze("") == theta.layout.count());
  AdamW a;
  OrthoAdam<> b;
  a.step(context, theta, start);
  b.step(context, theta, start);
  BOOST_TEST(same_bits(theta.values, start.values));
  BOOST_TEST(a.steps() == 1);
  BOOST_TEST(global_norm(context, start, theta.layout) == 0.0);
}

BOOST_AUTO_TEST_CASE(errors) {
  CpuContext<> context(1);
  Parameters<float> theta = filled<float>(small_model(), 1), g = filled<float>(small_model(), 2);
  Parameters<float> large(large_model());
  AdamW optimizer;
  BOOST_TEST(says([&] { optimizer.step(context, theta, large); }, {"6 in a buffer of", "3 in"}));
  BOOST_TEST(
      says([&] { optimizer.step(context, theta, g, {.learning_rate_factor = -1}); }, {"learning_rate_factor is -1"}));
  BOOST_TEST(says([&] { optimizer.step(context, theta, g, {.learning_rate_factor = std::nan("")}); }, {"is nan"}));
  BOOST_TEST(optimizer.steps() == 0);
  optimizer.step(context, theta, g);
  BOOST_TEST(says([&] { optimizer.step(context, large, large); }, {"was of 6 parameters", "is of 3", "reset"}));
  ParameterLayout other = small_model();
  other["q"].name = "query";
  Parameters<float> renamed(other);
  BOOST_TEST(says([&] { optimizer.step(context, renamed, renamed); }, {"parameter 1 was q (6, 6)", "is query (6, 6)"}));
  Parameters<double> wide = filled<double>(small_model(), 1);
  BOOST_TEST(says([&] { optimizer.step(context, wide, wide); }, {"was of float", "is of double"}));
  Eigen::VectorXf x = Eigen::VectorXf::Ones(3), y = Eigen::VectorXf::Ones(4);
  BOOST_TEST(says([&] { optimizer.step(x, x.eval()); }, {"was of 6 parameters"}));
  BOOST_TEST(optimizer.steps() == 1);
  Sgd sgd;
  BOOST_TEST(says([&] { sgd.step(x, y); }, {"(3, 1)", "(4, 1)"}));
  sgd.step(x, x.eval());
  BOOST_TEST(says([&] { sgd.step(y, y.eval()); }, {"was theta (1, 3)", "is theta (1, 4)"}));
  Eigen::VectorXf empty(0);
  Adam adam;
  BOOST_TEST(says([&] { adam.step(empty, empty.eval()); }, {"(1, 0) is empty"}));
}

// rule, rotation and the layout are public: what was changed after construction is checked by every step, which then
// changes nothing.
BOOST_AUTO_TEST_CASE(changed_settings_are_checked_by_every_step) {
  CpuContext<> context(1);
  const double nan = std::nan(""), inf = HUGE_VAL;
  const auto refused = [&](auto optimizer, auto&& spoil, const std::string& part, const StepOptions& options = {}) {
    Parameters<float> theta = filled<float>(small_model(), 1);
    const Parameters<float> g = filled<float>(small_model(), 2);
    optimizer.step(context, theta, g);
    auto of_matrix = optimizer;
    of_matrix.reset();
    Eigen::MatrixXd matrix_parameter = Eigen::MatrixXd::Ones(3, 3);
    of_matrix.step(matrix_parameter, matrix_parameter.eval());
    const Parameters<float> before = theta;
    const Eigen::MatrixXd matrix_before = matrix_parameter;
    spoil(optimizer);
    spoil(of_matrix);
    BOOST_TEST(says([&] { optimizer.step(context, theta, g, options); }, {part}), part);
    BOOST_TEST(says([&] { of_matrix.step(matrix_parameter, matrix_parameter.eval(), options); }, {part}), part);
    BOOST_TEST(same_bits(theta.values, before.values));
    BOOST_TEST((matrix_parameter == matrix_before));
    BOOST_TEST(optimizer.steps() == 1);
    BOOST_TEST(of_matrix.steps() == 1);
  };
  refused(
      Adam(), [&](auto& o) { o.rule.learning_rate = nan; }, "learning_rate is nan, expected a finite number > 0");
  refused(
      Sgd(), [](auto& o) { o.rule.learning_rate = -1; }, "learning_rate is -1");
  refused(
      Adam(), [](auto& o) { o.rule.beta2 = 1; }, "Adam: beta2 is 1, expected a number in [0, 1)");
  refused(
      AdamW(), [&](auto& o) { o.rule.weight_decay = inf; }, "weight_decay is inf");
  refused(
      RmsProp(), [](auto& o) { o.rule.alpha = 1.5; }, "RmsProp: alpha is 1.5");
  refused(
      Sgd(), [](auto& o) { o.rule.nesterov = true; }, "nesterov expects momentum > 0");
  refused(
      OrthoAdam<>(), [](auto& o) { o.rule.epsilon = -1; }, "OrthoAdam: epsilon is -1");
  refused(
      OrthoAdam<>(), [](auto& o) { o.rotation.max_dim = 2; }, "max_dim is 2, expected at least 3");
  const auto nothing = [](auto&) {};
  refused(Adam(), nothing, "gradient_scale is nan, expected a finite number >= 0", {.gradient_scale = nan});
  refused(Adam(), nothing, "gradient_scale is inf", {.gradient_scale = inf});
  refused(OrthoAdam<HadamardRotation>(), nothing, "gradient_scale is -1", {.gradient_scale = -1});
  refused(Sgd(), nothing, "learning_rate_factor is nan", {.learning_rate_factor = nan});

  Parameters<float> theta = filled<float>(small_model(), 1);
  const Parameters<float> g = filled<float>(small_model(), 2);
  Adam optimizer;
  theta.layout.scale_learning_rate("gain", -0.5);
  BOOST_TEST(says([&] { optimizer.step(context, theta, g); },
                  {"learning_rate_scale of gain is -0.5, expected a finite number >= 0"}));
  theta.layout.scale_learning_rate("gain", nan);
  BOOST_TEST(says([&] { optimizer.step(context, theta, g); }, {"learning_rate_scale of gain is nan"}));
  BOOST_TEST(optimizer.steps() == 0);
  // A first step that is refused leaves no layout behind.
  Eigen::VectorXd three = Eigen::VectorXd::Ones(3), four = Eigen::VectorXd::Ones(4);
  BOOST_TEST(says([&] { optimizer.step(three, three.eval(), {.gradient_scale = nan}); }, {"gradient_scale"}));
  optimizer.rule.beta1 = 2;
  BOOST_TEST(says([&] { optimizer.step(three, three.eval()); }, {"beta1 is 2"}));
  optimizer.rule.beta1 = 0.9;
  optimizer.step(four, four.eval());
  BOOST_TEST(optimizer.steps() == 1);
}

BOOST_AUTO_TEST_CASE(a_nan_gradient_passes_through) {
  Eigen::VectorXd theta = Eigen::VectorXd::Ones(2), g(2);
  g << std::nan(""), 1;
  Adam optimizer;
  optimizer.step(theta, g);
  BOOST_TEST(std::isnan(theta[0]));
  BOOST_TEST(std::isfinite(theta[1]));
}

BOOST_AUTO_TEST_SUITE_END()
