// The model on the device without Eigen, so that a GPU runs it too: gradients against central differences of its own loss,
// evaluate and the probes against plain sums over what the cache holds. cpu_test.cpp compares with the CPU's model.
#include <meso/cuda/clip.cuh>
#include <meso/cuda/optimizer.cuh>
#include <meso/cuda/probes.cuh>
#include <meso/optim/schedule.hpp>
#include <meso/train/evaluate.hpp>
#include <meso/train/trainer.hpp>

#include "tests/cuda/attention_instances.hpp"
#include "tests/cuda/device_test.hpp"

using namespace meso;
using namespace meso::test;
using cuda::bf16;

namespace {

/// The parts that Gpt2 has not: rotary positions, a gated MLP, an own head, learned sinks, a window, no biases.
struct Other {
  using Normalizer = cuda::LearnedSink;
  using Norm = cuda::RmsNorm;
  using Position = cuda::Rotary;
  using Mlp = cuda::SwiGlu;
  using Mask = SlidingWindow;
  static constexpr bool bias = false, tied = false;
};

template <class A>
TransformerConfig<A> tiny() {
  TransformerConfig<A> c;
  c.vocabulary = 7;
  c.width = 64;
  c.layers = 2;
  c.heads = 2;
  c.context = 6;
  c.mlp_width = 12;
  if constexpr (std::is_same_v<A, Other>) {
    c.key_value_heads = 1;
    c.mask = {4};
  }
  return c;
}

std::vector<Token> tokens_of(Index count, Index vocabulary, std::uint64_t seed) {
  std::vector<Token> tokens;
  for (Index i = 0; i < count; ++i)
    tokens.push_back(static_cast<Token>(Random{seed, 3}.below(static_cast<std::uint64_t>(i), vocabulary)));
  return tokens;
}
void fill(Index number, Index vocabulary, Batch& batch) {
  batch.time = 5;
  batch.tokens = tokens_of(10, vocabulary, 10 + static_cast<std::uint64_t>(number));
  batch.targets = tokens_of(10, vocabulary, 20 + static_cast<std::uint64_t>(number));
  batch.targets[1] = ignored_target;
}

/// Moves the weights away from their initial values, where gradients are small and heads alike.
template <class S, class A>
Parameters<Accumulator<S>> shake(cuda::Context& context, Transformer<S, A, Cuda>& model) {
  Parameters<Accumulator<S>> values = cuda::download(context, model.parameters());
  for (const ParameterInfo& info : values.layout)
    for (Index i = info.offset; i < info.offset + info.size(); ++i)
      values.values.data()[i] += static_cast<Accumulator<S>>(0.3 * Random{9, 9}.normal(static_cast<std::uint64_t>(i)));
  cuda::upload(context, values.values.data(), values.values.size(), model.parameters().values.data());
  return values;
}

template <class T>
oracle::Matrix on_host(cuda::Context& context, const cuda::View<T>& x) {
  std::vector<std::remove_const_t<T>> values(static_cast<std::size_t>(x.size()));
  cuda::download<std::remove_const_t<T>>(context, x.data, x.size(), values.data());
  oracle::Matrix m(x.rows, x.cols);
  for (std::size_t i = 0; i < values.size(); ++i) m.data[i] = as_double(values[i]);
  return m;
}

/// The slope of the loss along one direction in each parameter against D(h) = (L(θ + hv) − L(θ − hv))/2h, whose error is
/// below |D(h) − D(2h)|, about three times its first term, and what rounding makes of a loss, 10⁻¹³ relative, over h.
template <class A>
void check_gradients() {
  const TransformerConfig<A> config = tiny<A>();
  Batch batch;
  fill(0, config.vocabulary, batch);
  on_device([&](cuda::Context& context) {
    Transformer<double, A, Cuda> model(context, config);
    Parameters<double> values = shake(context, model);
    TransformerCache<double, Cuda> cache;
    auto device_gradients = model.gradients();
    model.forward(context, batch.tokens, batch.time, cache);
    const double loss = model.backward(context, batch.targets, cache, device_gradients).mean();
    const Parameters<double> gradients = cuda::download(context, device_gradients);
    const auto loss_at = [&](const ParameterInfo& info, const std::vector<double>& v, double h) {
      Parameters<double> moved = values;
      for (Index i = 0; i < info.size(); ++i) moved.values.data()[info.offset + i] += h * v[oracle::at(i)];
      cuda::upload(context, moved.values.data(), moved.values.size(), model.parameters().values.data());
      const auto logits = model.forward(context, batch.tokens, batch.time, cache);
      return cuda::cross_entropy<double>(context, logits, batch.targets, {}).mean();
    };
    for (const ParameterInfo& info : values.layout) {
      std::vector<double> v;
      double norm = 0, slope = 0;
      for (Index i = 0; i < info.size(); ++i) {
        v.push_back(Random{5, stream_of(info.name)}.normal(static_cast<std::uint64_t>(i)));
        norm += v.back() * v.back();
      }
      for (Index i = 0; i < info.size(); ++i) {
        v[oracle::at(i)] /= std::sqrt(norm);
        slope += v[oracle::at(i)] * gradients.values.data()[info.offset + i];
      }
      const auto difference = [&](double h) { return (loss_at(info, v, h) - loss_at(info, v, -h)) / (2 * h); };
      const double h = 1e-3, near = difference(h), far = difference(2 * h);
      const double bound = std::abs(near - far) + 1e-13 * loss / h;
      MESO_CHECK_MESSAGE(outside(slope, near, bound).empty(), info.name + ": " + outside(slope, near, bound));
      MESO_CHECK(bound < 1e-4);  // else the comparison would say nothing
    }
  });
}

/// What the probes and evaluate say against plain sums over the residual streams, queries and keys of the cache.
template <class A>
void check_probes() {
  const TransformerConfig<A> config = tiny<A>();
  const Index time = 5, d = 32, keys = A::bias ? 2 : 1;
  on_device([&](cuda::Context& context) {
    Transformer<double, A, Cuda> model(context, config);
    shake(context, model);
    const SinkOptions options{.sink_key = 1, .sink_threshold = 0.2};
    SinkStatistics sinks(options);
    HiddenStateStatistics hidden;
    TransformerCache<double, Cuda> cache;
    auto gradients = model.gradients();
    LossSum expected;
    struct Sums {
      double first = 0, null = 0, entropy = 0;
      Index rows = 0, largest = 0, nowhere = 0, sinks = 0;
    };
    std::vector<Sums> of_head(4);
    std::vector<double> kurtosis(3 * 5), top(3 * 5);
    double score = 0;
    Index number = 0;
    const auto batches = [&](Index n, Batch& batch) { fill(n, config.vocabulary, batch); };
    const LossSum loss = evaluate(context, model, batches, 2, cache, FloatLinear{}, nullptr, [&](const auto& c) {
      add_hidden_states(context, c, hidden);
      add_attention(context, model, c, sinks);
      Batch batch;
      fill(number++, config.vocabulary, batch);
      const LossSum of_batch = model.backward(context, batch.targets, c, gradients);
      expected.sum += of_batch.sum;
      expected.count += of_batch.count;
      for (Index l = 0; l < 3; ++l) {
        const oracle::Matrix x = on_host(context, c.residual[oracle::at(l)]);
        for (Index i = 0; i < x.rows; ++i) {
          double mean = 0, m2 = 0, m4 = 0, most = 0;
          for (Index j = 0; j < x.cols; ++j) mean += x(i, j) / 64;
          for (Index j = 0; j < x.cols; ++j) {
            m2 += std::pow(x(i, j) - mean, 2) / 64;
            m4 += std::pow(x(i, j) - mean, 4) / 64;
            most = std::max<double>(most, std::abs(x(i, j)));
          }
          kurtosis[oracle::at(l * 5 + i % time)] += m4 / (m2 * m2) / 4;
          top[oracle::at(l * 5 + i % time)] += most / 4;
        }
      }
      for (Index l = 0; l < 2; ++l) {
        const oracle::Matrix qkv = on_host(context, c.blocks[oracle::at(l)].qkv);
        for (Index h = 0; h < 2; ++h) {
          Sums& s = of_head[oracle::at(l * 2 + h)];
          double null = 1;
          if constexpr (A::Normalizer::parameters_per_head > 0)
            null =
                std::exp(on_host(context, model.parameters()[model.numbers().blocks[oracle::at(l)].normalizer])(h, 0));
          for (Index b = 0; b < 2; ++b) {
            double sink = 0;
            for (Index i = 0; i < time; ++i) {
              const KeyRange seen = model.config().mask.visible(i, time);
              oracle::Vector z;
              for (Index j = seen.first; j < seen.first + seen.count; ++j) {
                double sum = 0, magnitude = 0;
                for (Index k = 0; k < d; ++k) {
                  const double term = qkv(b * time + i, h * d + k) * qkv(b * time + j, 64 + h * keys / 2 * d + k);
                  sum += term / std::sqrt(32.0);
                  magnitude += std::abs(term) / std::sqrt(32.0);
                }
                z.push_back(sum);
                score = std::max<double>(score, magnitude);
              }
              const oracle::Vector p = oracle::null_logit(z, null);
              double total = 0, other = 0, entropy = 0;
              const double first = seen.first == 0 ? p[0] : 0;
              for (std::size_t j = 0; j < p.size(); ++j) {
                total += p[j];
                entropy -= p[j] * std::log(p[j]);
                if (seen.first > 0 || j > 0) other = std::max<double>(other, p[j]);
              }
              const double rest = 1 - total;
              if (i >= 1 && seen.first <= 1) sink += p[oracle::at(1 - seen.first)];
              if (i == 0) continue;
              ++s.rows;
              s.first += first;
              s.null += rest;
              s.entropy += entropy - rest * std::log(rest);
              s.largest += first > other;
              s.nowhere += rest > first && rest > other;
            }
            s.sinks += sink / 4 > options.sink_threshold;
          }
        }
      }
    });
    MESO_CHECK(loss.count == expected.count && loss.count == 18);
    MESO_CHECK(loss.sum == expected.sum);
    const double u = roundoff<double>();
    for (Index l = 0; l < 3; ++l)
      for (Index t = 0; t < time; ++t) {
        const double k = kurtosis[oracle::at(l * 5 + t)], m = top[oracle::at(l * 5 + t)];
        MESO_CHECK_WITHIN(hidden.kurtosis_at(l, t), k, 2 * (64 + 16) * u * k);
        MESO_CHECK_WITHIN(hidden.max_abs_at(l, t), m, 4 * u * m);
      }
    // Weights: relative error of attention_row_statistics, ζ = (d + 3)·u·score; the null mass here is a difference.
    const double error = 2 * ((d + 3) * score + 2 * score + 5 + 16 + 8) * u;
    for (Index l = 0; l < 2; ++l)
      for (Index h = 0; h < 2; ++h) {
        const Sums& s = of_head[oracle::at(l * 2 + h)];
        const double rows = static_cast<double>(s.rows);
        MESO_CHECK(sinks.rows(l, h) == s.rows && s.rows == 16);
        MESO_CHECK_WITHIN(sinks.first_token_mass(l, h), s.first / rows, error);
        MESO_CHECK_WITHIN(sinks.null_mass(l, h), s.null / rows, error);
        MESO_CHECK_WITHIN(sinks.entropy(l, h), s.entropy / rows,
                          20 * error);  // |ln p| + 1 and the difference's own error
        MESO_CHECK_WITHIN(sinks.first_token_proportion(l, h), static_cast<double>(s.largest) / rows, 1e-15);
        MESO_CHECK_WITHIN(sinks.nowhere_proportion(l, h), static_cast<double>(s.nowhere) / rows, 1e-15);
        MESO_CHECK_WITHIN(sinks.sink_rate(l, h), static_cast<double>(s.sinks) / 4, 1e-15);
      }
  });
}

}  // namespace

