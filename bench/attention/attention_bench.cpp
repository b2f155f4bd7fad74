// Causal attention, forward and backward: 6 heads of 64, 2048 tokens in all.
#include <meso/attention.hpp>
#include <meso/normalizer.hpp>

#include "../support.hpp"

using namespace meso;

template <class Normalizer>
static auto causal_attention(Index time, Index sequences) {
  return [=]<class Products>(benchmark::State& state, CpuContext<Products>& context) {
    const Index heads = bench::heads, d = bench::head_size, rows = sequences * time;
    const AttentionShape shape{sequences, time, heads, heads, d, time};
    const bench::Matrix q = bench::gaussian(rows, heads * d, 0), k = bench::gaussian(rows, heads * d, 1),
                        v = bench::gaussian(rows, heads * d, 2), d_o = bench::gaussian(rows, heads * d, 3);
    bench::Matrix o = q, dq = q, dk = q, dv = q;
    // 2 products forward and 5 backward, which computes the scores again, over the causal half.
    const double flops = 7.0 * static_cast<double>(sequences * heads * time * (time + 1) * d);
    bench::measure(state, {.flops = flops}, [&] {
      attention_forward(context, Normalizer{}, Causal{}, shape, nullptr, view(q), view(k), view(v), view(o));
      attention_backward(context, Normalizer{}, Causal{}, shape, nullptr, view(q), view(k), view(v), view(d_o),
                         view(dq), view(dk), view(dv), nullptr, Accumulate::no);
      return o.data() + dq.size() - 1;
    });
    state.counters["workspace MB"] = static_cast<double>(context.workspace.bytes()) * 1e-6;
  };
}

int main(int argc, char** argv) {
  for (const Index time : {256, 1024}) {
    const std::string length = "/T=" + std::to_string(time);
    bench::add("attention/softmax" + length, causal_attention<Softmax>(time, bench::tokens / time));
    bench::add("attention/softmax1" + length, causal_attention<Softmax1>(time, bench::tokens / time));
  }
  bench::add("attention/softmax/T=8192", 2, causal_attention<Softmax>(8192, 1))->Iterations(1);
  return bench::run(argc, argv);
}
