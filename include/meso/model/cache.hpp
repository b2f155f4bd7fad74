#pragma once
#include <type_traits>
#include <vector>

#include <meso/core/accumulate.hpp>
#include <meso/core/buffer.hpp>
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

/// Columns of what a cache holds.
struct CacheWidths {
  Index stream = 0, qkv = 0, up = 0, hidden = 0, vocabulary = 0;
  Index norm = 0, attention = 0;  ///< scalars a token that norms and attention keep
};

/// Points the views of `rows` tokens into the cache's buffers, which grow if they must.
template <class S, class Device>
void place_views(TransformerCache<S, Device>& cache, Index layers, Index rows, const CacheWidths& widths) {
  cache.blocks.resize(static_cast<std::size_t>(layers));
  cache.residual.resize(static_cast<std::size_t>(layers) + 1);
  for (const bool place : {false, true}) {
    Index end = 0, saved_end = 0;
    const auto put_in = [&](auto* memory, Index& at, auto& view, Index cols) {
      if (place) view = {memory + at, rows, cols, cols};
      at += padded<std::remove_pointer_t<decltype(memory)>>(rows * cols);
    };
    const auto put = [&](View<S, Device>& view, Index cols) { put_in(cache.memory.data(), end, view, cols); };
    const auto keep = [&](View<Accumulator<S>, Device>& view, Index cols) {
      put_in(cache.saved_memory.data(), saved_end, view, cols);
    };
    for (View<S, Device>& x : cache.residual) put(x, widths.stream);
    for (BlockCache<S, Device>& b : cache.blocks) {
      for (View<S, Device>* x : {&b.norm1, &b.heads, &b.middle, &b.norm2}) put(*x, widths.stream);
      put(b.qkv, widths.qkv);
      put(b.up, widths.up);
      put(b.hidden, widths.hidden);
      keep(b.saved1, widths.norm);
      keep(b.saved2, widths.norm);
      keep(b.saved_attention, widths.attention);
    }
    put(cache.final_norm, widths.stream);
    keep(cache.saved_final, widths.norm);
    put(cache.logits, widths.vocabulary);
    if (!place) {
      cache.memory.resize(end);
      cache.saved_memory.resize(saved_end);
    }
  }
}

}  // namespace meso
