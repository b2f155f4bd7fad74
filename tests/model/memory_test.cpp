#include <boost/test/unit_test.hpp>
#include <meso/model/architectures.hpp>
#include <meso/model/memory.hpp>
#include <meso/model/transformer.hpp>
#include <meso/normalizer.hpp>

using namespace meso;

namespace {

struct LearnedSinks : Gpt2 {
  using Normalizer = LearnedSink;
  using Norm = RmsNormSingle;
};
struct Untied : Llama {
  static constexpr bool tied = false;
};

/// What the estimate says against what a model, its gradients and its cache hold.
template <class S, class A>
void check_against_a_model(const TransformerConfig<A>& config) {
  const Index sequences = 3, time = 5;
  const TransformerMemory memory = transformer_memory<S>(config, sequences, time);
  Transformer<S, A> model(config);
  CpuContext<> context(1);
  typename Transformer<S, A>::Cache cache;
  const std::vector<Token> tokens(static_cast<std::size_t>(sequences * time), 1);
  model.forward(context, tokens, time, cache);
  const auto bytes = [](const auto& buffer) { return static_cast<double>(buffer.size()) * sizeof(*buffer.data()); };
  BOOST_TEST(memory.weights == bytes(model.parameters().values));
  const double tensors = static_cast<double>(12 * config.layers + 4);
  const double kept = bytes(cache.memory) + bytes(cache.saved_memory);
  BOOST_TEST(memory.cache <= kept);
  BOOST_TEST(memory.cache >= kept - 64 * tensors);

  auto gradients = model.gradients();
  model.backward(context, tokens, cache, gradients);
  BOOST_TEST(memory.scratch > 0);
  BOOST_TEST(memory.scratch <= static_cast<double>(context.workspace.bytes()));
  BOOST_TEST(memory.layout == 256.0 * static_cast<double>(model.parameters().layout.count()));
}

BOOST_AUTO_TEST_SUITE(model_memory)

BOOST_AUTO_TEST_CASE(the_estimate_is_what_a_model_takes) {
  for (const Index layers : {1, 2, 5}) {
    check_against_a_model<float, Gpt2>({.vocabulary = 11, .width = 12, .layers = layers, .heads = 3, .context = 7});
    check_against_a_model<double, LearnedSinks>(
        {.vocabulary = 11, .width = 10, .layers = layers, .heads = 5, .context = 6});
    check_against_a_model<float, Untied>(
        {.vocabulary = 13, .width = 24, .layers = layers, .heads = 4, .context = 5, .key_value_heads = 2});
  }
}

// One head of 2,000 tokens: 16 tasks of attention have dk and dv of their own, more than all other gradients.
BOOST_AUTO_TEST_CASE(scratch_of_few_heads) {
  const Index time = 2000;
  const TransformerConfig<Gpt2> config{.vocabulary = 11, .width = 8, .layers = 1, .heads = 1, .context = time};
  Transformer<float, Gpt2> model(config);
  CpuContext<> context(1);
  TransformerCache<float> cache;
  const std::vector<Token> tokens(static_cast<std::size_t>(time), 1);
  auto gradients = model.gradients();
  model.forward(context, tokens, time, cache);
  model.backward(context, tokens, cache, gradients);
  const double scratch = transformer_memory<float>(config, 1, time).scratch;
  const double held = static_cast<double>(context.workspace.bytes());
  BOOST_TEST(scratch <= held);
  // Left out: four tiles of at most 70 rows, and operands packed into panels of at most 32 columns, eight of them.
  BOOST_TEST(scratch >= held - 4.0 * 2048 * (4 * 70 + 8 * 32));
}

// 12·w² + 13·w a block of GPT-2, in floats; all multiples of 16 here.
BOOST_AUTO_TEST_CASE(sizes_that_no_integer_counts) {
  const double layers = 2.5e8, width = 2.5e8;
  const TransformerMemory memory = transformer_memory<float>(
      TransformerConfig<Gpt2>{.vocabulary = 256, .width = 250000000, .layers = 250000000, .heads = 1, .context = 64}, 1,
      64);
  const double weights = 4 * (layers * (12 * width * width + 13 * width) + (256 + 64 + 2) * width);
  BOOST_TEST(memory.weights == weights, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(memory.weights > 1e25);
}

BOOST_AUTO_TEST_CASE(sizes_beyond_the_largest_are_refused) {
  TransformerConfig<Gpt2> config{.vocabulary = 9, .width = 10000000000, .layers = 1, .heads = 1, .context = 2};
  BOOST_CHECK_EXCEPTION(
      transformer_memory<float>(config, 1, 1), std::invalid_argument, [](const std::invalid_argument& e) {
        return std::string(e.what()) == "TransformerConfig: width is 10000000000, expected at most 268435456";
      });
  config.width = 8;
  config.layers = Index{1} << 40;
  using Model = Transformer<float, Gpt2>;
  BOOST_CHECK_THROW(Model{config}, std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
