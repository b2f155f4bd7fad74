// A table of every kernel on this GPU: its error against the same op in double, its time, and the share of the measured
// copy bandwidth or of the measured matrix rate; then the training step of GPT-2 124M.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <meso/cuda/clip.cuh>
#include <meso/cuda/optimizer.cuh>
#include <meso/cuda/quantized_matrix.cuh>
#include <meso/cuda/statistics.cuh>
#include <meso/cuda/transformer.cuh>

#include "tests/cuda/attention_instances.hpp"

using namespace meso;
using cuda::bf16;

namespace {

/// Median milliseconds of one call, of at least 10 calls and 30 ms.
template <class F>
double milliseconds(cuda::Context& context, F&& f) {
  using Clock = std::chrono::steady_clock;
  const auto run = [&](int calls) {
    context.synchronize();
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) f();
    context.synchronize();
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count() / calls;
  };
  run(3);
  const int calls = std::max<int>(2, static_cast<int>(6 / std::max<double>(1e-3, run(2))));
  std::vector<double> times;
  for (int i = 0; i < 5; ++i) times.push_back(run(std::min<int>(calls, 200)));
  std::sort(times.begin(), times.end());
  return times[2];
}

template <class T>
class Array {
 public:
  Array(cuda::Context& context, Index rows, Index cols, std::uint64_t seed = 0)
      : context_(&context), buffer_(rows * cols), rows_(rows), cols_(cols) {
    if (seed == 0) return;
    std::vector<T> values(static_cast<std::size_t>(rows * cols));
    // Uniform with variance 1: cheap. Rounded to bf16 first, so that every type sees the same numbers.
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bf16 x(static_cast<float>((Random{seed, 1}.uniform(i % 1048573) - 0.5) * 3.46));
      values[i] = static_cast<T>(static_cast<float>(x));
    }
    cuda::upload(context, values.data(), buffer_.size(), buffer_.data());
  }
  cuda::View<T> view() { return buffer_.view(rows_, cols_); }
  cuda::View<const T> constant() { return view(); }
  T* data() { return buffer_.data(); }
  std::vector<double> values() {
    std::vector<T> all(static_cast<std::size_t>(buffer_.size()));
    cuda::download(*context_, buffer_.data(), buffer_.size(), all.data());
    std::vector<double> out;
    for (const T& x : all) out.push_back(static_cast<double>(static_cast<cuda::Compute<T>>(x)));
    return out;
  }

 private:
  cuda::Context* context_;
  cuda::Buffer<T> buffer_;
  Index rows_, cols_;
};

struct Result {
  std::vector<double> values;  ///< of a small call, for the error
  double ms = 0, bytes = 0, flops = 0;
};

double bandwidth = 0;   // bytes a millisecond, measured
double float_rate = 0;  // floating-point operations a millisecond of float products, measured
double bf16_rate = 0;   // of bf16 products
int failures = 0;

void row(const char* name, const char* type, const Result& r, const std::vector<double>& exact, double bound,
         double rate) {
  double error = 0, top = 1e-300;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    error = std::max<double>(error, std::abs(r.values[i] - exact[i]));
    top = std::max<double>(top, std::abs(exact[i]));
    if (!(std::abs(r.values[i] - exact[i]) < 1e300)) error = 1e300;
  }
  const bool bad = exact.size() > 0 && error > bound * top;
  failures += bad;
  std::printf("%-26s %-5s %10.2e%s %9.4f", name, type, exact.empty() ? 0.0 : error / top, bad ? " FAILED" : "", r.ms);
  if (r.bytes > 0) std::printf("  %5.1f %% of copy", 100 * r.bytes / r.ms / bandwidth);
  if (r.flops > 0) std::printf("  %5.1f %% of products", 100 * r.flops / r.ms / rate);
  std::printf("\n");
  std::fflush(stdout);
}

/// op<T>(rows, measured): a Result. Small in double and in T for the error, large in T for the time.
template <class Op>
void rows_of(const char* name, Op&& op) {
  const Result exact = op.template operator()<double>(Index{64}, false);
  const auto one = [&]<class T>(const char* type, double bound, double rate) {
    Result r = op.template operator()<T>(Index{8192}, true);
    r.values = op.template operator()<T>(Index{64}, false).values;
    row(name, type, r, exact.values, bound, rate);
  };
  one.template operator()<float>("float", 1e-4, float_rate);
  one.template operator()<bf16>("bf16", 0.05, bf16_rate);
}

template <class Scalar>
double gemm_rate(cuda::Context& context) {
  const Index n = 4096;
  Array<Scalar> a(context, n, n, 1), b(context, n, n, 2), c(context, n, n);
  const double ms =
      milliseconds(context, [&] { cuda::gemm<Scalar, Scalar>(context, a.constant(), b.constant(), c.view()); });
  const double flops = 2.0 * static_cast<double>(n * n * n);
  std::printf("product of %td, %s: %.1f TFLOP/s\n", n, sizeof(Scalar) == 2 ? "bf16" : "float", flops / ms / 1e9);
  return flops / ms;
}

