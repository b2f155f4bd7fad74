#pragma once
#include <algorithm>
#include <span>
#include <utility>

#include <meso/attention/attention.hpp>
#include <meso/layer/cross_entropy.hpp>
#include <meso/layer/float_linear.hpp>
#include <meso/layer/mlp.hpp>
#include <meso/model/cache.hpp>
#include <meso/model/parameters.hpp>

namespace meso {

namespace detail {

/// True, or an error that names the policy; the compiler's note adds the member that it lacks. One assertion a concept,
/// none on a disjunction: of these g++ reports nothing.
template <class A, class S>
constexpr bool checked_architecture() {
  constexpr bool named = requires {
    typename A::Normalizer;
    typename A::Norm;
    typename A::Position;
    typename A::Mlp;
    A::bias;
  };
  if constexpr (named) {
    if constexpr (!MatrixNormalizer<typename A::Normalizer, S>)
      static_assert(Normalizer<typename A::Normalizer, S>,
                    "the architecture's Normalizer does not satisfy meso::Normalizer, nor meso::MatrixNormalizer (see "
                    "meso/normalizer/normalizer.hpp)");
    static_assert(Norm<typename A::Norm, S>,
                  "the architecture's Norm does not satisfy meso::Norm (see meso/norm/norm.hpp)");
    static_assert(Position<typename A::Position>,
                  "the architecture's Position does not satisfy meso::Position (see meso/attention/position.hpp)");
    static_assert(Mask<typename MaskOf<A>::type>,
                  "the architecture's Mask does not satisfy meso::Mask (see meso/attention/mask.hpp)");
    if constexpr (requires { requires A::Mlp::gated; })
      static_assert(GatedActivation<typename A::Mlp, S>,
                    "the architecture's Mlp does not satisfy meso::Activation, gated (see meso/layer/activation.hpp)");
    else
      static_assert(ElementwiseActivation<typename A::Mlp, S>,
                    "the architecture's Mlp does not satisfy meso::Activation (see meso/layer/activation.hpp)");
  }
  static_assert(
      Architecture<A, S>,
      "the architecture does not satisfy meso::Architecture: it needs Normalizer, Norm, Position, Mlp and bias "
      "(see meso/model/config.hpp)");
  return true;
}

}  // namespace detail

/// Pre-norm decoder (with another mask: encoder) transformer whose parts are the policies of an architecture.
///   x₀ = embedding(tokens) + positions;  x' = x + W_o·attention(norm1(x));  x = x' + W_down·f(W_up·norm2(x'));
///   logits = head·final_norm(x_L).
/// Source: Radford et al. (2019) for Gpt2, Touvron et al. (2023) for Llama.
/// The model owns its weights alone; activations live in the caller's cache, gradients in the caller's buffer.
/// Throws: std::invalid_argument on sizes that do not fit (constructor), a token out of range, a sequence longer than
/// the context.
template <class Scalar, class A, class Device = Cpu>
class Transformer {
  static_assert(detail::checked_architecture<A, Scalar>());
  static_assert(std::is_same_v<Device, Cpu>, "include <meso/cuda.hpp> for models on another device");

 public:
  using Config = TransformerConfig<A>;
  using Cache = TransformerCache<Scalar>;

  explicit Transformer(const Config& config)
      : config_(completed(config)), numbers_(declare_parameters(config_)), parameters_(numbers_.layout) {
    initialize_parameters(config_, numbers_, parameters_);
    const Index head_size = config_.width / config_.heads;
    if constexpr (RotatingPosition<typename A::Position, Scalar>) {
      const Index size = config_.position.table_size(head_size);
      rotation_ = Buffer<Scalar>(config_.context * size);
      for (Index t = 0; t < config_.context; ++t)
        config_.position.fill(t, head_size, array(rotation_.data() + t * size, size));
    }
  }

  const Config& config() const { return config_; }
  const TransformerParameters& numbers() const { return numbers_; }
  Parameters<Scalar>& parameters() { return parameters_; }
  const Parameters<Scalar>& parameters() const { return parameters_; }
  /// A zeroed buffer of this model's layout, for gradients.
  Parameters<Accumulator<Scalar>> gradients() const { return Parameters<Accumulator<Scalar>>(parameters_.layout); }

  AttentionShape attention_shape(Index batch, Index time) const {
    return {batch, time, config_.heads, config_.key_value_heads, config_.width / config_.heads, config_.context};
  }

