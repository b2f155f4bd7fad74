#pragma once
#include <vector>

#include <meso/core/accumulate.hpp>
#include <meso/model/device.hpp>

namespace meso {

/// What one block keeps of a forward pass.
template <class S, class Device = Cpu>
struct BlockCache {
  View<S, Device> norm1;   ///< normalized input (tokens, width)
  View<S, Device> qkv;     ///< queries | keys | values, positions already applied (tokens, width + 2·key width)
  View<S, Device> heads;   ///< attention's output before its projection (tokens, width)
  View<S, Device> middle;  ///< residual stream between attention and MLP (tokens, width)
  View<S, Device> norm2;   ///< normalized input of the MLP (tokens, width)
  View<S, Device> up;      ///< MLP pre-activation (tokens, hidden or 2·hidden)
  View<S, Device> hidden;  ///< MLP activation (tokens, hidden)
  View<Accumulator<S>, Device> saved1, saved2;   ///< scalars that the norms keep of each token
  View<Accumulator<S>, Device> saved_attention;  ///< and attention: nothing on the CPU, on a GPU lse (tokens, heads)
};

/// What a Transformer keeps of a forward pass. It belongs to the caller; backward reads it and never changes it.
/// All views lie in two buffers that are planned once for the largest batch seen.
template <class S, class Device = Cpu>
struct TransformerCache {
  Index batch = 0;
  Index time = 0;
  typename ModelDevice<Device>::Tokens tokens;
  std::vector<View<S, Device>> residual;  ///< residual[0]: the embedding; residual[l]: the stream after block l, 1 … L
  std::vector<BlockCache<S, Device>> blocks;
  View<S, Device> final_norm;
  View<Accumulator<S>, Device> saved_final;
  View<S, Device> logits;  ///< (tokens, vocabulary)
  typename ModelDevice<Device>::template Buffer<S> memory;
  typename ModelDevice<Device>::template Buffer<Accumulator<S>> saved_memory;
  typename ModelDevice<Device>::template Parameters<S> rounded;  ///< the weights, if S is narrower than the masters
};

}  // namespace meso
