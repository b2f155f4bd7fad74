#include <benchmark/benchmark.h>
#include <meso/core/gemm.hpp>
#include <meso/core/random.hpp>

using namespace meso;

// y = x wᵀ at the shapes of a training step: (tokens, in, out, threads).
static void linear_product(benchmark::State& state) {
  const Index tokens = state.range(0), in = state.range(1), out = state.range(2);
  RowMajorMatrix<float> x(tokens, in), w(out, in), y(tokens, out);
  fill_normal(view(x), Random{1, 0});
  fill_normal(view(w), Random{1, 1});
  CpuContext<> context(static_cast<int>(state.range(3)));
  for (auto _ : state) {
    gemm<EigenProducts, float>(context, view(std::as_const(x)), view(std::as_const(w)), view(y), {.transpose_b = true});
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  state.counters["FLOP/s"] =
      benchmark::Counter(2.0 * static_cast<double>(tokens * in * out) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}
BENCHMARK(linear_product)
    ->ArgsProduct({{1024}, {128}, {384, 512}, {1, 2}})
    ->ArgsProduct({{2048}, {384}, {384, 1152, 1536}, {1, 2}})
    ->UseRealTime();

BENCHMARK_MAIN();