MESO_TEST_SUITE(cuda_model)

MESO_TEST(gradients_are_slopes_of_the_loss) {
  check_gradients<cuda::Gpt2Softmax1>();
  check_gradients<Other>();
}
MESO_TEST(probes_against_plain_sums) {
  check_probes<cuda::Gpt2Softmax1>();
  check_probes<Other>();
}

MESO_TEST(bf16_weights_are_the_rounded_masters) {
  on_device([&](cuda::Context& context) {
    Transformer<bf16, cuda::Gpt2, Cuda> model(context, tiny<cuda::Gpt2>());
    const Parameters<float> masters = shake(context, model);
    TransformerCache<bf16, Cuda> cache;
    model.forward(context, tokens_of(10, 7, 1), 5, cache);
    const Parameters<bf16> weights = cuda::download(context, model.weights(cache));
    Index different = 0;
    for (Index i = 0; i < masters.values.size(); ++i)
      different += as_double(weights.values.data()[i]) != as_double(bf16(masters.values.data()[i]));
    MESO_CHECK(weights.values.size() == masters.values.size() && different == 0);
  });
}

/// Another linear policy: bias, residual and activation take passes of their own.
struct Wrapped {
  int* calls;
  template <class... X>
  void operator()(cuda::Context& context, const X&... x) const {
    ++*calls;
    FloatLinear{}(context, x...);
  }
};
template <class A>
void check_linear_policy() {
  on_device([&](cuda::Context& context) {
    Transformer<double, A, Cuda> model(context, tiny<A>());
    const std::vector<Token> tokens = tokens_of(10, 7, 1);
    TransformerCache<double, Cuda> cache;
    const auto logits = [&](const auto& linear, const cuda::Parameters<double>* parameters) {
      return on_host(context, model.forward(context, tokens, 5, cache, linear, parameters)).data;
    };
    const oracle::Vector before = logits(FloatLinear{}, nullptr);
    shake(context, model);
    const oracle::Vector expected = logits(FloatLinear{}, nullptr);
    int calls = 0;
    MESO_CHECK(logits(Wrapped{&calls}, nullptr) == expected);
    MESO_CHECK(calls ==
               (tiny<A>().layers * 4) + (std::is_same_v<A, Other> ? 1 : 0));  // a tied head is not of kind matrix
    // The parameters of the call stand in for the model's own.
    Transformer<double, A, Cuda> first(context, tiny<A>());
    MESO_CHECK(before != expected);
    MESO_CHECK(logits(FloatLinear{}, &first.parameters()) == before);
  });
}
MESO_TEST(linear_policies) {
  check_linear_policy<cuda::Gpt2Softmax1>();
  check_linear_policy<Other>();
}

MESO_TEST(training_with_observers) {
  on_device([&](cuda::Context& context) {
    Transformer<float, cuda::Gpt2, Cuda> model(context, tiny<cuda::Gpt2>());
    cuda::Optimizer<cuda::AdamWRule> optimizer({.learning_rate = 1e-2});
    const auto batches = [](Index, Batch& batch) { fill(0, 7, batch); };
    TransformerCache<float, Cuda> cache;
    const double before = evaluate(context, model, batches, 1, cache).mean();
    std::vector<double> kurtosis;
    const Index steps = train(context, model, optimizer, Constant{}, batches, {.steps = 20}, [&](const StepReport& r) {
      HiddenStateStatistics hidden;
      evaluate(context, model, batches, 1, cache);
      add_hidden_states(context, cache, hidden);
      kurtosis.push_back(hidden.kurtosis(PositionClass::rest));
      return r.step < 8;  // ends the training
    });
    MESO_CHECK(steps == 8 && kurtosis.size() == 8);
    MESO_CHECK(kurtosis.front() > 1 && kurtosis.front() != kurtosis.back());
    MESO_CHECK(evaluate(context, model, batches, 1, cache).mean() < 0.7 * before);
  });
}

MESO_TEST_SUITE_END()
