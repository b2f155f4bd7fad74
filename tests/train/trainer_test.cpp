#include <boost/test/unit_test.hpp>
#include <meso/model/architectures.hpp>
#include <meso/model/probes.hpp>
#include <meso/optim.hpp>
#include <meso/train.hpp>

#ifdef _OPENMP
#include <omp.h>
#endif

using namespace meso;

namespace {

const TokenStream& stream() {
  static const TokenStream s = [] {
    std::vector<Token> tokens;
    for (Index i = 0; i < 4000; ++i) tokens.push_back(static_cast<Token>((i * i / 7 + i) % 23));
    return TokenStream(std::move(tokens));
  }();
  return s;
}
const auto batches = [](Index number, Batch& batch) { stream().sample(5, number, 4, 16, batch); };

TransformerConfig<Gpt2Softmax1> tiny() {
  return {.vocabulary = 23, .width = 16, .layers = 2, .heads = 2, .context = 16};
}

template <class Optimizer>
std::vector<float> trained(Optimizer optimizer, int threads, Index steps = 5) {
  Transformer<float, Gpt2Softmax1> model(tiny());
  CpuContext<> context(threads);
  train(context, model, optimizer, Constant{}, batches, {.steps = steps});
  const Buffer<float>& values = model.parameters().values;
  return {values.data(), values.data() + values.size()};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(trainer)

BOOST_AUTO_TEST_CASE(loss_falls_and_observers_see_it) {
  // Counting: each token follows from the one before it, so the loss falls from log 23 towards 0.
  std::vector<Token> counting(4000);
  for (std::size_t i = 0; i < counting.size(); ++i) counting[i] = static_cast<Token>(i % 23);
  const TokenStream numbers(std::move(counting));
  Transformer<float, Gpt2Softmax1> model(tiny());
  CpuContext<> context(2);
  Adam optimizer({.learning_rate = 1e-2});
  std::vector<StepReport> reports;
  Index calls = 0;
  const Index done = train(
      context, model, optimizer, WarmupCosine{.warmup = 5, .total = 60},
      [&](Index number, Batch& batch) { numbers.sample(5, number, 4, 16, batch); }, {.steps = 60},
      [&](const StepReport& r) { reports.push_back(r); }, [&](const StepReport&) { return ++calls < 50; });
  BOOST_TEST(done == 50);
  BOOST_TEST(reports.size() == 50u);
  BOOST_TEST(reports[0].step == 1);
  BOOST_TEST(reports[0].tokens == 64);
  BOOST_TEST(std::abs(reports[0].loss - std::log(23.0)) < 0.1);
  BOOST_TEST(reports.back().loss < reports[0].loss / 2);
  BOOST_TEST(optimizer.steps() == 50);
}

BOOST_AUTO_TEST_CASE(same_bits_for_any_threads) {
  const auto equal = [](auto optimizer) {
    const std::vector<float> one = trained(optimizer, 1);
    BOOST_TEST((trained(optimizer, 2) == one));
    BOOST_TEST((trained(optimizer, 3) == one));
  };
  equal(Adam({.learning_rate = 1e-3}));
  equal(Sgd({.learning_rate = 0.1, .momentum = 0.9}));
  equal(RmsProp({.learning_rate = 1e-3}));
  equal(OrthoAdam<KroneckerRotation>({.learning_rate = 1e-3}));
  equal(OrthoAdam<HadamardRotation>({.learning_rate = 1e-3}));
}

// Our threads crossed with OpenMP's default and Eigen's setting, which stay as the user left them.
BOOST_AUTO_TEST_CASE(same_bits_under_any_settings) {
  const std::vector<float> reference = trained(Adam({.learning_rate = 1e-3}), 1, 2);
  for (const int eigen_threads : {0, 1, 2}) {
    Eigen::setNbThreads(eigen_threads);
#ifdef _OPENMP
    const int before = omp_get_max_threads();
#endif
    for (const int omp_threads : {1, 2}) {
#ifdef _OPENMP
      omp_set_num_threads(omp_threads);
#endif
      const int setting = Eigen::nbThreads();
      for (const int threads : {1, 2, 3}) BOOST_TEST((trained(Adam({.learning_rate = 1e-3}), threads, 2) == reference));
      BOOST_TEST(Eigen::nbThreads() == setting);
#ifdef _OPENMP
      BOOST_TEST(omp_get_max_threads() == omp_threads);
#else
      (void)omp_threads;
#endif
    }
#ifdef _OPENMP
    omp_set_num_threads(before);
#endif
  }
  Eigen::setNbThreads(0);
}

/// One step of SGD with rate 1 on eight sequences, cut into micro-batches of the given numbers of sequences.
struct OneStep {
  StepReport report;
  Parameters<double> values;
};
template <class Ignored>
OneStep one_step(const std::vector<Index>& split, const Ignored& ignored, double clip_norm) {
  Transformer<double, Gpt2Softmax1> model(tiny());
  CpuContext<> context(2);
  Sgd optimizer({.learning_rate = 1});
  const auto source = [&](Index number, Batch& batch) {
    Batch whole;
    stream().sample(5, 0, 8, 16, whole);
    for (std::size_t i = 0; i < whole.targets.size(); ++i)
      if (ignored(static_cast<Index>(i))) whole.targets[i] = ignored_target;
    Index first = 0;
    for (Index i = 0; i < number; ++i) first += 16 * split[static_cast<std::size_t>(i)];
    const Index last = first + 16 * split[static_cast<std::size_t>(number)];
    batch = {{whole.tokens.begin() + first, whole.tokens.begin() + last},
             {whole.targets.begin() + first, whole.targets.begin() + last},
             16};
  };
  OneStep result;
  train(context, model, optimizer, Constant{}, source,
        {.steps = 1, .micro_batches = static_cast<Index>(split.size()), .clip_norm = clip_norm},
        [&](const StepReport& r) { result.report = r; });
  result.values = model.parameters();
  return result;
}

// The mean is over the targets that count, not over micro-batches: any split of a batch gives the same loss and gradient.
// Tolerance: loss and gradient are means of at most 128 terms, whose sizes have a mean below 4, summed in two orders.
BOOST_AUTO_TEST_CASE(any_split_of_a_batch_gives_its_gradient) {
  const auto none = [](Index) { return false; };
  // 2 of 16 targets count in the first sequence, none in the third, 10 or 11 in the others.
  const auto many = [](Index i) { return (i < 16 && i % 8 != 0) || (i >= 32 && i < 48) || i % 3 == 1; };
  const double tolerance = 4 * 256 * 0x1p-53;
  const auto check_splits = [&](const auto& ignored, double clip_norm) {
    const OneStep whole = one_step({8}, ignored, clip_norm);
    BOOST_TEST(whole.report.gradient_norm > 0.1);
    for (const std::vector<Index>& split :
         std::vector<std::vector<Index>>{{4, 4}, {1, 7}, {7, 1}, {2, 1, 5}, {1, 1, 1, 1, 1, 1, 1, 1}}) {
      const OneStep parts = one_step(split, ignored, clip_norm);
      BOOST_TEST(std::abs(parts.report.loss - whole.report.loss) < tolerance);
      BOOST_TEST(std::abs(parts.report.gradient_norm - whole.report.gradient_norm) < tolerance);
      BOOST_TEST(parts.report.tokens == 128);
      for (Index i = 0; i < whole.values.values.size(); ++i)
        BOOST_REQUIRE(std::abs(parts.values.values.data()[i] - whole.values.values.data()[i]) < tolerance);
    }
  };
  for (const double clip_norm : {0.0, 0.05}) {
    check_splits(none, clip_norm);
    check_splits(many, clip_norm);
  }
}

BOOST_AUTO_TEST_CASE(no_target_that_counts_gives_loss_and_gradient_zero) {
  const Transformer<double, Gpt2Softmax1> untouched(tiny());
  const Buffer<double>& before = untouched.parameters().values;
  for (const std::vector<Index>& split : std::vector<std::vector<Index>>{{8}, {3, 5}}) {
    const OneStep step = one_step(
        split, [](Index) { return true; }, 1.0);
    BOOST_TEST(step.report.loss == 0);
    BOOST_TEST(step.report.gradient_norm == 0);
    BOOST_TEST(std::equal(before.data(), before.data() + before.size(), step.values.values.data()));
  }
}

BOOST_AUTO_TEST_CASE(frozen_parameters_stay) {
  Transformer<float, Gpt2Softmax1> model(tiny());
  const Parameters<float> before = model.parameters();
  BOOST_TEST(model.parameters().layout.freeze("blocks.0.") > 0);
  CpuContext<> context(2);
  Adam optimizer({.learning_rate = 1e-2});
  train(context, model, optimizer, Constant{}, batches, {.steps = 2});
  for (const ParameterInfo& p : model.parameters().layout) {
    const bool same = (map(std::as_const(model.parameters())[p.name]).array() == map(before[p.name]).array()).all();
    BOOST_TEST(same == (p.name.starts_with("blocks.0.")), p.name);
  }
}

BOOST_AUTO_TEST_CASE(a_bad_loss_names_step_layer_and_tensor) {
  Transformer<float, Gpt2Softmax1> model(tiny());
  CpuContext<> context(2);
  Adam optimizer({.learning_rate = 1e-3});
  const auto error = [&](auto&& spoil) -> std::string {
    try {
      train(context, model, optimizer, Constant{}, batches, {.steps = 3}, [&](const StepReport& r) {
        if (r.step == 2) spoil();
      });
    } catch (const NonFiniteLoss& e) {
      return e.what();
    }
    return "no error";
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Parameters<float> good = model.parameters();
  BOOST_TEST(error([&] { model.parameters()["blocks.1.mlp.up"](0, 0) = nan; }) ==
             "training step 3: the loss is nan; first in parameter blocks.1.mlp.up");
  model.parameters() = good;
  // Finite weights whose product overflows: named where it appears, not where it ends up.
  const std::string message = error([&] { map(model.parameters()["blocks.1.mlp.up"]).setConstant(3e38f); });
  BOOST_TEST(message.find("training step 3: the loss is nan; first in layer 2, mlp.up") == 0, message);
  BOOST_CHECK_THROW(train(context, model, optimizer, Constant{}, batches, {}), std::invalid_argument);
  // In the first micro-batch alone, whose sequences are long enough for the position.
  model.parameters() = good;
  map(model.parameters()["embedding.position"]).row(12).setConstant(3e38f);
  const auto long_then_short = [](Index number, Batch& batch) {
    stream().sample(5, number, 4, number == 0 ? 16 : 8, batch);
  };
  BOOST_CHECK_EXCEPTION(train(context, model, optimizer, Constant{}, long_then_short, {.steps = 1, .micro_batches = 2}),
                        NonFiniteLoss, [](const NonFiniteLoss& e) {
                          return e.what() == std::string("training step 1: the loss is nan; first in layer 1, norm1");
                        });
  model.parameters() = good;
  BOOST_CHECK_THROW(train(context, model, optimizer, Constant{}, batches, {.steps = 1, .clip_norm = std::nan("")}),
                    std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(evaluation_and_probes) {
  Transformer<float, Gpt2Softmax1> model(tiny());
  CpuContext<> context(2);
  TransformerCache<float> cache;
  HiddenStateStatistics hidden;
  SinkStatistics sinks;
  const LossSum loss = evaluate(
      context, model, [](Index i, Batch& b) { stream().validation_batch(4 * i, 4, 16, b); }, 3, cache, FloatLinear{},
      static_cast<const Parameters<float>*>(nullptr),
      [&](const TransformerCache<float>& c) {
        add_hidden_states(context, c, hidden);
        add_attention(context, model, c, sinks);
      });
  BOOST_TEST(loss.count == 3 * 64);
  BOOST_TEST(std::abs(loss.mean() - std::log(23.0)) < 0.1);
  // Untrained heads weigh every key alike, scores are near 0: p_ij ≈ 1/(i + 1), so the mean mass of key 1 over the
  // rows 2 … 16 is near Σ 1/(i+1) / 15, and so is the null mass.
  double expected = 0;
  for (int i = 2; i <= 16; ++i) expected += 1.0 / (i + 1) / 15;
  BOOST_TEST(std::abs(sinks.first_token_mass() - expected) < 0.01);
  BOOST_TEST(std::abs(sinks.null_mass() - expected) < 0.01);
}

BOOST_AUTO_TEST_SUITE_END()
