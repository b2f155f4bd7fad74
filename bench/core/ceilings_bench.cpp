// What this machine can do at best: multiply-adds of registers, and passes over memory.
#include <array>
#include <cstring>

#include "../support.hpp"

using namespace meso;

/// Chains acc = acc·x + y that do not wait for each other: enough of them to hide the latency of two units, few enough
/// for 16 registers. They start from different values, else they were one.
constexpr Index chains = 12;
static float multiply_add(float start, Index repetitions) {
  using namespace Eigen::internal;
  using Packet = packet_traits<float>::type;
  const Packet x = pset1<Packet>(0.999f), y = pset1<Packet>(0.001f);
  Packet acc[chains];
  for (Index c = 0; c < chains; ++c) acc[c] = pset1<Packet>(start + static_cast<float>(c));
  for (Index i = 0; i < repetitions; ++i)
    for (Packet& a : acc) a = pmadd(a, x, y);
  float sum = 0;
  for (const Packet& a : acc) sum += predux(a);
  return sum;
}

static void fma_peak(benchmark::State& state, CpuContext<>& context) {
  constexpr Index tiles = 64, repetitions = 10000, lanes = Eigen::internal::packet_traits<float>::size;
  constexpr double flops = 2.0 * chains * lanes * tiles * repetitions;
  std::array<float, tiles> sums{};
  bench::measure(state, {.flops = flops}, [&] {
    parallel_for(context, tiles, [&](Index t, Index) {
      float& sum = sums[static_cast<std::size_t>(t)];
      sum = multiply_add(sum, repetitions);
    });
    return sums[0] + sums[tiles - 1];
  });
}

/// Calls f(first, count) on runs of 64 KiB.
template <class F>
static void in_runs(CpuContext<>& context, Index size, F&& f) {
  constexpr Index run = 16384;
  parallel_for(context, (size + run - 1) / run,
               [&](Index t, Index) { f(t * run, std::min<Index>(run, size - t * run)); });
}

/// Reads four arrays and writes three of them, as Adam does.
static void adam_pass(benchmark::State& state, CpuContext<>& context) {
  const Index size = bench::large_size(4);
  Eigen::ArrayXf theta = Eigen::ArrayXf::Zero(size), g = theta + 1e-3f, m = theta, v = theta;
  bench::measure(state, {.bytes = 28.0 * static_cast<double>(size)}, [&] {
    in_runs(context, size, [&](Index first, Index count) {
      float *const t = theta.data() + first, *const mean = m.data() + first, *const square = v.data() + first;
      const float* const gradient = g.data() + first;
      for (Index i = 0; i < count; ++i) {
        mean[i] = 0.9f * mean[i] + 0.1f * gradient[i];
        square[i] = 0.999f * square[i] + 0.001f * gradient[i];
        t[i] -= 1e-3f * (mean[i] + square[i]);
      }
    });
    return theta[size - 1];
  });
}

/// y = 1.5·x: an element-wise op that has nothing to compute.
static void scaled_copy(benchmark::State& state, CpuContext<>& context, Index size) {
  const Eigen::ArrayXf x = Eigen::ArrayXf::Constant(size, 1e-3f);
  Eigen::ArrayXf y = x;
  bench::measure(state, {.bytes = 8.0 * static_cast<double>(size)}, [&] {
    in_runs(context, size, [&](Index first, Index count) { y.segment(first, count) = 1.5f * x.segment(first, count); });
    return y[size - 1];
  });
}

/// The C library's copy, one piece a thread: on many machines it does not read what it overwrites.
static void library_copy(benchmark::State& state, CpuContext<>& context) {
  const Index size = bench::large_size(2), piece = size / context.threads;
  const Eigen::ArrayXf x = Eigen::ArrayXf::Constant(size, 1e-3f);
  Eigen::ArrayXf y = x;
  bench::measure(state, {.bytes = 8.0 * static_cast<double>(piece * context.threads)}, [&] {
    parallel_for(context, context.threads, [&](Index t, Index) {
      std::memcpy(y.data() + t * piece, x.data() + t * piece, static_cast<std::size_t>(piece) * sizeof(float));
    });
    return y[0];
  });
}

int main(int argc, char** argv) {
  bench::add("core/fma_peak", fma_peak);
  bench::add("core/adam_pass", adam_pass);
  const auto copy_of = [](Index size) {
    return [size](benchmark::State& state, CpuContext<>& context) { scaled_copy(state, context, size); };
  };
  bench::add("core/memcpy/large", library_copy);
  bench::add("core/copy/large", copy_of(bench::large_size(2)));
  // At the sizes of the step's arrays, which a cache may hold.
  bench::add("core/copy/width", copy_of(bench::tokens * bench::width));
  bench::add("core/copy/mlp", copy_of(bench::tokens * bench::mlp_width));
  bench::add("core/copy/logits", copy_of(bench::tokens * bench::vocabulary));
  return bench::run(argc, argv);
}
