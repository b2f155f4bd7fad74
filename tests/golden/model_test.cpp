#include <algorithm>
#include <meso/model/architectures.hpp>
#include <meso/model/transformer.hpp>
#include <meso/optim/adam.hpp>
#include <meso/train.hpp>

#include "golden.hpp"

using namespace meso;
using namespace meso::test;

namespace {

constexpr Index steps = 50, batch_size = 4, context_length = 16;

/// A model with the script's weights.
template <class S, class A>
Transformer<S, A> loaded_model(const std::string& name, Index key_value_heads) {
  TransformerConfig<A> config;
  config.vocabulary = 50;
  config.width = 32;
  config.layers = 2;
  config.heads = 4;
  config.key_value_heads = key_value_heads;
  config.context = context_length;
  Transformer<S, A> model(config);
  Parameters<S>& parameters = model.parameters();
  for (const ParameterInfo& info : parameters.layout) {
    const RowMajorMatrix<S> values = golden::load<S>("model/" + name + "/weights/" + info.name);
    BOOST_TEST_REQUIRE(values.rows() == info.rows, info.name);
    BOOST_TEST_REQUIRE(values.cols() == info.cols, info.name);
    map(parameters[info.name]) = values;
  }
  return model;
}

/// Trains as the script does, and compares the gradients of the first step and the losses of all.
template <class S, class A>
void check_curve(const std::string& name, const std::string& variant, Index key_value_heads, double tolerance) {
  const std::string golden_case = "model/" + name + "/" + variant;
  const std::vector<Token> tokens = golden::load_integers("model/tokens"),
                           targets = golden::load_integers("model/targets");
  const Index tokens_a_batch = batch_size * context_length;
  BOOST_TEST_REQUIRE(static_cast<Index>(tokens.size()) == steps * tokens_a_batch);
  BOOST_TEST_REQUIRE(targets.size() == tokens.size());
  const auto batches = [&](Index number, Batch& batch) {
    const auto first = number * tokens_a_batch, last = first + tokens_a_batch;
    batch.time = context_length;
    batch.tokens.assign(tokens.begin() + first, tokens.begin() + last);
    batch.targets.assign(targets.begin() + first, targets.begin() + last);
  };
  Transformer<S, A> model = loaded_model<S, A>(name, key_value_heads);
  CpuContext<> context(2);

  // Gradients pass two layers, in each some ten sums of up to 128 products and 64 tokens: within 4,096 roundings of the
  // largest of all.
  TransformerCache<S> cache;
  Batch batch;
  batches(0, batch);
  Parameters<S> gradients = model.gradients();
  model.forward(context, batch.tokens, batch.time, cache);
  model.backward(context, batch.targets, cache, gradients);
  const RowMajorMatrix<double> expected_gradient = golden::load<double>(golden_case + "/gradient");
  BOOST_TEST_REQUIRE(expected_gradient.size() == gradients.layout.trainable());
  const double bound = 4096 * golden::roundings<S> * golden::largest(expected_gradient);
  Index offset = 0;
  for (const ParameterInfo& info : gradients.layout) {
    BOOST_TEST_CONTEXT(golden_case << " " << info.name)
    BOOST_TEST(all_within(gradients[info.name].data, expected_gradient.data() + offset, info.size(),
                          [&](Index) { return bound; }));
    offset += info.size();
  }

  AdamW optimizer({.learning_rate = 3e-3, .beta2 = 0.95, .weight_decay = 0.1});
  const auto warm_up = [](Index step) { return std::min<double>(1, static_cast<double>(step) / 10); };
  std::vector<double> losses;
  train(context, model, optimizer, warm_up, batches, {.steps = steps, .clip_norm = 1.0},
        [&](const StepReport& report) { losses.push_back(report.loss); });
  const RowMajorMatrix<double> expected = golden::load<double>(golden_case + "/losses");
  BOOST_TEST_REQUIRE(static_cast<Index>(losses.size()) == expected.size());
  double worst = 0;
  for (Index i = 0; i < expected.size(); ++i)
    worst = std::max<double>(worst, std::abs(losses[static_cast<std::size_t>(i)] / expected.data()[i] - 1));
  BOOST_TEST_MESSAGE(golden_case << ": largest relative difference of the losses " << worst);
  BOOST_TEST_CONTEXT(golden_case)
  BOOST_TEST(all_within(losses.data(), expected.data(), expected.size(),
                        [&](Index i) { return tolerance * expected.data()[i]; }));
}

// The losses of 50 steps, to what the project promises: 1e-10 in double and 1e-4 in float.
BOOST_AUTO_TEST_SUITE(golden_model)

BOOST_AUTO_TEST_CASE(gpt2_in_double) {
  check_curve<double, Gpt2>("gpt2", "softmax", 4, 1e-10);
  check_curve<double, Gpt2Softmax1>("gpt2", "softmax1", 4, 1e-10);
}
BOOST_AUTO_TEST_CASE(gpt2_in_float) {
  check_curve<float, Gpt2>("gpt2", "softmax", 4, 1e-4);
  check_curve<float, Gpt2Softmax1>("gpt2", "softmax1", 4, 1e-4);
}
BOOST_AUTO_TEST_CASE(llama_in_double) {
  check_curve<double, Llama>("llama", "softmax", 2, 1e-10);
  check_curve<double, LlamaSoftmax1>("llama", "softmax1", 2, 1e-10);
}
BOOST_AUTO_TEST_CASE(llama_in_float) {
  check_curve<float, Llama>("llama", "softmax", 2, 1e-4);
  check_curve<float, LlamaSoftmax1>("llama", "softmax1", 2, 1e-4);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
