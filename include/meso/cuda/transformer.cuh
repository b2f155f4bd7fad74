#pragma once
// meso::Transformer on an NVIDIA GPU: the model of meso/model/decoder.hpp and all the ops that it calls. No Eigen.
#include <meso/cuda/attention.cuh>
#include <meso/cuda/cross_entropy.cuh>
#include <meso/cuda/embedding.cuh>
#include <meso/cuda/finite.cuh>
#include <meso/cuda/fused_linear.cuh>
#include <meso/cuda/norm.cuh>
#include <meso/cuda/parameter.hpp>
#include <meso/cuda/policy.hpp>
#include <meso/cuda/position.cuh>
#include <meso/model/decoder.hpp>

namespace meso {

/// An NVIDIA GPU. Scalar of a model is float, double or cuda::bf16; A's policies may be the CPU's or the device's own
/// (cuda::LayerNorm, …); the head size is 32, 64, 96 or 128 and the normalizer one of the null-logit family.
template <>
struct ModelDevice<Cuda> {
  template <class T>
  using Buffer = cuda::Buffer<T>;
  template <class S>
  using Parameters = cuda::Parameters<S>;
  using Tokens = cuda::TokenBatch;
  template <class P>
  using Policy = typename cuda::DevicePolicy<P>::type;

  template <class P>
  static Policy<P> policy(const P& p) {
    return cuda::device_policy(p);
  }
  static Index attention_saved(const AttentionShape& shape) { return shape.heads; }
  static void check_shape(const AttentionShape& shape) {
    cuda::detail::with_head_size("Transformer", shape.head_size, [](auto) {});
  }
  template <class S>
  static Parameters<S> send(cuda::Context& context, const meso::Parameters<S>& host) {
    return cuda::upload(context, host);
  }
  template <class T>
  static Buffer<T> send(cuda::Context& context, const meso::Buffer<T>& host) {
    Buffer<T> device(host.size());
    cuda::upload(context, host.data(), host.size(), device.data());
    return device;
  }
  template <class A, class S>
  static constexpr bool checked_architecture() {
    return true;  // DevicePolicy asserts that there is a version of every policy
  }
};

namespace cuda {

/// GPT-2 of the device's own policies, for programs without Eigen; with it, meso::Gpt2 does as well.
struct Gpt2 {
  using Normalizer = cuda::Softmax;
  using Norm = cuda::LayerNorm;
  using Position = cuda::LearnedPosition;
  using Mlp = cuda::Gelu;
  static constexpr bool bias = true;
};
/// The same with softmax-1.
struct Gpt2Softmax1 : Gpt2 {
  using Normalizer = cuda::Softmax1;
};

}  // namespace cuda
}  // namespace meso
