#include <meso/model/architectures.hpp>
#include <meso/normalizer/learned_sink.hpp>
#include <meso/optim.hpp>
#include <meso/train/tasks/bigram_backcopy.hpp>
#include <meso/train/trainer.hpp>

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <new>

// Counts every allocation of this program by operator new. Eigen's products and OpenMP take what they need from malloc,
// which is not counted.
namespace {

std::atomic<long> allocations{0};

void* counted(std::size_t size, std::size_t alignment) {
  ++allocations;
  void* p = std::aligned_alloc(alignment, (size + alignment) / alignment * alignment);
  if (!p) throw std::bad_alloc();
  return p;
}

}  // namespace

void* operator new(std::size_t size) { return counted(size, alignof(std::max_align_t)); }
void* operator new[](std::size_t size) { return counted(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return counted(size, alignof(std::max_align_t));
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return counted(size, alignof(std::max_align_t));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

using namespace meso;

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
  BOOST_TEST(allocations.load() == before + 2);
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
