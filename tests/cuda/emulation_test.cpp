// The emulation finds what it is there to find: planted errors, in every order of threads.
#include <meso/cuda/math.cuh>

#include "tests/cuda/device_test.hpp"

using namespace meso;
using namespace meso::cuda;
using namespace meso::test;

namespace {

__global__ void reverse(const float* x, float* y, bool with_barrier) {
  MESO_DYNAMIC_SHARED(memory);
  float* const shared = reinterpret_cast<float*>(memory);
  const unsigned i = threadIdx.x, n = blockDim.x;
  shared[i] = x[i];
  if (with_barrier) __syncthreads();
  y[i] = shared[n - 1 - i];
}
__global__ void barrier_in_a_branch(float* y) {
  if (threadIdx.x < 16) __syncthreads();
  y[threadIdx.x] = 1;
}
__global__ void two_barriers(float* y) {
  if (threadIdx.x < 16) {
    __syncthreads();
    y[threadIdx.x] = 1;
  } else {
    __syncthreads();
    y[threadIdx.x] = 2;
  }
}
__global__ void lane_outside_its_mask(float* y) {
  if (threadIdx.x < 16) y[threadIdx.x] = __shfl_sync(0xFFFFu, 1.0f, 20);
}
__global__ void uninitialized(float* y) {
  MESO_DYNAMIC_SHARED(memory);
  y[threadIdx.x] = reinterpret_cast<float*>(memory)[threadIdx.x];
}
__global__ void reduce(const double* x, double* y) {
  MESO_DYNAMIC_SHARED(memory);
  double* const scratch = reinterpret_cast<double*>(memory);
  const double sum = cuda::detail::block_reduce(x[threadIdx.x], scratch, cuda::detail::Sum{});
  const double top = cuda::detail::block_reduce(x[threadIdx.x], scratch, cuda::detail::Maximum{});
  y[threadIdx.x] = sum + 1000 * top;
  const unsigned votes = __ballot_sync(0xFFFFFFFFu, threadIdx.x % 3 == 0);
  if (threadIdx.x == 0 && votes != 0x49249249u) y[0] = -1;
}

__global__ void votes_of_a_block(int* y, unsigned chosen) {
  int found = 0;
  for (unsigned round = 0; round < 3; ++round)  // no vote reaches the next round
    found += __syncthreads_or(threadIdx.x == chosen && round == 1) ? 1 << round : 0;
  y[threadIdx.x] = found;
}

}  // namespace

MESO_TEST_SUITE(emulation)

MESO_TEST(a_missing_barrier_shows_in_some_order) {
  int wrong = 0;
  on_device([&](Context& context) {
    DeviceMatrix<float> x(context, 1, 96, 0, 1), y(context, 1, 96);
    for (const bool with_barrier : {true, false}) {
      launch(context, "reverse", {{1}, {96}, 96 * sizeof(float)}, reverse, x.data(), y.data(), with_barrier);
      bool equal = true;
      for (Index i = 0; i < 96; ++i) equal = equal && y.values()(0, i) == x.values()(0, 95 - i);
      if (with_barrier) MESO_CHECK(equal);
      wrong += !equal;
    }
  });
  MESO_CHECK(wrong == 3);
}

MESO_TEST(broken_rules_end_the_launch) {
  on_device([](Context& context) {
    DeviceMatrix<float> y(context, 1, 32);
    MESO_CHECK_THROWS(launch(context, "test", {{1}, {32}}, barrier_in_a_branch, y.data()), EmulationFault);
    MESO_CHECK_THROWS(launch(context, "test", {{1}, {32}}, two_barriers, y.data()), EmulationFault);
    MESO_CHECK_THROWS(launch(context, "test", {{1}, {32}}, lane_outside_its_mask, y.data()), EmulationFault);
  });
}

MESO_TEST(shared_memory_starts_as_nan) {
  on_device([](Context& context) {
    DeviceMatrix<float> y(context, 1, 32);
    launch(context, "test", {{1}, {32}, 32 * sizeof(float)}, uninitialized, y.data());
    for (Index i = 0; i < 32; ++i) MESO_CHECK(std::isnan(y.values()(0, i)));
  });
}

MESO_TEST(reductions_and_votes) {
  on_device([](Context& context) {
    DeviceMatrix<double> x(context, 1, 96, 0, 1), y(context, 1, 96);
    launch(context, "test", {{1}, {96}, 32 * sizeof(double)}, reduce, x.data(), y.data());
    double sum = 0, top = -1e9;
    for (const double v : x.values().data) sum += v, top = std::max<double>(top, v);
    for (const double v : y.values().data) MESO_CHECK_WITHIN(v, sum + 1000 * top, 1e-11);
  });
}

MESO_TEST(a_barrier_that_votes) {
  on_device([](Context& context) {
    for (const unsigned chosen : {0u, 40u, 95u, 96u}) {
      cuda::Buffer<int> y(96);
      std::vector<int> found(96);
      launch(context, "test", {{1}, {96}}, votes_of_a_block, y.data(), chosen);
      download(context, y.data(), 96, found.data());
      for (const int f : found) MESO_CHECK(f == (chosen < 96 ? 2 : 0));
    }
  });
}

MESO_TEST(bf16_rounds_to_nearest_even) {
  const auto round = [](float x) { return static_cast<float>(bf16(x)); };
  MESO_CHECK(round(1.0f) == 1.0f);
  MESO_CHECK(round(1.0f + 0x1p-8f) == 1.0f);
  MESO_CHECK(round(1.0f + 0x1p-8f + 0x1p-20f) == 1.0f + 0x1p-7f);
  MESO_CHECK(round(1.0f + 3 * 0x1p-8f) == 1.0f + 0x1p-6f);
  MESO_CHECK(std::isnan(round(std::numeric_limits<float>::quiet_NaN())));
  MESO_CHECK(round(-std::numeric_limits<float>::infinity()) == -std::numeric_limits<float>::infinity());
  MESO_CHECK(std::isinf(round(std::numeric_limits<float>::max())));
}

MESO_TEST_SUITE_END()
