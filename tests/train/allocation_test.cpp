#include <meso/model/architectures.hpp>
#include <meso/normalizer/learned_sink.hpp>
#include <meso/optim.hpp>
#include <meso/train.hpp>

#include <boost/test/unit_test.hpp>

#include "support/allocations.hpp"

using namespace meso;
using meso::test::allocations;

namespace {

struct SinkLlama : Llama {
  using Normalizer = LearnedSink;
  using Norm = RmsNormSingle;
};

/// Allocations between the end of step 1 and the end of step 4 of a training.
template <class A, class Optimizer>
long allocations_after_the_first_step(Optimizer optimizer, int threads) {
  const BigramBackcopy task("it was the best of times, it was the worst of times, it was the age of wisdom");
  Transformer<float, A> model(
      {.vocabulary = task.vocabulary(), .width = 32, .layers = 2, .heads = 2, .context = 40, .key_value_heads = 1});
  CpuContext<> context(threads);
  long first = -1, last = -1;
  train(
      context, model, optimizer, WarmupCosine{.warmup = 1, .total = 4},
      [&](Index number, Batch& batch) { task.sample(1, number, 3, 40, batch); }, {.steps = 4, .micro_batches = 2},
      [&](const StepReport& r) { (r.step == 1 ? first : last) = allocations.load(); });
  return last - first;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(allocation)

BOOST_AUTO_TEST_CASE(the_counter_counts) {
  const long before = allocations.load();
  const Buffer<float> aligned(3);
  const std::vector<int> vector(3);
  BOOST_TEST(allocations.load() == before + (test::counts_allocations ? 2 : 0));
}

BOOST_AUTO_TEST_CASE(a_training_step_allocates_nothing) {
  for (const int threads : {1, 2}) {
    BOOST_TEST(allocations_after_the_first_step<Gpt2Softmax1>(Adam({.learning_rate = 1e-3}), threads) == 0);
    BOOST_TEST(allocations_after_the_first_step<SinkLlama>(AdamW({.learning_rate = 1e-3}), threads) == 0);
    BOOST_TEST(allocations_after_the_first_step<Gpt2>(Sgd({.learning_rate = 0.1, .momentum = 0.9}), threads) == 0);
    BOOST_TEST(allocations_after_the_first_step<Gpt2>(RmsProp({.learning_rate = 1e-3}), threads) == 0);
    BOOST_TEST(allocations_after_the_first_step<Gpt2>(OrthoAdam<KroneckerRotation>({.learning_rate = 1e-3}), threads) ==
               0);
    BOOST_TEST(allocations_after_the_first_step<Gpt2>(OrthoAdam<HadamardRotation>({.learning_rate = 1e-3}), threads) ==
               0);
  }
}

BOOST_AUTO_TEST_SUITE_END()
