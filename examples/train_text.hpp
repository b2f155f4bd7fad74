#pragma once
// What train_text does on every device: train, evaluate on the last tenth, print what the probes saw.
#include <cmath>
#include <iostream>
#include <meso/model/hidden_states.hpp>
#include <meso/optim/schedule.hpp>
#include <meso/stats/sink_statistics.hpp>
#include <meso/train/evaluate.hpp>
#include <meso/train/trainer.hpp>
#include <string>

inline meso::TokenStream train_text_stream() {
  std::string text;
  for (int i = 0; i < 20; ++i)
    text += "the cat that the dog chased ran to the house that the man built. a dog ran to the man. the man sat. ";
  return meso::TokenStream::from_bytes(text);
}

inline constexpr meso::Index train_text_time = 32;

/// Perplexity of the text's last tenth after at most `most` steps. The observers are lambdas: one prints, and one ends the
/// training early.
template <class Context, class Model, class Optimizer>
double train_text(Context& context, Model& model, Optimizer& optimizer, meso::Index most) {
  const meso::TokenStream stream = train_text_stream();
  const meso::Index time = train_text_time;
  const auto batches = [&](meso::Index number, meso::Batch& batch) { stream.sample(1, number, 8, time, batch); };
  const auto print = [](const meso::StepReport& r) {
    if (r.step % 40 == 0) std::cout << "step " << r.step << ": loss " << r.loss << '\n';
  };
  const auto until_good = [](const meso::StepReport& r) { return r.loss > 0.25; };
  const meso::Index steps = meso::train(context, model, optimizer, meso::WarmupCosine{.warmup = 20, .total = most},
                                        batches, {.steps = most}, print, until_good);

  // Perplexity with probes on the residual stream and on the attention.
  typename Model::Cache cache;
  meso::HiddenStateStatistics hidden;
  meso::SinkStatistics sinks;
  const auto held_out = [&](meso::Index number, meso::Batch& batch) {
    stream.validation_batch(number, 1, time, batch);
  };
  const meso::LossSum loss = meso::evaluate(context, model, held_out, stream.validation_windows(time), cache);
  meso::add_hidden_states(context, cache, hidden);
  add_attention(context, model, cache, sinks);
  const double perplexity = std::exp(loss.mean());
  std::cout << "after " << steps << " steps: perplexity " << perplexity << ", kurtosis "
            << hidden.kurtosis(meso::PositionClass::rest) << ", first-token mass " << sinks.first_token_mass()
            << ", null mass " << sinks.null_mass() << '\n';
  return perplexity;
}