  /// Logits of `tokens`, sequences of `time` one after the other; fills the cache. Returns (tokens, vocabulary).
  /// `linear` multiplies by the weights; `parameters` may stand in for the model's own (quantized weights).
  template <class Products, class Linear = FloatLinear>
  View<const Scalar> forward(CpuContext<Products>& context, std::span<const Token> tokens, Index time, Cache& cache,
                             const Linear& linear = {}, const Parameters<Scalar>* parameters = nullptr) const {
    const Parameters<Scalar>& w = parameters ? *parameters : parameters_;
    plan(tokens, time, cache);
    const AttentionShape heads = attention_shape(cache.batch, time);
    const Index width = config_.width, key_width = heads.key_value_heads * heads.head_size;
    using ConstV = View<const Scalar>;

    embedding_forward<Products, Scalar>(context, tokens, time, w[numbers_.token],
                                        numbers_.position >= 0 ? ConstV(w[numbers_.position]) : ConstV{},
                                        cache.residual[0]);
    for (std::size_t l = 0; l < cache.blocks.size(); ++l) {
      const BlockParameters& n = numbers_.blocks[l];
      const BlockCache<Scalar>& b = cache.blocks[l];
      const View<Scalar> x = cache.residual[l], out = cache.residual[l + 1];

      norm_forward(context, config_.norm, data_of(w, n.norm1), x, b.norm1, b.saved1);
      linear(context, w, n.query, Index{3}, n.query_bias, ConstV(b.norm1), b.qkv);
      turn_heads<true>(context, b.qkv, time);
      const View<Scalar> q = b.qkv.col_range(0, width), k = b.qkv.col_range(width, key_width),
                         v = b.qkv.col_range(width + key_width, key_width);
      attention_forward(context, config_.normalizer, config_.mask, heads, data_of(w, n.normalizer), q, k, v, b.heads);
      linear(context, w, n.output, Index{1}, n.output_bias, ConstV(b.heads), b.middle);
      add(context, x, b.middle);

      norm_forward(context, config_.norm, data_of(w, n.norm2), b.middle, b.norm2, b.saved2);
      const auto activation = [&](const View<Scalar>& tile, Index i, Index j) {
        activation_forward_tile(config_.mlp, ConstV(tile), b.hidden.block(i, j, tile.rows, tile.cols));
      };
      if constexpr (!A::Mlp::gated &&
                    requires { linear(context, w, n.up, Index{1}, n.up_bias, ConstV(b.norm2), b.up, activation); }) {
        linear(context, w, n.up, Index{1}, n.up_bias, ConstV(b.norm2), b.up, activation);
      } else {
        linear(context, w, n.up, Index{A::Mlp::gated ? 2 : 1}, n.up_bias, ConstV(b.norm2), b.up);
        activation_forward(context, config_.mlp, b.up, b.hidden);
      }
      linear(context, w, n.down, Index{1}, n.down_bias, ConstV(b.hidden), out);
      add(context, b.middle, out);
    }
    norm_forward(context, config_.norm, data_of(w, numbers_.final_norm), cache.residual.back(), cache.final_norm,
                 cache.saved_final);
    if constexpr (detail::tied_head<A>())
      FloatLinear{}(context, w, numbers_.head, Index{1}, Index{-1}, ConstV(cache.final_norm), cache.logits);
    else
      linear(context, w, numbers_.head, Index{1}, Index{-1}, ConstV(cache.final_norm), cache.logits);
    return cache.logits;
  }

