#pragma once
#include <meso/model/decoder.hpp>
#include <meso/train/data.hpp>

namespace meso {

/// Cross-entropy of `model` over `count` batches, batches(number, batch) for number = 0 … count − 1, on the device of
/// `context` and `model`; perplexity is exp(mean()). `linear` and `parameters` are those of Transformer::forward: quantized
/// ones give the quantized perplexity. After each batch visit(cache) is called.
/// Numerics: losses summed in double, the mean over the targets that count and not over batches.
/// Throws: std::invalid_argument as forward and cross_entropy do.
template <class Context, class S, class A, class Device, class Batches, class Linear, class Visitor>
LossSum evaluate(Context& context, const Transformer<S, A, Device>& model, Batches&& batches, Index count,
                 TransformerCache<S, Device>& cache, const Linear& linear,
                 const typename Transformer<S, A, Device>::Weights* parameters, Visitor&& visit) {
  LossSum total;
  Batch batch;
  for (Index i = 0; i < count; ++i) {
    batches(i, batch);
    const View<const S, Device> logits = model.forward(context, batch.tokens, batch.time, cache, linear, parameters);
    total += cross_entropy(context, logits, batch.targets, View<S, Device>{});
    visit(cache);
  }
  return total;
}

template <class Context, class S, class A, class Device, class Batches, class Linear = FloatLinear>
LossSum evaluate(Context& context, const Transformer<S, A, Device>& model, Batches&& batches, Index count,
                 TransformerCache<S, Device>& cache, const Linear& linear = {},
                 const typename Transformer<S, A, Device>::Weights* parameters = nullptr) {
  return evaluate(context, model, batches, count, cache, linear, parameters, [](const auto&) {});
}

}  // namespace meso
