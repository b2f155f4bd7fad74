#pragma once
#include <cmath>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include <meso/optim/clip_scale.hpp>
#include <meso/optim/step_options.hpp>
#include <meso/train/data.hpp>
#include <meso/train/non_finite.hpp>

namespace meso {

/// How `train` runs; steps is required.
struct TrainerConfig {
  Index steps = 0;
  Index micro_batches = 1;  ///< forward and backward passes a step, which together are one batch
  double clip_norm = 1.0;   ///< gradients are scaled down to this global norm; 0 or less: never
};

/// What observers are told after each step.
struct StepReport {
  Index step = 0;  ///< 1 … steps
  Index steps = 0;
  double loss = 0.0;           ///< mean cross-entropy over the step's targets that count, before the update
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
/// `batches(number, batch)` fills the batch with that number, 0, 1, 2, …, those of a step before its first forward pass;
/// `schedule(step)` is the factor of the learning rate at step 1, 2, ….  It prints and writes nothing: progress, probes
/// and logs are observers.
/// Numerics: loss and gradient are means over the targets that count in all micro-batches of a step, so that they are
/// those of the batch in one piece however it is cut; none: loss and gradient 0.
/// Throws: std::invalid_argument on a config that makes no sense; NonFiniteLoss, which names the step, the layer and the
/// tensor where NaN or Inf appeared first.
template <class Context, class Model, class Optimizer, class Schedule, class Batches, class... Observers>
Index train(Context& context, Model& model, Optimizer& optimizer, const Schedule& schedule, Batches&& batches,
            const TrainerConfig& config, Observers&&... observers) {
  check(config.steps > 0, "train: steps is ", config.steps, ", expected a positive number");
  check(config.micro_batches > 0, "train: micro_batches is ", config.micro_batches, ", expected a positive number");
  check(std::isfinite(config.clip_norm), "train: clip_norm is ", config.clip_norm,
        ", expected a finite number (0 or less: never clip)");
  auto gradients = model.gradients();
  typename Model::Cache cache;
  std::vector<Batch> batch(static_cast<std::size_t>(config.micro_batches));
  for (Index step = 1; step <= config.steps; ++step) {
    StepReport report{step, config.steps};
    Index number = (step - 1) * config.micro_batches, counted = 0;
    for (Batch& micro : batch) {
      batches(number++, micro);
      counted += detail::counted_targets(micro.targets);
      report.tokens += static_cast<Index>(micro.tokens.size());
    }
    LossSum loss;
    for (Batch& micro : batch) {
      model.forward(context, micro.tokens, micro.time, cache);
      // Its own mean, in the share of its targets.
      const double share =
          counted > 0 ? static_cast<double>(detail::counted_targets(micro.targets)) / static_cast<double>(counted)
                      : 0.0;
      loss += model.backward(context, micro.targets, cache, gradients,
                             &micro == batch.data() ? Accumulate::no : Accumulate::yes, share);
      if (!std::isfinite(loss.sum)) break;  // while the cache shows where
    }
    report.loss = loss.mean();
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
