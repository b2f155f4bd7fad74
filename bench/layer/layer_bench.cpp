// GELU and cross-entropy at the shapes of the training step, and beyond the caches.
#include "../model/workload.hpp"

using namespace meso;

static double bytes(const bench::Matrix& x, double arrays) {
  return arrays * sizeof(float) * static_cast<double>(x.size());
}

static void gelu_forward(benchmark::State& state, CpuContext<>& context, Index rows) {
  const bench::Matrix x = bench::gaussian(rows, bench::mlp_width, 0);
  bench::Matrix y = x;
  bench::measure(state, {.bytes = bytes(x, 2)}, [&] {
    activation_forward(context, Gelu{}, view(x), view(y));
    return y(rows - 1, 0);
  });
}

static void gelu_backward(benchmark::State& state, CpuContext<>& context, Index rows) {
  const bench::Matrix x = bench::gaussian(rows, bench::mlp_width, 0), dy = bench::gaussian(rows, bench::mlp_width, 1);
  bench::Matrix dx = x;
  bench::measure(state, {.bytes = bytes(x, 3)}, [&] {
    activation_backward(context, Gelu{}, view(x), view(dy), view(dx));
    return dx(rows - 1, 0);
  });
}

static void loss_alone(benchmark::State& state, CpuContext<>& context, Index rows) {
  const bench::Matrix logits = bench::gaussian(rows, bench::vocabulary, 0);
  const std::vector<Token> targets = bench::random_tokens(rows, 1);
  bench::measure(state, {.bytes = bytes(logits, 1)},
                 [&] { return cross_entropy<PackedProducts, float>(context, view(logits), targets, {}).sum; });
}

static void loss_and_gradient(benchmark::State& state, CpuContext<>& context, Index rows) {
  const bench::Matrix logits = bench::gaussian(rows, bench::vocabulary, 0);
  bench::Matrix dlogits = logits;
  const std::vector<Token> targets = bench::random_tokens(rows, 1);
  bench::measure(state, {.bytes = bytes(logits, 2)}, [&] {
    return cross_entropy<PackedProducts, float>(context, view(logits), targets, view(dlogits)).sum;
  });
}

int main(int argc, char** argv) {
  const auto add = [](const std::string& name, auto op, Index cols, Index arrays) {
    const auto with = [=](Index rows) {
      return [=](benchmark::State& state, CpuContext<>& context) { op(state, context, rows); };
    };
    bench::add(name + "/step", with(bench::tokens));
    bench::add(name + "/large", with(bench::large_size(arrays) / cols));
  };
  add("layer/gelu/forward", gelu_forward, bench::mlp_width, 2);
  add("layer/gelu/backward", gelu_backward, bench::mlp_width, 3);
  add("layer/cross_entropy/forward", loss_alone, bench::vocabulary, 1);
  add("layer/cross_entropy/forward_backward", loss_and_gradient, bench::vocabulary, 2);
  return bench::run(argc, argv);
}
