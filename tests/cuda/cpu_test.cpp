// Against the CPU's own ops, in emulation: the bits that must be equal, and whole training steps.
#include <meso/cuda.hpp>
#include <meso/model.hpp>
#include <meso/optim.hpp>
#include <meso/quant.hpp>
#include <meso/train.hpp>

#include "tests/cuda/attention_instances.hpp"
#include "tests/cuda/device_test.hpp"
#include "tests/support/extreme_gradients.hpp"

using namespace meso;
using namespace meso::test;
using cuda::bf16;

namespace {

std::vector<Token> tokens_of(Index count, Index vocabulary, std::uint64_t seed) {
  std::vector<Token> tokens;
  for (Index i = 0; i < count; ++i)
    tokens.push_back(static_cast<Token>(Random{seed, 3}.below(static_cast<std::uint64_t>(i), vocabulary)));
  return tokens;
}

/// Largest |a − b| over the parameters, relative to the largest |b| of each.
template <class S, class C>
double largest_error(const Parameters<S>& a, const Parameters<C>& b) {
  double worst = 0;
  for (const ParameterInfo& info : b.layout) {
    double error = 0, top = 1e-30;
    for (Index i = info.offset; i < info.offset + info.size(); ++i) {
      const double x = static_cast<double>(a.values.data()[i]), y = static_cast<double>(b.values.data()[i]);
      error = std::max<double>(error, std::abs(x - y));
      top = std::max<double>(top, std::abs(y));
      if (!(std::abs(x - y) < 1e300)) return std::numeric_limits<double>::infinity();
    }
    worst = std::max<double>(worst, error / top);
  }
  return worst;
}

template <class A>
TransformerConfig<A> small() {
  TransformerConfig<A> c;
  c.vocabulary = 24;
  c.width = 64;
  c.layers = 2;
  c.heads = 2;
  c.context = 12;
  c.mlp_width = 40;
  return c;
}

/// Loss and gradients of one batch on the device against the CPU's in double, relative to the largest gradient of each
/// parameter. Bounds: roundings along the longest path, about 60 a layer and 3·width in the sums, times u.
template <class T, class A>
void check_gradients(TransformerConfig<A> config, double bound, double scale = 0.3) {
  const std::vector<Token> tokens = tokens_of(20, config.vocabulary, 1);
  std::vector<Token> targets = tokens_of(20, config.vocabulary, 2);
  targets[3] = ignored_target;
  CpuContext<> cpu(1);
  Transformer<double, A> reference(config);
  cuda::Context first;
  {
    // Weights of the device, so that the CPU sees the same numbers.
    Transformer<T, A, Cuda> model(first, config);
    const auto values = cuda::download(first, model.parameters());
    for (const ParameterInfo& info : values.layout)
      for (Index i = info.offset; i < info.offset + info.size(); ++i)
        reference.parameters().values.data()[i] = as_double(from_double<T>(
            static_cast<double>(values.values.data()[i]) + scale * Random{9, 9}.normal(static_cast<std::uint64_t>(i))));
  }
  TransformerCache<double> cache;
  auto expected = reference.gradients();
  reference.forward(cpu, tokens, 10, cache);
  const double loss = reference.backward(cpu, targets, cache, expected, Accumulate::no, 0.5).mean();
  on_device([&](cuda::Context& context) {
    Transformer<T, A, Cuda> model(context, config);
    using C = cuda::Compute<T>;
    std::vector<C> weights;
    for (Index i = 0; i < expected.values.size(); ++i)
      weights.push_back(static_cast<C>(reference.parameters().values.data()[i]));
    cuda::upload(context, weights.data(), expected.values.size(), model.parameters().values.data());
    TransformerCache<T, Cuda> device_cache;
    auto gradients = model.gradients();
    model.forward(context, tokens, 10, device_cache);
    const LossSum sum = model.backward(context, targets, device_cache, gradients, Accumulate::no, 0.5);
    MESO_CHECK_WITHIN(sum.mean(), loss, bound * loss);
    const double error = largest_error(cuda::download(context, gradients), expected);
    MESO_CHECK_MESSAGE(error <= bound, "gradients: error " + std::to_string(error / bound) + " of the bound");
    // backward leaves the cache alone; adding gives twice the same.
    model.backward(context, targets, device_cache, gradients, Accumulate::yes, 0.5);
    Parameters<double> twice(expected.layout);
    for (Index i = 0; i < twice.values.size(); ++i) twice.values.data()[i] = 2 * expected.values.data()[i];
    MESO_CHECK(largest_error(cuda::download(context, gradients), twice) <= bound);
  });
}

/// Weights of the CPU's model: initial values moved by N(0, scale²), rounded to T so that both see the same numbers.
template <class T, class A>
void shake(Transformer<double, A>& model, double scale) {
  Parameters<double>& w = model.parameters();
  for (const ParameterInfo& info : w.layout)
    for (Index i = info.offset; i < info.offset + info.size(); ++i)
      w.values.data()[i] =
          as_double(from_double<T>(w.values.data()[i] + scale * Random{9, 9}.normal(static_cast<std::uint64_t>(i))));
}

/// Logits, evaluate and both statistics of the same calls on the device and, in double, on the CPU.
/// `error`: of activations, relative to the largest of their tensor, as in check_gradients. From it, to first order:
/// a token's max |x|: error·max|x|; κ, a quotient of fourth moments: 8·δ·κ with δ = error·max|x|/σ, σ the token's
/// smallest; scores: Δz = 2·error·√d·max|q|·max|k|, weights and masses 2Δz relative, so that a row's order is sure where
/// two weights are further apart; entropy: Σ|Δp|·(|ln p| + 1) ≤ 2Δz·(2·ln(keys + 1) + 1).
template <class T, class A>
void check_probes(const TransformerConfig<A>& config, double error, bool every_row_sure) {
  const Index time = 10, sequences = 2, layers = config.layers, heads = config.heads;
  const auto batches = [&](Index number, Batch& batch) {
    batch.time = time;
    batch.tokens = tokens_of(sequences * time, config.vocabulary, 10 + static_cast<std::uint64_t>(number));
    batch.targets = tokens_of(sequences * time, config.vocabulary, 20 + static_cast<std::uint64_t>(number));
    batch.targets[1] = ignored_target;
  };
  CpuContext<> cpu(1);
  Transformer<double, A> reference(config);
  shake<T>(reference, 0.3);
  TransformerCache<double> cache;
  const SinkOptions options{.sink_threshold = 0.2};
  HiddenStateStatistics hidden;
  SinkStatistics sinks(options);
  double top = 0, deviation = 1e300, score = 0, logit = 0;
  const auto largest = [](const View<double>& x) { return map(x).cwiseAbs().maxCoeff(); };
  // Rows of each (layer, head) that are too near a tie, and sequences too near the threshold, for the device to be sure.
  const auto at = [&](Index l, Index h) { return oracle::at(l * heads + h); };
  std::vector<std::vector<double>> gaps(static_cast<std::size_t>(layers * heads));
  std::vector<double> threshold_gap(gaps.size(), 1e300);
  const LossSum expected =
      evaluate(cpu, reference, batches, 2, cache, FloatLinear{}, nullptr, [&](const TransformerCache<double>& c) {
        add_hidden_states(cpu, c, hidden);
        add_attention(cpu, reference, c, sinks);
        logit = std::max<double>(logit, largest(c.logits));
        for (const View<double>& x : c.residual)
          for (Index i = 0; i < x.rows; ++i) {
            top = std::max<double>(top, row_array(x, i).abs().maxCoeff());
            const double mean = row_array(x, i).mean();
            deviation = std::min<double>(deviation, std::sqrt((row_array(x, i) - mean).square().mean()));
          }
        const Index d = config.width / heads, key_width = c.blocks[0].qkv.cols - config.width;
        for (const auto& b : c.blocks)
          score =
              std::max<double>(score, std::sqrt(static_cast<double>(d)) * largest(b.qkv.col_range(0, config.width)) *
                                          largest(b.qkv.col_range(config.width, key_width / 2)));
        for (Index l = 0; l < layers; ++l)
          for (Index h = 0; h < heads; ++h) {
            double sum = 0;
            attention_rows(cpu, reference, c, l, h, [&](Index, const Row& row, Index first, auto p, auto) {
              const double null = 1 - p.sum(), one = first == 0 ? p[0] : 0;
              double other = 0;
              for (Index j = first == 0 ? 1 : 0; j < p.size(); ++j) other = std::max<double>(other, p[j]);
              const auto gap = [](double x, double y) { return std::abs(x - y) / std::max<double>(x, y); };
              const double no_null = A::Normalizer::parameters_per_head == 0 && std::abs(null) < 1e-9 ? 1e300 : 0;
              if (row.query > 0)
                gaps[at(l, h)].push_back(std::min<double>(
                    {first == 0 ? gap(one, other) : 1e300, no_null + gap(null, one), no_null + gap(null, other)}));
              sum += one;
              if (row.query == time - 1) {
                const double alpha = sum / static_cast<double>(time);
                threshold_gap[at(l, h)] = std::min<double>(threshold_gap[at(l, h)], gap(alpha, options.sink_threshold));
                sum = 0;
              }
            });
          }
      });
  const double weight_error = 2 * 2 * error * score;
  on_device([&](cuda::Context& context) {
    Transformer<T, A, Cuda> model(context, config);
    std::vector<cuda::Compute<T>> weights;
    for (Index i = 0; i < reference.parameters().values.size(); ++i)
      weights.push_back(static_cast<cuda::Compute<T>>(reference.parameters().values.data()[i]));
    cuda::upload(context, weights.data(), reference.parameters().values.size(), model.parameters().values.data());
    TransformerCache<T, Cuda> device_cache;
    HiddenStateStatistics device_hidden;
    SinkStatistics device_sinks(options);
    const LossSum loss = evaluate(context, model, batches, 2, device_cache, FloatLinear{}, nullptr,
                                  [&](const TransformerCache<T, Cuda>& c) {
                                    add_hidden_states(context, c, device_hidden);
                                    add_attention(context, model, c, device_sinks);
                                  });
    MESO_CHECK(loss.count == expected.count);
    MESO_CHECK_WITHIN(loss.mean(), expected.mean(), 2 * error * logit);  // 1-Lipschitz in every logit, and the target's
    std::vector<T> logits(static_cast<std::size_t>(device_cache.logits.size()));
    cuda::download(context, device_cache.logits.data, device_cache.logits.size(), logits.data());
    for (std::size_t i = 0; i < logits.size(); ++i)
      MESO_CHECK_WITHIN(as_double(logits[i]), cache.logits.data[i], error * logit);

    MESO_CHECK(device_hidden.layers() == layers);
    for (Index l = 0; l <= layers; ++l) {
      for (Index t = 0; t < time; ++t) {
        const double kurtosis = hidden.kurtosis_at(l, t);
        MESO_CHECK_WITHIN(device_hidden.kurtosis_at(l, t), kurtosis, 8 * error * top / deviation * kurtosis);
        MESO_CHECK_WITHIN(device_hidden.max_abs_at(l, t), hidden.max_abs_at(l, t), error * top);
      }
      for (const PositionClass c : {PositionClass::first, PositionClass::rest}) {
        MESO_CHECK(device_hidden.tokens(l, c) == hidden.tokens(l, c));
        MESO_CHECK(device_hidden.undefined(l, c) == hidden.undefined(l, c));
        MESO_CHECK_WITHIN(device_hidden.largest_abs(l, c), hidden.largest_abs(l, c), error * top);
      }
    }
    Index unsure = 0;
    for (Index l = 0; l < layers; ++l)
      for (Index h = 0; h < heads; ++h) {
        MESO_CHECK(device_sinks.rows(l, h) == sinks.rows(l, h));
        Index near = 0;
        for (const double gap : gaps[at(l, h)]) near += gap <= 2 * weight_error;
        unsure += near + (threshold_gap[at(l, h)] <= 2 * weight_error);
        const double share = static_cast<double>(near) / static_cast<double>(sinks.rows(l, h)) + 1e-15;
        MESO_CHECK_WITHIN(device_sinks.first_token_proportion(l, h), sinks.first_token_proportion(l, h), share);
        MESO_CHECK_WITHIN(device_sinks.first_token_proportion_with_null(l, h),
                          sinks.first_token_proportion_with_null(l, h), share);
        MESO_CHECK_WITHIN(device_sinks.nowhere_proportion(l, h), sinks.nowhere_proportion(l, h), share);
        if (threshold_gap[at(l, h)] > 2 * weight_error)
          MESO_CHECK(device_sinks.sink_rate(l, h) == sinks.sink_rate(l, h));
        MESO_CHECK_WITHIN(device_sinks.first_token_mass(l, h), sinks.first_token_mass(l, h),
                          weight_error * sinks.first_token_mass(l, h));
        MESO_CHECK_WITHIN(device_sinks.null_mass(l, h), sinks.null_mass(l, h), weight_error * sinks.null_mass(l, h));
        MESO_CHECK_WITHIN(device_sinks.entropy(l, h), sinks.entropy(l, h),
                          weight_error * (2 * std::log(static_cast<double>(time + 1)) + 1));
      }
    if (every_row_sure) MESO_CHECK(unsure == 0);
    MESO_CHECK(weight_error < 0.1);  // else the comparison would say nothing
  });
}

struct Sinks : Gpt2 {
  using Normalizer = LearnedSink;
  using Norm = RmsNormSingle;
};
struct Window : LlamaSoftmax1 {
  using Mask = SlidingWindow;
};

template <class S, class Scheme, class DeviceScheme>
void check_same_integers(const Scheme& scheme, const DeviceScheme& device, const Granularity& g, bool extreme) {
  on_device([&](cuda::Context& context) {
    DeviceMatrix<S> x(context, 9, 70, 3, 4, 3, 1);
    oracle::Matrix planted = x.values();
    const double most = static_cast<double>(std::numeric_limits<S>::max()),
                 least = static_cast<double>(std::numeric_limits<S>::min());
    if (extreme) {
      planted(1, 3) = most, planted(1, 4) = -most;  // what follows overflows or underflows
      planted(2, 3) = -most, planted(2, 9) = most / 3;
      planted(3, 0) = most;
      for (Index j = 0; j < 70; ++j) planted(4, j) *= least, planted(5, j) *= 40 * least, planted(6, j) = -most;
    }
    x.set(planted);
    const oracle::Matrix values = x.values();
    RowMajorMatrix<S> on_host(9, 70);
    for (Index i = 0; i < 9; ++i)
      for (Index j = 0; j < 70; ++j) on_host(i, j) = static_cast<S>(values(i, j));
    const auto expected = quantize(on_host, scheme, g);
    cuda::QuantizedMatrix<S, typename Scheme::Storage> q;
    cuda::quantize(context, x.constant(), device, {g.rows, g.cols}, q);
    std::vector<typename Scheme::Storage> integers(static_cast<std::size_t>(9 * 70));
    std::vector<cuda::QuantizationGrid<S>> grids(static_cast<std::size_t>(q.grids.size()));
    cuda::download(context, q.values.data(), 9 * 70, integers.data());
    cuda::download(context, q.grids.data(), q.grids.size(), grids.data());
    MESO_CHECK(std::equal(integers.begin(), integers.end(), expected.values.data()));
    for (Index b = 0; b < q.grids.size(); ++b) {
      MESO_CHECK(grids[oracle::at(b)].scale == expected.scales.data()[b]);
      MESO_CHECK(grids[oracle::at(b)].zero == expected.zero_points.data()[b]);
    }
    DeviceMatrix<S> back(context, 9, 70);
    cuda::dequantize(context, q, back.view());
    const RowMajorMatrix<S> returned = dequantize(expected);
    for (Index k = 0; k < 9 * 70; ++k)
      MESO_CHECK(back.values().data[oracle::at(k)] == static_cast<double>(returned.data()[k]));
  });
}

template <class Optimizer_>
void check_optimizer(const Optimizer_& options, double bound) {
  ParameterLayout layout;
  layout.add("matrix", 20, 33, ParameterKind::matrix);
  layout.add("bias", 1, 33, ParameterKind::bias);
  layout.add("table", 7, 16, ParameterKind::embedding);
  Parameters<double> theta(layout), gradient(layout);
  for (const ParameterInfo& info : layout) fill_normal(theta[info.name], Random{1, stream_of(info.name)});
  CpuContext<> cpu(1);
  on_device([&](cuda::Context& context) {
    Optimizer_ expected = options;
    Parameters<double> on_host = theta;
    auto optimizer = cuda::on_device(options);
    auto device_theta = cuda::upload(context, theta);
    for (std::uint64_t t = 0; t < 4; ++t) {
      for (const ParameterInfo& info : layout) fill_normal(gradient[info.name], Random{2 + t, stream_of(info.name)});
      const auto device_gradient = cuda::upload(context, gradient);
      expected.step(cpu, on_host, gradient, {.learning_rate_factor = 0.75, .gradient_scale = 0.5});
      optimizer.step(context, device_theta, device_gradient, {.learning_rate_factor = 0.75, .gradient_scale = 0.5});
    }
    const double error = largest_error(cuda::download(context, device_theta), on_host);
    MESO_CHECK_MESSAGE(error <= bound, "optimizer: error " + std::to_string(error));
  });
}

/// Gradients whose norm is beyond the largest number: the step keeps the bound of the rotated basis.
template <class R>
void check_rotated_extremes(const OrthoAdam<R>& options) {
  ParameterLayout layout;
  layout.add("matrix", 20, 33, ParameterKind::matrix);
  Parameters<float> gradient(layout);
  on_device([&](cuda::Context& context) {
    auto optimizer = cuda::on_device(options);
    for (Index t = 1; t <= 4; ++t) {
      for (Index i = 0; i < 20 * 33; ++i)
        gradient.values.data()[i] = static_cast<float>(
            Random{1, static_cast<std::uint64_t>(t)}.bits(static_cast<std::uint64_t>(i)) & 1 ? 3e38 : -3e38);
      auto theta = cuda::upload(context, Parameters<float>(layout));
      optimizer.step(context, theta, cuda::upload(context, gradient));
      const Parameters<float> moved = cuda::download(context, theta);
      const double norm = map(moved[0]).template cast<double>().norm();
      const double roundings = 4.5 * static_cast<double>(t) + 8 + 8 * (20 + 33 + 4);
      MESO_CHECK(norm <= adam_bound(0.9, 0.999, t) * std::sqrt(20.0 * 33) * (1 + roundings * roundoff<float>()));
      MESO_CHECK(norm > 1);
    }
  });
}

}  // namespace