/// GPT-2 124M: tokens a second, and the share of the measured rate of products.
template <class Scalar>
void training_step(cuda::Context& context, const char* type, double rate) {
  TransformerConfig<cuda::Gpt2Softmax1> config;
  config.vocabulary = 50257;
  config.width = 768;
  config.layers = 12;
  config.heads = 12;
  config.context = 1024;
  Transformer<Scalar, cuda::Gpt2Softmax1, Cuda> model(context, config);
  typename Transformer<Scalar, cuda::Gpt2Softmax1, Cuda>::Cache cache;
  auto gradients = model.gradients();
  cuda::Optimizer<cuda::AdamWRule> optimizer({.learning_rate = 3e-4, .weight_decay = 0.01});
  const Index batch = 8, time = 1024, tokens = batch * time;
  std::vector<Token> input, target;
  for (Index i = 0; i < tokens; ++i) {
    input.push_back(static_cast<Token>(Random{1, 1}.below(static_cast<std::uint64_t>(i), config.vocabulary)));
    target.push_back(static_cast<Token>(Random{1, 2}.below(static_cast<std::uint64_t>(i), config.vocabulary)));
  }
  double first = 0, loss = 0;
  const auto step = [&] {
    model.forward(context, input, time, cache);
    loss = model.backward(context, target, cache, gradients).mean();
    const double norm = cuda::global_norm(context, gradients);
    optimizer.step(context, model.parameters(), gradients, {.gradient_scale = norm > 1 ? 1 / norm : 1.0});
    if (first == 0) first = loss;
  };
  const double ms = milliseconds(context, step);
  // 6 operations a weight and token; 6·layers·width·time for the two products of causal attention, forward and backward.
  const double weights = static_cast<double>(model.parameters().layout.trainable());
  const double flops = static_cast<double>(tokens) * (6 * weights + 6.0 * 12 * 768 * 1024);
  std::printf("GPT-2 124M step, %-5s %9.1f ms  %9.0f tokens/s  %5.1f %% of products  loss %.3f -> %.3f\n", type, ms,
              1e3 * static_cast<double>(tokens) / ms, 100 * flops / ms / rate, first, loss);
  if (!(loss < first)) ++failures;
}

}  // namespace

