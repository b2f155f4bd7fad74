#pragma once
#include <meso/model/transformer.hpp>
#include <meso/train/data.hpp>

namespace meso {

/// Cross-entropy of `model` over `count` batches, batches(number, batch) for number = 0 … count − 1; perplexity is
/// exp(mean()). `linear` and `parameters` are those of Transformer::forward: quantized ones give the quantized
/// perplexity. After each batch visit(cache) is called.
/// Numerics: losses summed in double, the mean over tokens and not over batches.
/// Throws: std::invalid_argument as forward and cross_entropy do.
template <class Products, class S, class A, class Batches, class Linear = FloatLinear, class Visitor>
LossSum evaluate(CpuContext<Products>& context, const Transformer<S, A>& model, Batches&& batches, Index count,
                 TransformerCache<S>& cache, const Linear& linear, const Parameters<S>* parameters, Visitor&& visit) {
  LossSum total;
  Batch batch;
  for (Index i = 0; i < count; ++i) {
    batches(i, batch);
    const View<const S> logits = model.forward(context, batch.tokens, batch.time, cache, linear, parameters);
    const LossSum loss = cross_entropy<Products, S>(context, logits, batch.targets, {});
    total.sum += loss.sum;
    total.count += loss.count;
    visit(cache);
  }
  return total;
}

template <class Products, class S, class A, class Batches, class Linear = FloatLinear>
LossSum evaluate(CpuContext<Products>& context, const Transformer<S, A>& model, Batches&& batches, Index count,
                 TransformerCache<S>& cache, const Linear& linear = {}, const Parameters<S>* parameters = nullptr) {
  return evaluate(context, model, batches, count, cache, linear, parameters, [](const auto&) {});
}

}  // namespace meso
