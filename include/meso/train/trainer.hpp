#pragma once
#include <cmath>
#include <stdexcept>
#include <type_traits>

#include <meso/optim/clip_scale.hpp>
#include <meso/optim/step_options.hpp>
#include <meso/train/data.hpp>
#include <meso/train/non_finite.hpp>

namespace meso {

/// How `train` runs; steps is required.
struct TrainerConfig {
  Index steps = 0;
  Index micro_batches = 1;  ///< forward and backward passes a step; their gradients are averaged
  double clip_norm = 1.0;   ///< gradients are scaled down to this global norm; 0 or less: never
};

/// What observers are told after each step.
struct StepReport {
  Index step = 0;  ///< 1 … steps
  Index steps = 0;
  double loss = 0.0;           ///< mean cross-entropy of the step's batch, before the update
  double gradient_norm = 0.0;  ///< before clipping
  double learning_rate_factor = 1.0;
  Index tokens = 0;  ///< of this step
};

/// Thrown when the loss or the gradient is NaN or Inf; the parameters are those before the step.
class NonFiniteLoss : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Trains, on the device of `context` and `model`: for every step, loss and gradients of micro_batches batches, clipping,
/// schedule, one optimizer step, then every observer(report); an observer that returns false ends the training. Returns
/// the number of steps done.
/// `batches(number, batch)` fills the batch with that number, 0, 1, 2, …; `schedule(step)` is the factor of the learning
/// rate at step 1, 2, ….  It prints and writes nothing: progress, probes and logs are observers.
/// Throws: std::invalid_argument on a config that makes no sense; NonFiniteLoss, which names the step, the layer and the
/// tensor where NaN or Inf appeared first.
template <class Context, class Model, class Optimizer, class Schedule, class Batches, class... Observers>
Index train(Context& context, Model& model, Optimizer& optimizer, const Schedule& schedule, Batches&& batches,
            const TrainerConfig& config, Observers&&... observers) {
  check(config.steps > 0, "train: steps is ", config.steps, ", expected a positive number");
  check(config.micro_batches > 0, "train: micro_batches is ", config.micro_batches, ", expected a positive number");
  auto gradients = model.gradients();
  typename Model::Cache cache;
  Batch batch;
  for (Index step = 1; step <= config.steps; ++step) {
    StepReport report{step, config.steps};
    for (Index micro = 0; micro < config.micro_batches; ++micro) {
      batches((step - 1) * config.micro_batches + micro, batch);
      model.forward(context, batch.tokens, batch.time, cache);
      const double share = 1.0 / static_cast<double>(config.micro_batches);
      const LossSum loss = model.backward(context, batch.targets, cache, gradients,
                                          micro == 0 ? Accumulate::no : Accumulate::yes, share);
      report.loss += share * loss.mean();
      report.tokens += static_cast<Index>(batch.tokens.size());
    }
    report.gradient_norm = global_norm(context, gradients);
    if (!std::isfinite(report.loss) || !std::isfinite(report.gradient_norm)) {
      const bool bad_loss = !std::isfinite(report.loss);
      const double value = bad_loss ? report.loss : report.gradient_norm;
      const std::string where = first_non_finite(context, model, cache);
      throw NonFiniteLoss(message("training step ", step, ": the ", bad_loss ? "loss" : "gradient norm", " is ",
                                  std::isnan(value) ? "nan" : "inf", "; first in ",
                                  where.empty() ? "the backward pass" : where));
    }
    report.learning_rate_factor = schedule(step);
    optimizer.step(context, model.parameters(), gradients,
                   {.learning_rate_factor = report.learning_rate_factor,
                    .gradient_scale = config.clip_norm > 0 ? clip_scale(report.gradient_norm, config.clip_norm) : 1.0});
    bool go_on = true;
    [[maybe_unused]] const auto tell = [&](auto& observer) {
      if constexpr (std::is_same_v<decltype(observer(report)), bool>)
        go_on = observer(report) && go_on;
      else
        observer(report);
    };
    (tell(observers), ...);
    if (!go_on) return step;
  }
  return config.steps;
}

}  // namespace meso
