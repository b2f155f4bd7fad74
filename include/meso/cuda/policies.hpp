#pragma once
// The device's versions of the CPU's policies: a model, an optimizer or a quantizer of the CPU's types runs on the GPU
// by naming the device.
#include <meso/attention/position.hpp>
#include <meso/cuda/activation.cuh>
#include <meso/cuda/norm.cuh>
#include <meso/cuda/normalizer.cuh>
#include <meso/cuda/optimizer.cuh>
#include <meso/cuda/policy.hpp>
#include <meso/cuda/position.cuh>
#include <meso/layer/gelu.hpp>
#include <meso/layer/relu.hpp>
#include <meso/layer/swiglu.hpp>
#include <meso/norm/layer_norm.hpp>
#include <meso/norm/rms_norm.hpp>
#include <meso/normalizer/learned_sink.hpp>
#include <meso/normalizer/softmax.hpp>
#include <meso/normalizer/softmax1.hpp>
#include <meso/normalizer/softmax_n.hpp>
#include <meso/optim/ortho_adam.hpp>
#include <meso/optim/rotation/hadamard.hpp>

namespace meso::cuda {

#define MESO_DEVICE_POLICY(Name, ...)                                                   \
  template <>                                                                           \
  struct DevicePolicy<meso::Name> {                                                     \
    using type = cuda::Name;                                                            \
    static type convert([[maybe_unused]] const meso::Name& p) { return {__VA_ARGS__}; } \
  };
MESO_DEVICE_POLICY(Softmax, )
MESO_DEVICE_POLICY(Softmax1, )
MESO_DEVICE_POLICY(SoftmaxN, p.n)
MESO_DEVICE_POLICY(LearnedSink, )
MESO_DEVICE_POLICY(LayerNorm, p.epsilon)
MESO_DEVICE_POLICY(RmsNorm, p.epsilon)
MESO_DEVICE_POLICY(RmsNormSingle, p.epsilon)
MESO_DEVICE_POLICY(Gelu, )
MESO_DEVICE_POLICY(GeluTanh, )
MESO_DEVICE_POLICY(Relu, )
MESO_DEVICE_POLICY(SwiGlu, )
MESO_DEVICE_POLICY(NoPosition, )
MESO_DEVICE_POLICY(LearnedPosition, )
MESO_DEVICE_POLICY(Rotary, p.base)
#undef MESO_DEVICE_POLICY

/// Makes the device's plans of meso::KroneckerRotation: the same Haar matrices, made on the host, then uploaded.
struct Kronecker {
  KroneckerRotation rotation;

  template <class C>
  using Plan = KroneckerPlan<C>;
  template <class C>
  Plan<C> prepare(Context& context, const std::string& name, Index rows, Index cols) const {
    const auto plan = rotation.prepare<C>(name, rows, cols);
    Plan<C> device;
    const auto send = [&](const auto& from, auto& to) {
      for (const auto& b : from) {
        to.push_back({b.first, b.size, Buffer<C>(b.q.size())});
        upload(context, b.q.data(), b.q.size(), to.back().q.data());
      }
    };
    send(plan.rows, device.rows);
    send(plan.cols, device.cols);
    return device;
  }
};

/// Makes the device's plans of meso::HadamardRotation: the same signs.
struct Hadamard {
  HadamardRotation rotation;

  template <class C>
  using Plan = HadamardPlan<C>;
  template <class C>
  Plan<C> prepare(Context& context, const std::string& name, Index rows, Index cols) const {
    const auto axis = [&](Index size, const char* suffix) {
      const meso::detail::HadamardAxis<C> from(size, Random{rotation.seed, stream_of(name + suffix)});
      HadamardAxis<C> to;
      to.size = from.size;
      to.power = from.power;
      to.signs.resize(from.signs.size());
      upload(context, from.signs.data(), from.signs.size(), to.signs.data());
      return to;
    };
    return {axis(rows, " rows"), axis(cols, " cols")};
  }
};

namespace detail {
inline NoRotation device_plans(const meso::NoRotation&) { return {}; }
inline Kronecker device_plans(const KroneckerRotation& r) { return {r}; }
inline Hadamard device_plans(const HadamardRotation& r) { return {r}; }
}  // namespace detail

/// The optimizer with the hyper-parameters of one of the CPU's: cuda::on_device(AdamW({.learning_rate = 1e-3})). Its state
/// starts anew.
template <class Rule, class Rotation>
auto on_device(const meso::Optimizer<Rule, Rotation>& optimizer) {
  auto plans = detail::device_plans(optimizer.rotation);
  Optimizer<Rule, decltype(plans)> device(optimizer.rule, plans);
  device.decay_vectors = optimizer.decay_vectors;
  return device;
}

}  // namespace meso::cuda
