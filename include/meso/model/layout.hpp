#pragma once
// Sizes of a model and where its parameters lie. No Eigen: the same for every device.
#include <cstdint>
#include <string>
#include <vector>

#include <meso/attention/mask.hpp>
#include <meso/core/check.hpp>
#include <meso/core/parameter.hpp>

namespace meso {

namespace detail {
template <class A>
struct MaskOf {
  using type = Causal;
};
template <class A>
requires requires { typename A::Mask; }
struct MaskOf<A> {
  using type = typename A::Mask;
};
template <class A>
constexpr bool tied_head() {
  if constexpr (requires { A::tied; })
    return A::tied;
  else
    return true;
}
}  // namespace detail

/// Of each size of a Transformer: so that no count of the elements of one block overflows.
inline constexpr Index largest_size = Index{1} << 28;

/// Sizes and policies' hyper-parameters of a Transformer. The first five are required.
template <class A>
struct TransformerConfig {
  Index vocabulary = 0;
  Index width = 0;
  Index layers = 0;
  Index heads = 0;
  Index context = 0;          ///< T: the longest sequence, and what normalizers are told
  Index key_value_heads = 0;  ///< 0: as many as heads; fewer: grouped queries
  Index mlp_width = 0;        ///< 0: 4·width, or 8/3·width rounded up to a multiple of 8 if gated
  std::uint64_t seed = 0;     ///< of the initial weights
  typename A::Normalizer normalizer{};
  typename A::Norm norm{};
  typename A::Position position{};
  typename A::Mlp mlp{};
  typename detail::MaskOf<A>::type mask{};
};

/// The same with the zeros that mean "as usual" filled in.
/// Throws: std::invalid_argument that names the first size that is missing or does not fit.
template <class A>
TransformerConfig<A> completed(TransformerConfig<A> c) {
  const auto required = [](const char* name, Index value, Index most = largest_size) {
    check(value > 0, "TransformerConfig: ", name, " is ", value, ", expected a positive number");
    check(value <= most, "TransformerConfig: ", name, " is ", value, ", expected at most ", most);
  };
  required("vocabulary", c.vocabulary);
  required("width", c.width);
  required("layers", c.layers);
  required("heads", c.heads);
  required("context", c.context);
  check(c.width % c.heads == 0, "TransformerConfig: ", c.heads, " heads do not divide the width ", c.width);
  if (c.key_value_heads == 0) c.key_value_heads = c.heads;
  check(c.key_value_heads > 0 && c.heads % c.key_value_heads == 0, "TransformerConfig: ", c.key_value_heads,
        " key-value heads do not divide the ", c.heads, " heads");
  if (c.mlp_width == 0) c.mlp_width = A::Mlp::gated ? (8 * c.width / 3 + 7) / 8 * 8 : 4 * c.width;
  required("mlp_width", c.mlp_width, 4 * largest_size);
  if constexpr (requires { c.position.table_size(Index{}); }) c.position.table_size(c.width / c.heads);
  return c;
}

/// Parameter numbers of one block; −1 where there is none. query, key, value are adjacent and packed, so are their
/// biases.
struct BlockParameters {
  Index norm1 = -1, query = -1, query_bias = -1, normalizer = -1, output = -1, output_bias = -1;
  Index norm2 = -1, up = -1, up_bias = -1, down = -1, down_bias = -1;
};

/// Where everything lies in a Transformer's flat buffer.
struct TransformerParameters {
  ParameterLayout layout;
  Index token = -1, position = -1, final_norm = -1, head = -1;
  std::vector<BlockParameters> blocks;
};

/// Declares the parameters of a model: embedding.*, blocks.<l>.*, final_norm.*, head (if not tied). Weights are
/// (out, in); a gated MLP has the two weights mlp.gate and mlp.up.
template <class A>
TransformerParameters declare_parameters(const TransformerConfig<A>& c) {
  using enum ParameterKind;
  constexpr auto packed_after = ParameterLayout::Placement::packed;
  TransformerParameters p;
  ParameterLayout& layout = p.layout;
  const Index head_size = c.width / c.heads, key_width = c.key_value_heads * head_size;
  p.token = layout.add("embedding.token", c.vocabulary, c.width, embedding);
  if constexpr (A::Position::learned_table)
    p.position = layout.add("embedding.position", c.context, c.width, embedding);
  for (Index l = 0; l < c.layers; ++l) {
    const std::string block = "blocks." + std::to_string(l) + ".";
    BlockParameters b;
    b.norm1 = c.norm.declare(layout, block + "norm1", c.width);
    b.query = layout.add(block + "attention.query", c.width, c.width, matrix);
    layout.add(block + "attention.key", key_width, c.width, matrix, packed_after);
    layout.add(block + "attention.value", key_width, c.width, matrix, packed_after);
    if constexpr (A::bias) {
      b.query_bias = layout.add(block + "attention.query.bias", 1, c.width, bias);
      layout.add(block + "attention.key.bias", 1, key_width, bias, packed_after);
      layout.add(block + "attention.value.bias", 1, key_width, bias, packed_after);
    }
    if constexpr (A::Normalizer::parameters_per_head > 0)
      b.normalizer =
          layout.add(block + "attention.normalizer", c.heads, A::Normalizer::parameters_per_head, normalizer);
    b.output = layout.add(block + "attention.output", c.width, c.width, matrix);
    if constexpr (A::bias) b.output_bias = layout.add(block + "attention.output.bias", 1, c.width, bias);
    b.norm2 = c.norm.declare(layout, block + "norm2", c.width);
    if constexpr (A::Mlp::gated) {
      b.up = layout.add(block + "mlp.gate", c.mlp_width, c.width, matrix);
      layout.add(block + "mlp.up", c.mlp_width, c.width, matrix, packed_after);
    } else {
      b.up = layout.add(block + "mlp.up", c.mlp_width, c.width, matrix);
    }
    if constexpr (A::bias) {
      if constexpr (A::Mlp::gated) {
        b.up_bias = layout.add(block + "mlp.gate.bias", 1, c.mlp_width, bias);
        layout.add(block + "mlp.up.bias", 1, c.mlp_width, bias, packed_after);
      } else {
        b.up_bias = layout.add(block + "mlp.up.bias", 1, c.mlp_width, bias);
      }
    }
    b.down = layout.add(block + "mlp.down", c.width, c.mlp_width, matrix);
    if constexpr (A::bias) b.down_bias = layout.add(block + "mlp.down.bias", 1, c.width, bias);
    p.blocks.push_back(b);
  }
  p.final_norm = c.norm.declare(layout, "final_norm", c.width);
  if constexpr (detail::tied_head<A>())
    p.head = p.token;
  else
    p.head = layout.add("head", c.vocabulary, c.width, matrix);
  return p;
}

}  // namespace meso
