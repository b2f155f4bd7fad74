// Against the CPU's own ops, in emulation: the bits that must be equal, and whole training steps.
#include <meso/cuda.hpp>
#include <meso/model/architectures.hpp>
#include <meso/optim.hpp>
#include <meso/quant.hpp>
#include <meso/train.hpp>

#include "tests/cuda/attention_instances.hpp"
#include "tests/cuda/device_test.hpp"

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

struct Sinks : Gpt2 {
  using Normalizer = LearnedSink;
  using Norm = RmsNormSingle;
};
struct Window : LlamaSoftmax1 {
  using Mask = SlidingWindow;
};

template <class S, class Scheme, class DeviceScheme>
void check_same_integers(const Scheme& scheme, const DeviceScheme& device, const Granularity& g) {
  on_device([&](cuda::Context& context) {
    DeviceMatrix<S> x(context, 9, 70, 3, 4, 3, 1);
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

MESO_TEST(quantized_bits) {
  for (const Granularity& g : {per_tensor, per_row, per_group(16)}) {
    check_same_integers<float>(Absmax{8}, cuda::Absmax{8}, g);
    check_same_integers<float>(Zeropoint{4}, cuda::Zeropoint{4}, g);
    check_same_integers<double>(Absmax{4}, cuda::Absmax{4}, g);
    check_same_integers<double>(Zeropoint{8}, cuda::Zeropoint{8}, g);
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

MESO_TEST_SUITE_END()