int main() {
  if (const std::string reason = cuda::unavailable(); !reason.empty()) {
    std::printf("skipped: %s\n", reason.c_str());
    return 77;
  }
  cuda::Context context;
  {
    const Index n = Index{1} << 28;
    cuda::Buffer<float> a(n), b(n);
    bandwidth =
        8.0 * static_cast<double>(n) / milliseconds(context, [&] { cuda::copy(context, a.data(), n, b.data()); });
    std::printf("copy: %.0f GB/s\n", bandwidth / 1e6);
  }
  float_rate = gemm_rate<float>(context);
  bf16_rate = gemm_rate<bf16>(context);
  std::printf("%-26s %-5s %10s %9s\n", "op", "type", "error", "ms");

  const Index width = 768;
  rows_of("activation_forward Gelu", [&]<class T>(Index rows, bool timed) {
    Array<T> x(context, rows, 4 * width, 1), y(context, rows, 4 * width);
    const auto f = [&] { cuda::activation_forward(context, cuda::Gelu{}, x.constant(), y.view()); };
    f();
    if (!timed) return Result{y.values()};
    return Result{{}, milliseconds(context, f), 2.0 * sizeof(T) * static_cast<double>(x.view().size())};
  });
  rows_of("activation_backward Gelu", [&]<class T>(Index rows, bool timed) {
    Array<T> x(context, rows, 4 * width, 1), dy(context, rows, 4 * width, 2), dx(context, rows, 4 * width);
    const auto f = [&] {
      cuda::activation_backward<cuda::Gelu, T>(context, {}, x.constant(), dy.constant(), dx.view());
    };
    f();
    if (!timed) return Result{dx.values()};
    return Result{{}, milliseconds(context, f), 3.0 * sizeof(T) * static_cast<double>(x.view().size())};
  });
  rows_of("norm_forward LayerNorm", [&]<class T>(Index rows, bool timed) {
    Array<T> x(context, rows, width, 1), y(context, rows, width), theta(context, 1, 2 * width, 2);
    Array<cuda::Compute<T>> saved(context, rows, 2);
    const auto f = [&] {
      cuda::norm_forward<cuda::LayerNorm, T>(context, {}, theta.data(), x.constant(), y.view(), saved.view());
    };
    f();
    if (!timed) return Result{y.values()};
    return Result{{}, milliseconds(context, f), 2.0 * sizeof(T) * static_cast<double>(x.view().size())};
  });
  rows_of("norm_backward LayerNorm", [&]<class T>(Index rows, bool timed) {
    Array<T> x(context, rows, width, 1), y(context, rows, width), theta(context, 1, 2 * width, 2),
        dy(context, rows, width, 3), dx(context, rows, width);
    Array<cuda::Compute<T>> saved(context, rows, 2), dtheta(context, 1, 2 * width);
    cuda::norm_forward<cuda::LayerNorm, T>(context, {}, theta.data(), x.constant(), y.view(), saved.view());
    const auto f = [&] {
      cuda::norm_backward<cuda::LayerNorm, T>(context, {}, theta.data(), x.constant(), saved.constant(), dy.constant(),
                                              cuda::View<const T>{}, dx.view(), dtheta.data(), Accumulate::no);
    };
    f();
    if (!timed) return Result{dx.values()};
    return Result{{}, milliseconds(context, f), 3.0 * sizeof(T) * static_cast<double>(x.view().size())};
  });
  rows_of("cross_entropy", [&]<class T>(Index rows, bool timed) {
    Array<T> x(context, rows, 50257, 1), dx(context, rows, 50257);
    cuda::Buffer<Token> targets(rows);
    cuda::Buffer<double> loss(1);
    const auto f = [&] {
      cuda::cross_entropy<T>(context, x.constant(), targets.data(), rows, dx.view(), 1.0, loss.data());
    };
    f();
    if (!timed) return Result{dx.values()};
    return Result{{}, milliseconds(context, f), 2.0 * sizeof(T) * static_cast<double>(x.view().size())};
  });
  for (const bool backward : {false, true})
    for (const Index d : {Index{64}, Index{128}}) {
      const std::string name =
          std::string("attention_") + (backward ? "backward" : "forward") + " " + std::to_string(d);
      rows_of(name.c_str(), [&]<class T>(Index rows, bool timed) {
        const Index time = timed ? 1024 : 64, heads = 768 / d;
        const AttentionShape s{rows / time, time, heads, heads, d, time};
        Array<T> q(context, rows, width, 1), k(context, rows, width, 2), v(context, rows, width, 3),
            o(context, rows, width), d_o(context, rows, width, 4), dq(context, rows, width), dk(context, rows, width),
            dv(context, rows, width);
        Array<cuda::Compute<T>> lse(context, rows, heads);
        const auto forward = [&] {
          cuda::attention_forward<cuda::Softmax1, Causal, T>(context, {}, {}, s, nullptr, q.constant(), k.constant(),
                                                             v.constant(), o.view(), lse.view());
        };
        const auto back = [&] {
          cuda::attention_backward<cuda::Softmax1, Causal, T>(context, {}, {}, s, nullptr, q.constant(), k.constant(),
                                                              v.constant(), o.constant(), lse.view(), d_o.constant(),
                                                              dq.view(), dk.view(), dv.view(), nullptr, Accumulate::no);
        };
        forward();
        if (backward) back();
        if (!timed) return Result{backward ? dk.values() : o.values()};
        // Causal: half of 2 products forward, of 5 backward.
        const double flops = (backward ? 5.0 : 2.0) * static_cast<double>(rows * time * width);
        return Result{{}, backward ? milliseconds(context, back) : milliseconds(context, forward), 0, flops};
      });
    }
  {
    ParameterLayout layout;
    layout.add("matrix", 8192, 8192, ParameterKind::matrix);
    cuda::Parameters<float> theta(layout), gradient(layout);
    cuda::Optimizer<cuda::AdamWRule> adam;
    const double n = static_cast<double>(layout.size());
    row("optimizer AdamW", "float", {{}, milliseconds(context, [&] { adam.step(context, theta, gradient); }), 28 * n},
        {}, 0, 1);
    row("global_norm", "float", {{}, milliseconds(context, [&] { cuda::global_norm(context, gradient); }), 4 * n}, {},
        0, 1);
    cuda::QuantizedMatrix<float, std::int8_t> q;
    row("quantize absmax 8", "float",
        {{},
         milliseconds(context,
                      [&] {
                        cuda::quantize(context,
                                       theta[Index{0}].size() > 0 ? cuda::View<const float>(theta[Index{0}])
                                                                  : cuda::View<const float>{},
                                       cuda::Absmax{8}, {1, 0}, q);
                      }),
         9 * n},
        {}, 0, 1);
    cuda::Buffer<cuda::TokenStatistics> s(8192);
    row("token_statistics", "float",
        {{},
         milliseconds(
             context,
             [&] { cuda::token_statistics(context, cuda::View<const float>(theta[Index{0}]), 6e-8, s.data()); }),
         4 * n},
        {}, 0, 1);
  }
  training_step<float>(context, "float", float_rate);
  training_step<bf16>(context, "bf16", bf16_rate);
  std::printf("table: %d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