MESO_TEST_SUITE(cuda_against_cpu)

MESO_TEST(initial_values_have_the_same_bits) {
  cuda::Context context;
  const Transformer<float, Gpt2> expected(small<Gpt2>());
  Transformer<float, Gpt2, Cuda> model(context, small<Gpt2>());
  const auto values = cuda::download(context, model.parameters());
  MESO_CHECK(std::equal(values.values.data(), values.values.data() + values.values.size(),
                        expected.parameters().values.data()));
}

MESO_TEST(gradients_double) {
  check_gradients<double>(small<Gpt2Softmax1>(), 1e-12);
  TransformerConfig<Llama> grouped = small<Llama>();
  grouped.key_value_heads = 1;
  check_gradients<double>(grouped, 1e-12);
  check_gradients<double>(small<Sinks>(), 1e-12);
  TransformerConfig<Window> window = small<Window>();
  window.mask = {3};
  check_gradients<double>(window, 1e-12);
}
MESO_TEST(gradients_float) {
  check_gradients<float>(small<Gpt2Softmax1>(), 2e-5);
  check_gradients<float>(small<Llama>(), 2e-5);
}
MESO_TEST(gradients_bf16) {
  // Every layer passes on its rounding errors, 2⁻⁸ each, times the size of its weights, √width·scale.
  check_gradients<bf16>(small<Gpt2Softmax1>(), 0.06, 0.1);
  check_gradients<bf16>(small<LlamaSoftmax1>(), 0.06, 0.1);
}

