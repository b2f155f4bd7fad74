// Causal attention, forward and backward: 6 heads of 64, 2048 tokens in all.
#include <meso/attention.hpp>
#include <meso/normalizer.hpp>

#include "../support.hpp"

using namespace meso;

template <class Normalizer>
struct CausalAttention {
  Index time, sequences;
  Index rows = sequences * time, width = bench::heads * bench::head_size;
  AttentionShape shape{sequences, time, bench::heads, bench::heads, bench::head_size, time};
  bench::Matrix q = bench::gaussian(rows, width, 0), k = bench::gaussian(rows, width, 1);
  bench::Matrix v = bench::gaussian(rows, width, 2), d_o = bench::gaussian(rows, width, 3);
  bench::Matrix o = q, dq = q, dk = q, dv = q;

  template <class Products>
  float operator()(CpuContext<Products>& context) {
    attention_forward(context, Normalizer{}, Causal{}, shape, nullptr, view(q), view(k), view(v), view(o));
    attention_backward(context, Normalizer{}, Causal{}, shape, nullptr, view(q), view(k), view(v), view(d_o), view(dq),
                       view(dk), view(dv), nullptr, Accumulate::no);
    return o(0, 0) + dq(0, 0);
  }
};

template <class Normalizer>
static auto causal_attention(Index time, Index sequences) {
  return [=]<class Products>(benchmark::State& state, CpuContext<Products>& context) {
    CausalAttention<Normalizer> attention{time, sequences};
    // 2 products forward and 5 backward, which computes the scores again, over the causal half.
    const double flops = 7.0 * static_cast<double>(sequences * bench::heads * time * (time + 1) * bench::head_size);
    bench::measure(state, {.flops = flops}, [&] { return attention(context); });
    state.counters["workspace MB"] = static_cast<double>(context.workspace.bytes()) * 1e-6;
  };
}

int main(int argc, char** argv) {
  for (const Index time : {256, 1024}) {
    const std::string length = "/T=" + std::to_string(time);
    bench::add("attention/softmax" + length, causal_attention<Softmax>(time, bench::tokens / time));
    bench::add_pair("attention/pair/softmax1_softmax" + length, 21, [=](benchmark::State& state) {
      CpuContext<> context(2);
      CausalAttention<Softmax1> one{time, bench::tokens / time};
      CausalAttention<Softmax> plain{time, bench::tokens / time};
      bench::measure_pair(
          state, [&] { return one(context); }, [&] { return plain(context); });
    });
  }
  bench::add("attention/softmax/T=8192", 2, causal_attention<Softmax>(8192, 1))->Iterations(1);
  return bench::run(argc, argv);
}
