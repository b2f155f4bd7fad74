#pragma once
// What the tests of kernels share. They run in emulation (g++ or clang++ with MESO_CUDA_EMULATION, in every order of the
// threads) and on a GPU (nvcc), and need neither Eigen nor Boost there.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <meso/core/random.hpp>
#include <meso/cuda/context.hpp>
#include <string>
#include <vector>

#include "tests/support/check.hpp"
#include "tests/support/oracle.hpp"

namespace meso::test {

/// Unit roundoff of a type of the device.
template <class T>
constexpr double roundoff() {
  return static_cast<double>(std::numeric_limits<T>::epsilon()) / 2;
}
template <>
constexpr double roundoff<cuda::bf16>() {
  return 1.0 / 256;
}
template <class T>
double as_double(T x) {
  return static_cast<double>(x);
}
inline double as_double(cuda::bf16 x) { return static_cast<double>(static_cast<float>(x)); }
template <class T>
T from_double(double x) {
  if constexpr (std::is_same_v<T, cuda::bf16>)
    return T(static_cast<float>(x));
  else
    return static_cast<T>(x);
}

#ifndef MESO_CUDA_EMULATION
/// One context for all tests. It is never destroyed: at exit the driver may be gone before it.
inline cuda::Context& gpu() {
  static cuda::Context* const context = new cuda::Context;
  return *context;
}
#endif

/// f(context) on the GPU once, in emulation in all three orders of threads and blocks.
template <class F>
void on_device(F&& f) {
#ifdef MESO_CUDA_EMULATION
  for (const cuda::ThreadOrder order :
       {cuda::ThreadOrder::forward, cuda::ThreadOrder::reverse, cuda::ThreadOrder::random}) {
    cuda::Context context;
    context.order = order;
    f(context);
  }
#else
  f(gpu());
#endif
}

/// A (rows, cols) matrix in device memory, a window of a wider one whose rest is a guard that no kernel may touch.
template <class T>
class DeviceMatrix {
 public:
  static constexpr double guard = -768;  // exact in every type

  DeviceMatrix(cuda::Context& context, Index rows, Index cols, Index margin = 0)
      : context_(&context), rows_(rows), cols_(cols), margin_(margin), storage_((rows + 2) * stride()) {
    set(oracle::Matrix(rows, cols));
  }
  /// N(mean, scale²) numbers, a pure function of the seed.
  DeviceMatrix(cuda::Context& context, Index rows, Index cols, Index margin, std::uint64_t seed, double scale = 1,
               double mean = 0)
      : DeviceMatrix(context, rows, cols, margin) {
    oracle::Matrix m(rows, cols);
    for (Index i = 0; i < rows * cols; ++i)
      m.data[oracle::at(i)] = mean + scale * Random{seed, 5}.normal(static_cast<std::uint64_t>(i));
    set(m);
  }

  Index stride() const { return cols_ + 2 * margin_; }
  cuda::View<T> view() { return {storage_.data() + stride() + margin_, rows_, cols_, stride()}; }
  cuda::View<const T> constant() { return view(); }
  T* data() { return view().data; }

  /// Rounds to T; values() then gives what the device sees.
  void set(const oracle::Matrix& m) {
    std::vector<T> all(static_cast<std::size_t>(storage_.size()), from_double<T>(guard));
    for (Index i = 0; i < rows_; ++i)
      for (Index j = 0; j < cols_; ++j) all[place(i, j)] = from_double<T>(m(i, j));
    cuda::upload(*context_, all.data(), storage_.size(), storage_.data());
  }
  oracle::Matrix values() {
    const std::vector<T> all = everything();
    oracle::Matrix m(rows_, cols_);
    for (Index i = 0; i < rows_; ++i)
      for (Index j = 0; j < cols_; ++j) m(i, j) = as_double(all[place(i, j)]);
    return m;
  }
  bool intact() {
    std::vector<T> all = everything();
    for (Index i = 0; i < rows_; ++i)
      for (Index j = 0; j < cols_; ++j) all[place(i, j)] = from_double<T>(guard);
    return std::all_of(all.begin(), all.end(), [](T x) { return as_double(x) == guard; });
  }

 private:
  std::size_t place(Index i, Index j) const { return static_cast<std::size_t>((i + 1) * stride() + margin_ + j); }
  std::vector<T> everything() {
    std::vector<T> all(static_cast<std::size_t>(storage_.size()));
    cuda::download(*context_, storage_.data(), storage_.size(), all.data());
    return all;
  }

  cuda::Context* context_;
  Index rows_, cols_, margin_;
  cuda::Buffer<T> storage_;
};

/// Every element of `actual` within tolerance(i, j) of `expected`; the first failure is named.
template <class Tolerance>
void check_matrix(const std::string& name, const oracle::Matrix& actual, const oracle::Matrix& expected,
                  Tolerance&& tolerance) {
  MESO_CHECK_MESSAGE(actual.rows == expected.rows && actual.cols == expected.cols, name + ": another shape");
  std::string bad;
  for (Index i = 0; i < actual.rows && bad.empty(); ++i)
    for (Index j = 0; j < actual.cols && bad.empty(); ++j) {
      const std::string text = outside(actual(i, j), expected(i, j), tolerance(i, j));
      if (!text.empty()) bad = name + "(" + std::to_string(i) + ", " + std::to_string(j) + "): " + text;
    }
  MESO_CHECK_MESSAGE(bad.empty(), bad);
}

}  // namespace meso::test
