#pragma once
#include <meso/core/check.hpp>

namespace meso {

/// Shape of one attention call. Activations are (batch·time, heads·head_size) row-major; query head h reads key-value
/// head h / (heads / key_value_heads), so equal numbers are multi-head and one key-value head is multi-query attention.
struct AttentionShape {
  Index batch = 1;
  Index time = 0;  ///< tokens of a sequence: queries and keys
  Index heads = 1;
  Index key_value_heads = 1;
  Index head_size = 0;
  Index context = 0;  ///< the model's configured context, handed to normalizers

  Index tokens() const { return batch * time; }
  Index group() const { return heads / key_value_heads; }
};

/// Throws: std::invalid_argument if a size is negative, the head size or a number of heads is 0, or the heads do not
/// divide into groups.
inline void check_attention_shape(const AttentionShape& s) {
  check(s.batch >= 0 && s.time >= 0 && s.head_size > 0, "attention: batch ", s.batch, ", time ", s.time, ", head size ",
        s.head_size, "; expected non-negative sizes and a positive head size");
  check(s.context >= 0, "attention: the context is ", s.context, ", expected 0 or more");
  check(s.heads > 0 && s.key_value_heads > 0 && s.heads % s.key_value_heads == 0, "attention: ", s.heads,
        " heads do not divide into ", s.key_value_heads, " key-value heads");
}

/// Throws: std::invalid_argument if the parameters of a normalizer that has some are null, or their gradients.
template <class Normalizer>
void check_normalizer_parameters(const char* op, const char* name, const void* values) {
  check(Normalizer::parameters_per_head == 0 || values, op, ": ", name, " is null, but the normalizer has parameters");
}

}  // namespace meso
