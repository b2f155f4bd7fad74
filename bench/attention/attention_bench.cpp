#include <benchmark/benchmark.h>
#include <meso/attention.hpp>
#include <meso/core/random.hpp>
#include <meso/normalizer.hpp>

using namespace meso;

// Causal attention, forward and backward: (time, threads), 6 heads of 64, 2048 tokens in all.
template <class Normalizer>
static void causal_attention(benchmark::State& state) {
  const Index time = state.range(0), heads = 6, d = 64, batch = std::max<Index>(1, 2048 / time);
  const AttentionShape shape{batch, time, heads, heads, d, time};
  RowMajorMatrix<float> q(batch * time, heads * d), k = q, v = q, o = q, d_o = q, dq = q, dk = q, dv = q;
  std::uint64_t stream = 0;
  for (auto* x : {&q, &k, &v, &d_o}) fill_normal(view(*x), Random{1, stream++});
  CpuContext<> context(static_cast<int>(state.range(1)));
  const auto in = [](const RowMajorMatrix<float>& x) { return view(x); };
  for (auto _ : state) {
    attention_forward(context, Normalizer{}, Causal{}, shape, nullptr, in(q), in(k), in(v), view(o));
    attention_backward(context, Normalizer{}, Causal{}, shape, nullptr, in(q), in(k), in(v), in(d_o), view(dq),
                       view(dk), view(dv), nullptr, Accumulate::no);
    benchmark::DoNotOptimize(dq.data());
    benchmark::ClobberMemory();
  }
  // 2 products forward and 5 backward, over the causal half.
  const double flops = 7.0 * static_cast<double>(batch * heads * time * (time + 1) * d);
  state.counters["causal FLOP/s"] =
      benchmark::Counter(flops * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(causal_attention<Softmax>)->ArgsProduct({{64, 256, 1024}, {1, 2}})->UseRealTime();
BENCHMARK(causal_attention<Softmax1>)->ArgsProduct({{64, 256, 1024}, {1, 2}})->UseRealTime();

BENCHMARK_MAIN();
