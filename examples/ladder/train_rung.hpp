#pragma once
#include <meso/io/progress.hpp>
#include <meso/meso.hpp>
#include <meso/model/memory.hpp>
#include <utility>

#include "rung.hpp"

namespace ladder {

template <class Architecture>
meso::TransformerConfig<Architecture> model_config(const Setup& setup, std::uint64_t seed = 0) {
  meso::TransformerConfig<Architecture> config;
  config.vocabulary = setup.task.vocabulary;
  config.width = setup.width;
  config.layers = setup.layers;
  config.heads = setup.heads;
  config.context = setup.context;
  config.seed = seed;
  return config;
}

/// Bytes that train_rung holds while it measures between two steps: weights, gradients and moments, the caches of the
/// step and of the measurement, the gradients of activations.
template <class Architecture, int moments>
double memory_of(const Setup& setup) {
  const auto config = model_config<Architecture>(setup);
  const auto step = meso::transformer_memory<float>(config, setup.task.sequences, setup.context);
  const auto measured = meso::transformer_memory<float>(config, setup.task.held_out_sequences, setup.context);
  return (2 + moments) * step.weights + 4 * step.layout + step.cache + step.scratch + measured.cache;
}

/// Trains one model and measures it: the row, its per-layer and its per-step numbers.
template <class Architecture, class Optimizer>
Row train_rung(const Setup& setup, const Row& planned, Optimizer optimizer) {
  using namespace meso;
  Row row = planned;
  const std::uint64_t seed = row.seed;
  const Task& task = setup.task;
  CpuContext<> context(setup.threads);
  Transformer<float, Architecture> model(model_config<Architecture>(setup, seed));
  TransformerCache<float> cache;
  const FloatLinear as_it_is;
  const auto measure = [&](Index batches, HiddenStateStatistics& hidden, SinkStatistics& sinks) {
    return evaluate(context, model, task.held_out, batches, cache, as_it_is,
                    static_cast<const Parameters<float>*>(nullptr), [&](const TransformerCache<float>& seen) {
                      add_hidden_states(context, seen, hidden);
                      add_attention(context, model, seen, sinks);
                    });
  };

  io::ProgressConfig show{.label = row.task + ": " + row.rung + ", seed " + std::to_string(seed)};
  if (setup.shared_terminal) show.terminal = false;
  io::Progress progress(setup.steps, show);
  const auto start = std::chrono::steady_clock::now();
  double measuring = 0;
  const auto seconds_since = [](auto begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const auto observe = [&](const StepReport& report) {
    setup.asks_stop(true);
    row.steps = report.step;
    row.tokens += report.tokens;
    progress.update(report.step, report.loss, row.tokens);
    if (report.step % setup.measure_every == 0 || report.step == report.steps) {
      const auto begin = std::chrono::steady_clock::now();
      HiddenStateStatistics hidden;
      SinkStatistics sinks;
      measure(2, hidden, sinks);
      row.series.push_back({.step = report.step,
                            .loss = report.loss,
                            .kurtosis_rest = hidden.kurtosis(PositionClass::rest),
                            .first_token_mass = sinks.first_token_mass(),
                            .max_abs = hidden.max_abs(PositionClass::rest)});
      measuring += seconds_since(begin);
    }
    return !setup.stop();
  };
  const Index done = train(
      context, model, optimizer, WarmupCosine{.warmup = setup.warmup, .total = setup.steps, .floor = 0.1},
      [&](Index number, Batch& batch) { task.sample(seed, number, batch); }, {.steps = setup.steps, .clip_norm = 1.0},
      observe);
  progress.finish();
  row.seconds = seconds_since(start);
  row.tokens_per_second = static_cast<double>(row.tokens) / (row.seconds - measuring);
  row.finished = done == setup.steps;
  if (!row.finished) return row;
  setup.asks_stop(false);

  HiddenStateStatistics hidden;
  SinkStatistics sinks;
  row.perplexity = std::exp(measure(task.held_out_batches, hidden, sinks).mean());
  row.kurtosis_first = hidden.kurtosis(PositionClass::first);
  row.kurtosis_rest = hidden.kurtosis(PositionClass::rest);
  row.max_abs_first = hidden.max_abs(PositionClass::first);
  row.max_abs_rest = hidden.max_abs(PositionClass::rest);
  row.first_token_proportion = sinks.first_token_proportion();
  row.first_token_proportion_null = sinks.first_token_proportion_with_null();
  row.first_token_mass = sinks.first_token_mass();
  row.null_mass = sinks.null_mass();
  for (Index l = 1; l <= setup.layers; ++l) {
    row.layer_kurtosis_rest.push_back(hidden.kurtosis(l, PositionClass::rest));
    row.layer_max_abs.push_back(hidden.max_abs(l, PositionClass::rest));
    row.layer_first_token_mass.push_back(sinks.first_token_mass(l - 1));
  }
  const auto perplexity = [&](const auto& linear, const Parameters<float>* parameters = nullptr) {
    return std::exp(evaluate(context, model, task.held_out, task.held_out_batches, cache, linear, parameters).mean());
  };
  row.ppl_absmax8_coarse = perplexity(QuantizedLinear<float>(model.parameters(), absmax8_coarse));
  row.ppl_absmax8_moderate = perplexity(QuantizedLinear<float>(model.parameters(), absmax8_moderate));
  row.ppl_absmax8_fine = perplexity(QuantizedLinear<float>(model.parameters(), absmax8_fine));
  const Parameters<float> four_bits = quantize_weights(model.parameters(), Zeropoint{.bits = 4}, per_row);
  row.ppl_zeropoint4 = perplexity(as_it_is, &four_bits);
  return row;
}

/// memory_of with OrthoAdam: the matrices of the rotation can be larger than the model.
template <class Architecture>
double memory_of_ortho_adam(const Setup& setup) {
  const double elements =
      meso::measure_layout(model_config<Architecture>(setup), [&](const meso::ParameterLayout& layout) {
        double sum = 0;
        for (const meso::ParameterInfo& p : layout) {
          const auto square = [](meso::Index n) { return static_cast<double>(n) * static_cast<double>(n); };
          const auto block = [](meso::Index n) {
            return static_cast<double>(n) * static_cast<double>(std::min(n, meso::KroneckerRotation{}.max_dim));
          };
          if (setup.rotation == "dense") sum += square(p.size());
          if (setup.rotation == "kronecker") sum += block(p.cols) + (p.rows > 1 ? block(p.rows) : 0);
        }
        return sum;
      });
  return memory_of<Architecture, 2>(setup) + sizeof(float) * elements;
}

/// OrthoAdam with the rotation that the command line names.
template <class Architecture>
Row train_ortho_adam(const Setup& setup, const Row& planned) {
  using namespace meso;
  const auto with = [&](auto rotation) {
    rotation.seed = planned.seed;
    return train_rung<Architecture>(setup, planned,
                                    OrthoAdam<decltype(rotation)>({.learning_rate = planned.learning_rate}, rotation));
  };
  if (setup.rotation == "hadamard") return with(HadamardRotation{});
  if (setup.rotation == "dense") return with(DenseRotation{});
  return with(KroneckerRotation{});
}

}  // namespace ladder
