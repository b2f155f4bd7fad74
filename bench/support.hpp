#pragma once
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <meso/core/eigen_products.hpp>
#include <meso/core/gemm.hpp>
#include <meso/core/random.hpp>
#include <string>
#include <utility>
#include <vector>
#ifdef MESO_WITH_OPENBLAS
#include <meso/core/blas.hpp>
#endif

/// What the benchmarks share. A case is named module/what/…/threads=N[/backend]; bench/compare.py and
/// bench/peers/pytorch_bench.py go by these names.
namespace bench {

using meso::Index;
using Matrix = meso::RowMajorMatrix<float>;

/// The training step that all is measured on: 10.8 M parameters, 2048 tokens.
inline constexpr Index layers = 6, heads = 6, head_size = 64, width = 384, mlp_width = 1536, vocabulary = 256;
inline constexpr Index context_length = 256, batch = 8, tokens = batch * context_length;

/// Elements of the arrays of a pass over `arrays` of them, about 1 GB in all: beyond the caches.
constexpr Index large_size(Index arrays) { return (Index{1} << 28) / arrays; }

/// Gaussian numbers; those of the first rows repeat, so that large ones are there soon.
inline Matrix gaussian(Index rows, Index cols, std::uint64_t stream) {
  Matrix x(rows, cols);
  const Index drawn = std::min<Index>(rows, 256);
  fill_normal(meso::view(x).row_range(0, drawn), meso::Random{1, stream});
  for (Index i = drawn; i < rows; ++i) x.row(i) = x.row(i % drawn);
  return x;
}

/// What one call does; rates come of it. 0: not told.
struct Work {
  double flops = 0;
  double bytes = 0;
  double tokens = 0;
};

/// Times `f`, which returns something of its result, to be used. The first call, which plans buffers, does not count.
template <class F>
void measure(benchmark::State& state, const Work& work, F&& f) {
  benchmark::DoNotOptimize(f());
  for (auto _ : state) {
    benchmark::DoNotOptimize(f());
    benchmark::ClobberMemory();
  }
  const auto rate = [&](const char* name, double amount) {
    if (amount > 0) state.counters[name] = {amount, benchmark::Counter::kIsIterationInvariantRate};
  };
  rate("FLOP/s", work.flops);
  rate("B/s", work.bytes);
  rate("tokens/s", work.tokens);
}

/// Times `a` and `b` in turn, so that a machine that drifts slows down both: "ratio" is the median of a's time in times of
/// b's, "first" and "second" are the medians of their seconds. The first calls do not count.
template <class A, class B>
void measure_pair(benchmark::State& state, A&& a, B&& b) {
  const auto seconds = [](auto& f) {
    const auto start = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(f());
    benchmark::ClobberMemory();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const auto median = [](std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
  };
  seconds(a);
  seconds(b);
  std::vector<double> first, second, ratios;
  for (auto _ : state) {
    double of_a = 0, of_b = 0;
    if (ratios.size() % 2 == 0) of_a = seconds(a);
    of_b = seconds(b);
    if (ratios.size() % 2 == 1) of_a = seconds(a);
    first.push_back(of_a);
    second.push_back(of_b);
    ratios.push_back(of_a / of_b);
    state.SetIterationTime(of_a + of_b);
  }
  state.counters["ratio"] = median(ratios);
  state.counters["first"] = median(first);
  state.counters["second"] = median(second);
}

/// Registers `run(state)`, which calls measure_pair, as name/threads=2.
template <class F>
void add_pair(const std::string& name, int pairs, F run) {
  benchmark::RegisterBenchmark((name + "/threads=2").c_str(), run)
      ->UseManualTime()
      ->Iterations(pairs)
      ->Unit(benchmark::kMillisecond);
}

/// Registers `run(state, context)` as name/threads=N[/backend].
template <class Context = meso::CpuContext<>, class F>
benchmark::internal::Benchmark* add(const std::string& name, int threads, F run, const std::string& backend = "") {
  return benchmark::RegisterBenchmark((name + "/threads=" + std::to_string(threads) + backend).c_str(),
                                      [=](benchmark::State& state) {
                                        Context context(threads);
                                        run(state, context);
                                      })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

/// On 1 and 2 threads.
template <class Context = meso::CpuContext<>, class F>
void add(const std::string& name, F run, const std::string& backend = "") {
  for (const int threads : {1, 2}) add<Context>(name, threads, run, backend);
}

/// The same with every backend of the products.
template <class F>
void add_backends(const std::string& name, F run) {
  add(name, run);
  add<meso::CpuContext<meso::EigenProducts>>(name, run, "/eigen");
#ifdef MESO_WITH_OPENBLAS
  add<meso::CpuContext<meso::Blas>>(name, run, "/blas");
#endif
}

inline int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace bench
