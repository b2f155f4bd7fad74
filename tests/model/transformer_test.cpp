#include <boost/test/unit_test.hpp>
#include <meso/layer/relu.hpp>
#include <meso/model/architectures.hpp>
#include <meso/model/transformer.hpp>
#include <meso/normalizer.hpp>
#include <meso/optim.hpp>

#include "tests/support/gradient_check.hpp"
#include "tests/support/random.hpp"
#include "tests/support/tolerance.hpp"

using namespace meso;
using namespace meso::test;

namespace {

template <class N, class Norm_, class P, class M = Gelu, bool with_bias = true, bool with_tie = true, class K = Causal>
struct Parts {
  using Normalizer = N;
  using Norm = Norm_;
  using Position = P;
  using Mlp = M;
  using Mask = K;
  static constexpr bool bias = with_bias;
  static constexpr bool tied = with_tie;
};

std::vector<Token> tokens_of(Index count, Index vocabulary, std::uint64_t seed) {
  std::vector<Token> tokens(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>(Random{seed, 3}.below(i, vocabulary));
  return tokens;
}

/// Every parameter moved by a Gaussian number, so that gains, biases and sinks are no longer special.
template <class S, class A>
void shake(Transformer<S, A>& model, double scale) {
  Parameters<S>& p = model.parameters();
  for (Index i = 0; i < p.layout.count(); ++i) {
    const View<S> x = p[i];
    for (Index j = 0; j < x.size(); ++j)
      x.data[j] +=
          static_cast<S>(scale * Random{17, stream_of(p.layout[i].name)}.normal(static_cast<std::uint64_t>(j)));
  }
}

template <class A>
void check_model_gradient(TransformerConfig<A> config = {}) {
  config.vocabulary = 7;
  config.width = 8;
  config.layers = 2;
  config.heads = 2;
  config.context = 5;
  config.mlp_width = 6;
  Transformer<double, A> model(config);
  shake(model, 0.3);
  const std::vector<Token> tokens = tokens_of(8, 7, 1);  // two sequences of 4, shorter than the context
  std::vector<Token> targets = tokens_of(8, 7, 2);
  targets[3] = ignored_target;
  CpuContext<> context(2);
  TransformerCache<double> cache;
  auto gradients = model.gradients();
  model.forward(context, tokens, 4, cache);
  model.backward(context, targets, cache, gradients);
  TransformerCache<double> scratch;
  const auto f = [&](const double*) {
    const View<const double> logits = model.forward(context, tokens, 4, scratch);
    return cross_entropy<PackedProducts, double>(context, logits, targets, {}).mean();
  };
  // About 60 roundings in a row a layer, scores and logits of the size of 10.
  GradientCheck options{.rounding = 4096, .magnitude = 10};
  for (const ParameterInfo& info : model.parameters().layout)
    BOOST_TEST(gradient_agrees(info.name, f, model.parameters()[info.name].data, info.size(), gradients[info.name].data,
                               options));

  // backward leaves the cache alone: twice gives the same, adding gives twice the same.
  auto again = model.gradients();
  model.backward(context, targets, cache, again);
  BOOST_TEST(std::equal(again.values.data(), again.values.data() + again.values.size(), gradients.values.data()));
  model.backward(context, targets, cache, again, Accumulate::yes);
  for (Index i = 0; i < again.values.size(); ++i) {
    const double g = gradients.values.data()[i];
    // A sum over the same terms, begun at g instead of 0: up to 32 roundings of the largest partial sum.
    BOOST_TEST(within(again.values.data()[i], 2 * g, 64 * unit_roundoff<double> * (1 + std::abs(g))));
  }
}

template <class Norm_>
void each_normalizer_and_position() {
  check_model_gradient<Parts<Softmax, Norm_, LearnedPosition>>();
  check_model_gradient<Parts<Softmax1, Norm_, Rotary>>();
  check_model_gradient<Parts<LearnedSink, Norm_, NoPosition>>();
  check_model_gradient<Parts<SoftmaxN, Norm_, LearnedPosition>>();
  check_model_gradient<Parts<SigmoidAttention, Norm_, Rotary>>();
  check_model_gradient<Parts<Softpick, Norm_, NoPosition>>();
  check_model_gradient<Parts<ScalableSoftmax, Norm_, Rotary>>();
  check_model_gradient<Parts<Sinkhorn, Norm_, LearnedPosition, Gelu, true, true, Bidirectional>>();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(transformer)

BOOST_AUTO_TEST_CASE(gradients_with_layer_norm) { each_normalizer_and_position<LayerNorm>(); }
BOOST_AUTO_TEST_CASE(gradients_with_rms_norm) { each_normalizer_and_position<RmsNorm>(); }
BOOST_AUTO_TEST_CASE(gradients_with_rms_norm_single) { each_normalizer_and_position<RmsNormSingle>(); }

BOOST_AUTO_TEST_CASE(gradients_of_mlps_biases_heads_and_masks) {
  check_model_gradient<Parts<Softmax1, RmsNorm, Rotary, SwiGlu, false, false>>();
  check_model_gradient<Parts<Softmax1, RmsNorm, Rotary, SwiGlu, true, false>>();
  check_model_gradient<Parts<Softmax, LayerNorm, LearnedPosition, GeluTanh, false, true>>();
  check_model_gradient<Parts<Softmax1, RmsNormSingle, NoPosition, Gelu, true, false, SlidingWindow>>({.mask = {2}});
  TransformerConfig<Llama> grouped;
  grouped.key_value_heads = 1;
  check_model_gradient<Llama>(grouped);
}

BOOST_AUTO_TEST_CASE(untrained_perplexity_is_about_the_vocabulary) {
  Transformer<float, Gpt2> model({.vocabulary = 50, .width = 32, .layers = 2, .heads = 2, .context = 16});
  const std::vector<Token> tokens = tokens_of(16 * 16, 50, 1), targets = tokens_of(16 * 16, 50, 2);
  CpuContext<> context(2);
  TransformerCache<float> cache;
  const View<const float> logits = model.forward(context, tokens, 16, cache);
  const double loss = cross_entropy<PackedProducts, float>(context, logits, targets, {}).mean();
  // Logits are dot products of a unit-RMS vector with N(0, 0.02²) rows: standard deviation 0.02·√32 = 0.11, which moves
  // the expected loss by σ²/2 = 0.006 and the mean over 256 tokens by 5·0.11/16 = 0.035.
  BOOST_TEST(std::abs(loss - std::log(50.0)) < 0.05);
}

BOOST_AUTO_TEST_CASE(a_tiny_model_overfits_one_batch) {
  Transformer<float, Gpt2Softmax1> model({.vocabulary = 16, .width = 32, .layers = 2, .heads = 2, .context = 8});
  const std::vector<Token> tokens = tokens_of(32, 16, 1), targets = tokens_of(32, 16, 2);
  CpuContext<> context(2);
  TransformerCache<float> cache;
  auto gradients = model.gradients();
  Adam optimizer({.learning_rate = 1e-2});
  double loss = 0;
  for (int step = 0; step < 150; ++step) {
    model.forward(context, tokens, 8, cache);
    loss = model.backward(context, targets, cache, gradients).mean();
    optimizer.step(context, model.parameters(), gradients);
  }
  BOOST_TEST(loss < 0.05);  // log 16 = 2.8 at the start
}

BOOST_AUTO_TEST_CASE(a_later_token_changes_no_earlier_logit) {
  Transformer<float, Llama> model({.vocabulary = 11, .width = 16, .layers = 2, .heads = 2, .context = 9});
  std::vector<Token> tokens = tokens_of(9, 11, 1);
  CpuContext<> context(1);
  TransformerCache<float> a, b;
  model.forward(context, tokens, 9, a);
  tokens[6] = (tokens[6] + 1) % 11;
  model.forward(context, tokens, 9, b);
  BOOST_TEST((map(a.logits).topRows(6).array() == map(b.logits).topRows(6).array()).all());
  BOOST_TEST((map(a.logits).row(6).array() != map(b.logits).row(6).array()).any());
}

BOOST_AUTO_TEST_CASE(initialization) {
  const Transformer<double, Gpt2> model({.vocabulary = 200, .width = 64, .layers = 3, .heads = 4, .context = 32});
  const Parameters<double>& p = model.parameters();
  const auto deviation = [&](const char* name) { return std::sqrt(map(p[name]).array().square().mean()) / 0.02; };
  // A sample deviation over n numbers lies within 5/√(2n) of 1; n ≥ 4096.
  const double tolerance = 5 / std::sqrt(2.0 * 4096);
  BOOST_TEST(std::abs(deviation("embedding.token") - 1) < tolerance);
  BOOST_TEST(std::abs(deviation("blocks.1.attention.query") - 1) < tolerance);
  BOOST_TEST(std::abs(deviation("blocks.2.attention.output") * std::sqrt(6.0) - 1) < tolerance);
  BOOST_TEST(std::abs(deviation("blocks.0.mlp.down") * std::sqrt(6.0) - 1) < tolerance);
  BOOST_TEST((map(p["blocks.0.mlp.up.bias"]).array() == 0).all());
  BOOST_TEST((map(p["blocks.0.norm1.gain"]).array() == 1).all());
  BOOST_TEST((map(p["blocks.0.norm1.bias"]).array() == 0).all());
  // Another architecture shares the values of the parameters that it shares.
  const Transformer<double, Gpt2Softmax1> other(
      {.vocabulary = 200, .width = 64, .layers = 3, .heads = 4, .context = 32});
  BOOST_TEST((map(other.parameters()["blocks.2.mlp.up"]).array() == map(p["blocks.2.mlp.up"]).array()).all());
}

BOOST_AUTO_TEST_CASE(paper_sizes) {
  const auto millions = [](const TransformerConfig<Gpt2>& c) {
    return static_cast<double>(declare_parameters(completed(c)).layout.trainable()) / 1e6;
  };
  // The published 124,439,808 with a context of 1,024 positions; 256 positions are 768·768 fewer.
  BOOST_TEST(millions(PaperSizes<>::size_130m()) == (124439808 - 768.0 * 768) / 1e6);
  BOOST_TEST(std::abs(millions(PaperSizes<>::size_60m()) - 60) < 5);
  BOOST_TEST(std::abs(millions(PaperSizes<>::size_350m()) - 350) < 10);
  BOOST_TEST(std::abs(millions(PaperSizes<>::size_1_4b()) - 1400) < 50);
}

BOOST_AUTO_TEST_CASE(wrong_configurations_are_named) {
  const auto error = [](const TransformerConfig<Gpt2>& c) -> std::string {
    try {
      const Transformer<float, Gpt2> model(c);
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "no error";
  };
  BOOST_TEST(error({}) == "TransformerConfig: vocabulary is 0, expected a positive number");
  BOOST_TEST(error({.vocabulary = 2, .width = 10, .layers = 1, .heads = 3, .context = 4}) ==
             "TransformerConfig: 3 heads do not divide the width 10");
  BOOST_TEST(error({.vocabulary = 2, .width = 12, .layers = 1, .heads = 3, .context = 4, .key_value_heads = 2}) ==
             "TransformerConfig: 2 key-value heads do not divide the 3 heads");
  Transformer<float, Gpt2> model({.vocabulary = 5, .width = 4, .layers = 1, .heads = 1, .context = 4});
  CpuContext<> context(1);
  TransformerCache<float> cache;
  BOOST_CHECK_THROW(model.forward(context, std::vector<Token>{0, 1, 5, 0}, 4, cache), std::invalid_argument);
  BOOST_CHECK_THROW(model.forward(context, std::vector<Token>{0, 1, 2}, 2, cache), std::invalid_argument);
  BOOST_CHECK_THROW(model.forward(context, std::vector<Token>(5, 0), 5, cache), std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
