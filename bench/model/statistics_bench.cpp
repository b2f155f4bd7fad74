// All statistics of one batch of the training step: kurtosis and maxima, outlier channels, sinks.
#include <meso/model/probes.hpp>
#include <meso/stats.hpp>

#include "workload.hpp"

using namespace meso;

static void statistics(benchmark::State& state, CpuContext<>& context) {
  const Transformer<float, Gpt2> model(bench::step_config<Gpt2>());
  TransformerCache<float> cache;
  model.forward(context, bench::random_tokens(bench::tokens, 0), bench::context_length, cache);
  bench::measure(state, {}, [&] {
    HiddenStateStatistics hidden;
    OutlierChannels channels;
    SinkStatistics sinks;
    add_hidden_states(context, cache, hidden);
    for (std::size_t l = 1; l < cache.residual.size(); ++l) channels.add(static_cast<Index>(l), map(cache.residual[l]));
    add_attention(context, model, cache, sinks);
    return hidden.kurtosis(PositionClass::rest) + sinks.first_token_mass() +
           static_cast<double>(channels.channels().size());
  });
}

int main(int argc, char** argv) {
  bench::add("model/statistics", 2, statistics);
  return bench::run(argc, argv);
}
