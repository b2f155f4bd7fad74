#pragma once
// What the rows of the table share: sizes, arrays, clocks and the line of one op. In emulation the sizes are tiny, every
// op runs once, and times mean nothing.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <meso/core/random.hpp>
#include <meso/cuda/math.cuh>
#include <string>
#include <vector>

#include "tests/support/oracle.hpp"

namespace meso::table {

using cuda::bf16;
using test::oracle::at;
using test::oracle::Matrix;

#ifdef MESO_CUDA_EMULATION
inline constexpr bool emulated = true;
#else
inline constexpr bool emulated = false;
#endif

/// Tokens of the small call, whose results are held against the host's, and of the timed call; the sizes of both.
struct Sizes {
  Index checked = emulated ? 6 : 64, timed = emulated ? 6 : 8192;
  Index width = emulated ? 128 : 768, vocabulary = emulated ? 150 : 50257, time = emulated ? 64 : 2048;
  Index parameter = emulated ? 40 : 8192;  ///< rows and columns of an optimizer's matrix
};

/// An op and what it works on: small or large.
struct Op {
  std::function<void()> run;
  std::function<double()> error;  ///< after run: largest difference from the host's numbers over the largest of these
  double bytes = 0;               ///< that must move, each array once
  double flops = 0;
};

/// A matrix in device memory; copies share it.
template <class T>
class Array {
 public:
  /// Zeros; with a seed, uniform numbers of variance 1, rounded to bf16, so that every type sees the same ones.
  Array(cuda::Context& context, Index rows, Index cols, std::uint64_t seed = 0, double mean = 0)
      : context_(&context), buffer_(std::make_shared<cuda::Buffer<T>>(rows * cols)), rows_(rows), cols_(cols) {
    if (seed == 0) return;
    constexpr Index period = 1048573;  // then again: the device copies faster than the host draws
    const Index n = rows * cols;
    std::vector<T> values(at((std::min<Index>)(n, period)));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bf16 x(static_cast<float>(mean + (Random{seed, 1}.uniform(i) - 0.5) * 3.46));
      values[i] = static_cast<T>(static_cast<float>(x));
    }
    cuda::upload(context, values.data(), static_cast<Index>(values.size()), data());
    for (Index done = period; done < n; done += period)
      cuda::copy(context, data(), (std::min<Index>)(period, n - done), data() + done);
  }

  cuda::View<T> view() const { return buffer_->view(rows_, cols_); }
  cuda::View<const T> constant() const { return view(); }
  T* data() const { return buffer_->data(); }
  double bytes() const { return static_cast<double>(rows_ * cols_) * static_cast<double>(sizeof(T)); }
  Matrix values() const {
    std::vector<T> all(at(rows_ * cols_));
    cuda::download(*context_, data(), rows_ * cols_, all.data());
    Matrix m(rows_, cols_);
    for (std::size_t i = 0; i < all.size(); ++i) m.data[i] = static_cast<double>(static_cast<cuda::Compute<T>>(all[i]));
    return m;
  }

 private:
  cuda::Context* context_;
  std::shared_ptr<cuda::Buffer<T>> buffer_;
  Index rows_, cols_;
};

/// Largest |actual − expected| over the largest |expected|; infinite where a NaN or another size is.
inline double largest_error(const std::vector<double>& actual, const std::vector<double>& expected) {
  double error = actual.size() == expected.size() ? 0 : std::numeric_limits<double>::infinity(), top = 0;
  for (std::size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    const double difference = std::abs(actual[i] - expected[i]);
    error = difference >= 0 ? std::max<double>(error, difference) : std::numeric_limits<double>::infinity();
    top = std::max<double>(top, std::abs(expected[i]));
  }
  return error == 0 ? 0 : error / top;
}
inline double largest_error(const Matrix& actual, const Matrix& expected) {
  return largest_error(actual.data, expected.data);
}

/// f(x(i, j)) for every element.
template <class F>
Matrix mapped(Matrix x, F&& f) {
  for (double& v : x.data) v = f(v);
  return x;
}

class Table {
 public:
  cuda::Context context;
  Sizes sizes;
  double bandwidth = 0;   ///< bytes a millisecond of a copy, measured
  double float_rate = 0;  ///< floating-point operations a millisecond of float products, measured
  double bf16_rate = 0;
  int failures = 0;

  /// Median milliseconds of one call.
  double milliseconds(const std::function<void()>& f) {
    using Clock = std::chrono::steady_clock;
    const auto run = [&](int calls) {
      context.synchronize();
      const auto start = Clock::now();
      for (int i = 0; i < calls; ++i) f();
      context.synchronize();
      return std::chrono::duration<double, std::milli>(Clock::now() - start).count() / calls;
    };
    if (emulated) return run(1);
    run(3);
    const int calls = (std::clamp)(static_cast<int>(6 / std::max<double>(1e-3, run(2))), 2, 200);
    std::vector<double> times;
    for (int i = 0; i < 5; ++i) times.push_back(run(calls));
    std::sort(times.begin(), times.end());
    return times[2];
  }

  /// One line: make(tokens) is the op at that many tokens. Returns the milliseconds of the timed call.
  double line(const std::string& name, const char* type, double bound, double rate,
              const std::function<Op(Index)>& make) {
    double error = 0;
    {
      const Op small = make(sizes.checked);
      small.run();
      error = small.error();
    }
    const Op op = make(sizes.timed);
    const double ms = milliseconds(op.run);
    const bool bad = !(error <= bound);
    failures += bad;
    ++lines;
    std::printf("%-32s %-5s %9.2e%s %9.4f", name.c_str(), type, error, bad ? " FAILED" : "", ms);
    if (op.bytes > 0) std::printf("  %5.1f %% of copy", 100 * op.bytes / ms / bandwidth);
    if (op.flops > 0) std::printf("  %5.1f %% of products", 100 * op.flops / ms / rate);
    std::printf("\n");
    std::fflush(stdout);
    return ms;
  }

  /// A line in float and one in bf16: make<T>(tokens).
  template <class Make>
  void lines_of(const std::string& name, Make&& make) {
    line(name, "float", 1e-4, float_rate, [&](Index tokens) { return make.template operator()<float>(tokens); });
    line(name, "bf16", 0.05, bf16_rate, [&](Index tokens) { return make.template operator()<bf16>(tokens); });
  }

  int lines = 0;
};

// The groups of rows.
void layer_rows(Table& table);
void attention_rows(Table& table);
void optimizer_rows(Table& table);
void statistics_rows(Table& table);
void training_steps(Table& table);

}  // namespace meso::table
