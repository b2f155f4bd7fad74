#pragma once
#include <cmath>
#include <string>
#include <vector>

#include <meso/core/random.hpp>
#include <meso/model/config.hpp>

namespace meso {

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

/// GPT-2's initialization: weights and embeddings N(0, 0.02²), the two projections that write to the residual stream
/// (attention.output, mlp.down) divided by √(2·layers), biases 0, norms and normalizers by their own initialize.
/// Every parameter has the random stream of its name, so that models that share a parameter share its values.
/// Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), §2.3.
template <class A, class S>
void initialize_parameters(const TransformerConfig<A>& c, const TransformerParameters& p, Parameters<S>& values) {
  values.values.fill(S(0));
  for (Index i = 0; i < p.layout.count(); ++i) {
    const ParameterInfo& info = p.layout[i];
    if (info.kind == ParameterKind::matrix || info.kind == ParameterKind::embedding)
      fill_normal(values[i], Random{c.seed, stream_of(info.name)}, 0.02);
  }
  const S residual = static_cast<S>(1.0 / std::sqrt(2.0 * static_cast<double>(c.layers)));
  const auto norm = [&](Index i) {
    if (i >= 0) c.norm.initialize(c.width, array(values[i].data, c.norm.parameter_count(c.width)));
  };
  for (const BlockParameters& b : p.blocks) {
    map(values[b.output]) *= residual;
    map(values[b.down]) *= residual;
    norm(b.norm1);
    norm(b.norm2);
    if (b.normalizer >= 0) initialize_normalizer(c.normalizer, c.heads, c.context, values[b.normalizer].data);
  }
  norm(p.final_norm);
}

}  // namespace meso