  /// Cross-entropy of the cached logits against `targets` and the gradient of every parameter, times gradient_scale
  /// (1/micro-batches when gradients are accumulated). Reads the cache only: it can run twice on one forward pass.
  /// `gradients` are written (Accumulate::no) or added to.
  /// Throws: std::invalid_argument on targets that do not fit the cache, and on gradients of another layout.
  template <class Products>
  LossSum backward(CpuContext<Products>& context, std::span<const Token> targets, const Cache& cache,
                   Parameters<Accumulator<Scalar>>& gradients, Accumulate accumulate = Accumulate::no,
                   double gradient_scale = 1.0) const {
    const Parameters<Scalar>& w = parameters_;
    Parameters<Scalar>& g = gradients;
    check(g.layout.size() == w.layout.size(), "backward: the gradients have ", g.layout.size(),
          " elements, the model's layout has ", w.layout.size());
    const Index tokens = cache.batch * cache.time, width = config_.width;
    const AttentionShape heads = attention_shape(cache.batch, cache.time);
    const Index key_width = heads.key_value_heads * heads.head_size, qkv_width = width + 2 * key_width;
    using ConstV = View<const Scalar>;
    const auto take = [&](Index cols) {
      return context.workspace.template take<Scalar>(tokens * padded<Scalar>(cols));
    };
    const auto dx_memory = take(width), dmiddle_memory = take(width), dnorm_memory = take(width),
               dheads_memory = take(width), dqkv_memory = take(qkv_width), dhidden_memory = take(config_.mlp_width),
               dup_memory = take(preactivation_width<typename A::Mlp>(config_.mlp_width)),
               dlogits_memory = take(config_.vocabulary);
    const View<Scalar> dx = dx_memory.view(tokens, width), dmiddle = dmiddle_memory.view(tokens, width),
                       dnorm = dnorm_memory.view(tokens, width), dheads = dheads_memory.view(tokens, width),
                       dqkv = dqkv_memory.view(tokens, qkv_width),
                       dhidden = dhidden_memory.view(tokens, config_.mlp_width),
                       dup = dup_memory.view(tokens, preactivation_width<typename A::Mlp>(config_.mlp_width)),
                       dlogits = dlogits_memory.view(tokens, config_.vocabulary);

    // logits = head·final_norm(x_L)
    const LossSum loss = cross_entropy<Products, Scalar>(context, cache.logits, targets, dlogits, gradient_scale);
    linear_backward<Products, Scalar>(context, cache.final_norm, w[numbers_.head], dlogits, dnorm, g[numbers_.head],
                                      nullptr, accumulate);
    norm_backward(context, config_.norm, data_of(w, numbers_.final_norm), cache.residual.back(), cache.saved_final,
                  dnorm, ConstV{}, dx, data_of(g, numbers_.final_norm), accumulate);
    for (std::size_t l = cache.blocks.size(); l-- > 0;) {
      const BlockParameters& n = numbers_.blocks[l];
      const BlockCache<Scalar>& b = cache.blocks[l];
      // x = x' + W_down·f(W_up·norm2(x'))
      linear_backward<Products, Scalar>(context, b.hidden, w[n.down], dx, dhidden, g[n.down], data_of(g, n.down_bias),
                                        accumulate, [&](const View<Scalar>& tile, Index i, Index j) {
                                          if constexpr (!A::Mlp::gated)
                                            activation_backward_tile(
                                                config_.mlp, ConstV(b.up.block(i, j, tile.rows, tile.cols)),
                                                ConstV(tile), dup.block(i, j, tile.rows, tile.cols));
                                        });
      if constexpr (A::Mlp::gated) activation_backward(context, config_.mlp, b.up, dhidden, dup);
      linear_backward<Products, Scalar>(context, b.norm2, joined(w[n.up], dup.cols), dup, dnorm,
                                        joined(g[n.up], dup.cols), data_of(g, n.up_bias), accumulate);
      norm_backward(context, config_.norm, data_of(w, n.norm2), b.middle, b.saved2, dnorm, dx, dmiddle,
                    data_of(g, n.norm2), accumulate);
      // x' = x + W_o·attention(norm1(x))
      linear_backward<Products, Scalar>(context, b.heads, w[n.output], dmiddle, dheads, g[n.output],
                                        data_of(g, n.output_bias), accumulate);
      const auto part = [&](const auto& x, Index i) {
        return i == 0 ? x.col_range(0, width) : x.col_range(width + (i - 1) * key_width, key_width);
      };
      attention_backward(context, config_.normalizer, config_.mask, heads, data_of(w, n.normalizer), part(b.qkv, 0),
                         part(b.qkv, 1), part(b.qkv, 2), dheads, part(dqkv, 0), part(dqkv, 1), part(dqkv, 2),
                         data_of(g, n.normalizer), accumulate);
      turn_heads<false>(context, dqkv, cache.time);
      linear_backward<Products, Scalar>(context, b.norm1, joined(w[n.query], qkv_width), dqkv, dnorm,
                                        joined(g[n.query], qkv_width), data_of(g, n.query_bias), accumulate);
      norm_backward(context, config_.norm, data_of(w, n.norm1), cache.residual[l], b.saved1, dnorm, dmiddle, dx,
                    data_of(g, n.norm1), accumulate);
    }
    // x₀ = embedding(tokens) + positions; a tied table already holds the head's gradient.
    embedding_backward<Products, Scalar>(context, cache.tokens, dx, g[numbers_.token],
                                         detail::tied_head<A>() ? Accumulate::yes : accumulate);
    if (numbers_.position >= 0)
      position_backward<Products, Scalar>(context, cache.time, dx, g[numbers_.position], accumulate);
    return loss;
  }