MESO_TEST(evaluate_and_probes) {
  check_probes<double>(small<Gpt2Softmax1>(), 1e-12, true);
  check_probes<double>(small<Gpt2>(), 1e-12, true);
  check_probes<double>(small<Sinks>(), 1e-12, true);
  TransformerConfig<Window> window = small<Window>();
  window.mask = {3};
  window.key_value_heads = 1;
  check_probes<double>(window, 1e-12, true);
  check_probes<float>(small<Gpt2Softmax1>(), 2e-5, false);
  check_probes<float>(small<Llama>(), 2e-5, false);
}

MESO_TEST(quantized_bits) {
  for (const Granularity& g : {per_tensor, per_row, per_group(16)}) {
    for (const bool extreme : {false, true}) {
      check_same_integers<float>(Absmax{8}, cuda::Absmax{8}, g, extreme);
      check_same_integers<float>(Zeropoint{4}, cuda::Zeropoint{4}, g, extreme);
      check_same_integers<float>(Zeropoint{1}, cuda::Zeropoint{1}, g, extreme);
      check_same_integers<double>(Absmax{4}, cuda::Absmax{4}, g, extreme);
      check_same_integers<double>(Zeropoint{8}, cuda::Zeropoint{8}, g, extreme);
    }
  }
}

MESO_TEST(optimizers) {
  check_optimizer(Sgd({.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.1}), 1e-14);
  check_optimizer(RmsProp({.momentum = 0.9, .centered = true}), 1e-13);
  check_optimizer(AdamW({.weight_decay = 0.1}), 1e-14);
  check_optimizer(OrthoAdam<>({.learning_rate = 0.01}), 1e-13);
  check_optimizer(OrthoAdam<>({.learning_rate = 0.01}, {.max_dim = 8}), 1e-13);
  check_optimizer(OrthoAdam<HadamardRotation>({.learning_rate = 0.01}), 1e-13);
}

