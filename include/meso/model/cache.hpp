#pragma once
#include <vector>

#include <meso/core/buffer.hpp>
#include <meso/core/check.hpp>
#include <meso/layer/embedding.hpp>

namespace meso {

/// What one block keeps of a forward pass.
template <class S>
struct BlockCache {
  View<S> norm1, saved1;  ///< normalized input (tokens, width) and the norm's saved scalars
  View<S> qkv;            ///< queries | keys | values, positions already applied (tokens, width + 2·key width)
  View<S> heads;          ///< attention's output before its projection (tokens, width)
  View<S> middle;         ///< residual stream between attention and MLP (tokens, width)
  View<S> norm2, saved2;
  View<S> up;      ///< MLP pre-activation (tokens, hidden or 2·hidden)
  View<S> hidden;  ///< MLP activation (tokens, hidden)
};

/// What a Transformer keeps of a forward pass. It belongs to the caller; backward reads it and never changes it.
/// All views lie in one buffer that is planned once for the largest batch seen.
template <class S>
struct TransformerCache {
  Index batch = 0;
  Index time = 0;
  std::vector<Token> tokens;
  std::vector<View<S>> residual;  ///< residual[0]: the embedding; residual[l]: the stream after block l, l = 1 … L
  std::vector<BlockCache<S>> blocks;
  View<S> final_norm, saved_final;
  View<S> logits;  ///< (tokens, vocabulary)
  Buffer<S> memory;
};

}  // namespace meso