 private:
  /// The packed neighbors that begin at `first` as one (rows, in) matrix.
  template <class T>
  static View<T> joined(const View<T>& first, Index rows) {
    return {first.data, rows, first.cols, first.stride};
  }
  /// Where parameter `number` begins; null where there is none (a norm or normalizer without parameters, no bias).
  template <class P>
  static auto data_of(P& parameters, Index number) {
    return number >= 0 ? parameters[number].data : nullptr;
  }

  template <class Products>
  static void add(CpuContext<Products>& context, const View<const Scalar>& x, const View<Scalar>& y) {
    const RowTiles tiles = RowTiles::of(x.rows, x.cols);
    parallel_for(context, tiles.count(), [&](Index t, Index) {
      map(y.row_range(tiles[t].first, tiles[t].count)) += map(x.row_range(tiles[t].first, tiles[t].count));
    });
  }

  /// Turns queries and keys by their positions (forward), or gradients back.
  template <bool forward, class Products>
  void turn_heads(CpuContext<Products>& context, const View<Scalar>& qkv, Index time) const {
    if constexpr (RotatingPosition<typename A::Position, Scalar>) {
      const Index head_size = config_.width / config_.heads, heads = config_.heads + config_.key_value_heads;
      const Index size = config_.position.table_size(head_size);
      const RowTiles tiles = RowTiles::of(qkv.rows, qkv.cols);
      parallel_for(context, tiles.count(), [&](Index t, Index) {
        for (Index i = tiles[t].first; i < tiles[t].first + tiles[t].count; ++i) {
          const ConstArray<Scalar> row = array(rotation_.data() + i % time * size, size);
          for (Index h = 0; h < heads; ++h) {
            if constexpr (forward)
              config_.position.rotate(row, array(qkv.row(i) + h * head_size, head_size));
            else
              config_.position.rotate_back(row, array(qkv.row(i) + h * head_size, head_size));
          }
        }
      });
    }
  }

  /// Points the cache's views into its buffer; allocates only if the batch is larger than any before.
  void plan(std::span<const Token> tokens, Index time, Cache& cache) const {
    const Index rows = static_cast<Index>(tokens.size());
    check(time >= 1 && time <= config_.context, "forward: sequences of ", time,
          " tokens, expected 1 to the context of ", config_.context);
    check(rows > 0 && rows % time == 0, "forward: ", rows, " tokens are not whole sequences of ", time);
    cache.batch = rows / time;
    cache.time = time;
    cache.tokens.assign(tokens.begin(), tokens.end());
    const Index width = config_.width, saved = A::Norm::saved_per_row;
    const Index qkv = width + 2 * config_.key_value_heads * (width / config_.heads);
    cache.blocks.resize(numbers_.blocks.size());
    cache.residual.resize(numbers_.blocks.size() + 1);
    for (const bool place : {false, true}) {
      Index end = 0;
      const auto put = [&](View<Scalar>& view, Index cols) {
        if (place) view = {cache.memory.data() + end, rows, cols, cols};
        end += padded<Scalar>(rows * cols);
      };
      for (View<Scalar>& x : cache.residual) put(x, width);
      for (BlockCache<Scalar>& b : cache.blocks) {
        put(b.norm1, width);
        put(b.saved1, saved);
        put(b.qkv, qkv);
        put(b.heads, width);
        put(b.middle, width);
        put(b.norm2, width);
        put(b.saved2, saved);
        put(b.up, preactivation_width<typename A::Mlp>(config_.mlp_width));
        put(b.hidden, config_.mlp_width);
      }
      put(cache.final_norm, width);
      put(cache.saved_final, saved);
      put(cache.logits, config_.vocabulary);
      if (!place) cache.memory.resize(end);
    }
  }

  Config config_;
  TransformerParameters numbers_;
  Parameters<Scalar> parameters_;
  Buffer<Scalar> rotation_;
};

}  // namespace meso