/// A training curve of `steps` on repeated text: the losses.
template <class Context_, class Model>
std::vector<double> curve(Context_& context, Model& model, auto optimizer, Index steps) {
  const std::string text = "the cat sat on the mat. the cat sat on the mat. the cat sat on the mat. the cat sat.";
  std::vector<Token> tokens;
  for (const char c : text) tokens.push_back(static_cast<Token>(c) % 24);
  const TokenStream stream(tokens, 0.1);
  std::vector<double> losses;
  train(
      context, model, optimizer, Constant{},
      [&](Index number, Batch& batch) { stream.sample(1, number, 2, 10, batch); }, {.steps = steps},
      [&](const StepReport& r) { losses.push_back(r.loss); });
  return losses;
}

MESO_TEST(training_curves) {
  const Index steps = 12;
  CpuContext<> cpu(1);
  Transformer<double, Gpt2Softmax1> reference(small<Gpt2Softmax1>());
  const OrthoAdam<> optimizer({.learning_rate = 3e-3});
  const std::vector<double> expected = curve(cpu, reference, optimizer, steps);
  MESO_CHECK(expected.back() < 0.75 * expected.front());
  cuda::Context context;
  Transformer<float, Gpt2Softmax1, Cuda> model(context, small<Gpt2Softmax1>());
  const std::vector<double> losses = curve(context, model, cuda::on_device(optimizer), steps);
  Transformer<bf16, Gpt2Softmax1, Cuda> half(context, small<Gpt2Softmax1>());
  const std::vector<double> rough = curve(context, half, cuda::on_device(optimizer), steps);
  MESO_CHECK(losses.size() == expected.size() && rough.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    MESO_CHECK_WITHIN(losses[i], expected[i], 2e-4);
    MESO_CHECK_WITHIN(rough[i], expected[i], 0.03);  // the stated distance of mixed precision from float
  }
}

MESO_TEST(a_loss_that_is_not_finite_names_its_place) {
  cuda::Context context;
  Transformer<float, Gpt2, Cuda> model(context, small<Gpt2>());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  cuda::upload(context, &nan, 1, model.parameters()["blocks.1.mlp.up"].data);
  std::string text;
  try {
    curve(context, model, cuda::on_device(Adam()), 1);
  } catch (const NonFiniteLoss& e) {
    text = e.what();
  }
  MESO_CHECK(text == "training step 1: the loss is nan; first in parameter blocks.1.mlp.up");
}

MESO_TEST(a_rotation_keeps_the_bound) {
  check_rotated_extremes<KroneckerRotation>(OrthoAdam<KroneckerRotation>({.learning_rate = 1, .epsilon = 0}));
  check_rotated_extremes<HadamardRotation>(OrthoAdam<HadamardRotation>({.learning_rate = 1, .epsilon = 0}));
}

MESO_TEST_SUITE_END()
