#pragma once
// The model, written once for every device. No Eigen: the ops and ModelDevice are those of the device that is included,
// meso/model/transformer.hpp for the CPU, meso/cuda/transformer.cuh for an NVIDIA GPU.
#include <span>
#include <type_traits>
#include <utility>

#include <meso/attention/shape.hpp>
#include <meso/core/accumulate.hpp>
#include <meso/layer/float_linear.hpp>
#include <meso/layer/loss.hpp>
#include <meso/model/cache.hpp>
#include <meso/model/parameters.hpp>

namespace meso {

/// Pre-norm decoder (with another mask: encoder) transformer whose parts are the policies of an architecture.
///   x₀ = embedding(tokens) + positions;  x' = x + W_o·attention(norm1(x));  x = x' + W_down·f(W_up·norm2(x'));
///   logits = head·final_norm(x_L).
/// Source: Radford et al. (2019) for Gpt2, Touvron et al. (2023) for Llama.
/// The model owns its weights alone; activations live in the caller's cache, gradients in the caller's buffer. Tokens and
/// targets lie in host memory, all else on the device; of a step the loss alone comes back.
/// Scalar is that of activations and products. Weights, their gradients and the scalars that norms keep are of
/// Accumulator<Scalar>: where that is wider (bf16), parameters() are master weights, which each forward pass rounds.
/// Initial values have the same bits on every device.
/// Throws: std::invalid_argument on sizes that do not fit (constructor), a token out of range, a sequence longer than
/// the context.
template <class Scalar, class A, class Device = Cpu>
class Transformer {
  using On = ModelDevice<Device>;
  static_assert(On::template checked_architecture<A, Scalar>());

 public:
  using Config = TransformerConfig<A>;
  using Cache = TransformerCache<Scalar, Device>;
  using Weights = typename On::template Parameters<Scalar>;
  using Masters = typename On::template Parameters<Accumulator<Scalar>>;
  using Gradients = Masters;

  /// A model on the device of `context`.
  template <class Context>
  Transformer(Context& context, const Config& config)
      : config_(completed(config)),
        norm_(On::policy(config_.norm)),
        normalizer_(On::policy(config_.normalizer)),
        position_(On::policy(config_.position)),
        mlp_(On::policy(config_.mlp)),
        numbers_(declare_parameters(config_)),
        parameters_(On::send(context, initial_parameters<Accumulator<Scalar>>(config_, numbers_, norm_, normalizer_))) {
    On::check_shape(attention_shape(1, 1));
    meso::Buffer<Accumulator<Scalar>> table;
    fill_rotation(position_, config_.context, head_size(), table);
    rotation_ = On::send(context, std::move(table));
  }
  /// On the CPU a model needs no context.
  explicit Transformer(const Config& config) requires std::is_same_v<Device, Cpu>
      : Transformer(On::no_context, config) {}

  const Config& config() const { return config_; }
  const TransformerParameters& numbers() const { return numbers_; }
  Masters& parameters() { return parameters_; }
  const Masters& parameters() const { return parameters_; }
  /// A zeroed buffer of this model's layout, for gradients.
  Gradients gradients() const { return Gradients(parameters_.layout); }

  /// The weights that the products see: parameters(), or where these are wider their rounding by the last forward pass.
  const Weights& weights([[maybe_unused]] const Cache& cache) const {
    if constexpr (std::is_same_v<Weights, Masters>)
      return parameters_;
    else
      return cache.rounded;
  }

  AttentionShape attention_shape(Index batch, Index time) const {
    return {batch, time, config_.heads, config_.key_value_heads, head_size(), config_.context};
  }

  /// Logits of `tokens`, sequences of `time` one after the other; fills the cache. Returns (tokens, vocabulary).
  /// `linear` multiplies by the weights; `parameters` may stand in for the model's own (quantized weights).
  template <class Context, class Linear = FloatLinear>
  View<const Scalar, Device> forward(Context& context, std::span<const Token> tokens, Index time, Cache& cache,
                                     const Linear& linear = {}, const Weights* parameters = nullptr) const {
    plan(context, tokens, time, cache);
    round(context, cache);
    const Weights& w = parameters ? *parameters : weights(cache);
    const AttentionShape heads = attention_shape(cache.batch, time);

    embedding_forward(context, cache.tokens, time, w[numbers_.token],
                      numbers_.position >= 0 ? w[numbers_.position] : ConstView{}, cache.residual[0]);
    for (std::size_t l = 0; l < cache.blocks.size(); ++l) {
      const BlockParameters& n = numbers_.blocks[l];
      const BlockCache<Scalar, Device>& b = cache.blocks[l];
      const ConstView x = cache.residual[l];

      norm_forward(context, norm_, data_of(w, n.norm1), x, b.norm1, b.saved1);
      linear(context, w, n.query, Index{3}, n.query_bias, ConstView(b.norm1), b.qkv);
      turn_heads(context, b.qkv, time, false);
      attention_forward(context, normalizer_, config_.mask, heads, data_of(w, n.normalizer), part(b.qkv, 0),
                        part(b.qkv, 1), part(b.qkv, 2), b.heads, b.saved_attention);
      linear_residual_forward(context, linear, w, n.output, n.output_bias, b.heads, x, b.middle);

      norm_forward(context, norm_, data_of(w, n.norm2), b.middle, b.norm2, b.saved2);
      linear_activation_forward(context, linear, mlp_, w, n.up, n.up_bias, b.norm2, b.up, b.hidden);
      linear_residual_forward(context, linear, w, n.down, n.down_bias, b.hidden, b.middle, cache.residual[l + 1]);
    }
    norm_forward(context, norm_, data_of(w, numbers_.final_norm), cache.residual.back(), cache.final_norm,
                 cache.saved_final);
    if constexpr (detail::tied_head<A>())
      FloatLinear{}(context, w, numbers_.head, Index{1}, Index{-1}, ConstView(cache.final_norm), cache.logits);
    else
      linear(context, w, numbers_.head, Index{1}, Index{-1}, ConstView(cache.final_norm), cache.logits);
    return cache.logits;
  }

  /// Mean cross-entropy of the cached logits over the `targets` that count, and the gradient of every parameter, times
  /// gradient_scale (where gradients are accumulated, the micro-batch's share of the targets that count in all). Reads
  /// the cache only: it can run twice on one forward pass.
  /// `gradients` are written (Accumulate::no) or added to. A device is waited for once, at the end, for the loss.
  /// Throws: std::invalid_argument on targets that do not fit the cache, and on gradients of another layout.
  template <class Context>
  LossSum backward(Context& context, std::span<const Token> targets, const Cache& cache, Gradients& gradients,
                   Accumulate accumulate = Accumulate::no, double gradient_scale = 1.0) const {
    const Weights& w = weights(cache);
    Gradients& g = gradients;
    check(g.layout.size() == w.layout.size(), "backward: the gradients have ", g.layout.size(),
          " elements, the model's layout has ", w.layout.size());
    const Index tokens = cache.batch * cache.time, width = config_.width;
    const AttentionShape heads = attention_shape(cache.batch, cache.time);
    const auto take = [&](Index cols) { return context.workspace.template take<Scalar>(tokens * cols); };
    const auto dx_memory = take(width), dmiddle_memory = take(width), dnorm_memory = take(width),
               dheads_memory = take(width), dqkv_memory = take(qkv_width()), dhidden_memory = take(config_.mlp_width),
               dup_memory = take(up_width()), dlogits_memory = take(config_.vocabulary);
    const MutableView dx = dx_memory.view(tokens, width), dmiddle = dmiddle_memory.view(tokens, width),
                      dnorm = dnorm_memory.view(tokens, width), dheads = dheads_memory.view(tokens, width),
                      dqkv = dqkv_memory.view(tokens, qkv_width()),
                      dhidden = dhidden_memory.view(tokens, config_.mlp_width),
                      dup = dup_memory.view(tokens, up_width()),
                      dlogits = dlogits_memory.view(tokens, config_.vocabulary);

    // logits = head·final_norm(x_L)
    const auto loss = start_cross_entropy(context, cache.logits, targets, dlogits, gradient_scale);
    linear_backward(context, cache.final_norm, w[numbers_.head], dlogits, dnorm, g[numbers_.head], nullptr, accumulate);
    norm_backward(context, norm_, data_of(w, numbers_.final_norm), cache.residual.back(), cache.saved_final, dnorm,
                  ConstView{}, dx, data_of(g, numbers_.final_norm), accumulate);
    for (std::size_t l = cache.blocks.size(); l-- > 0;) {
      const BlockParameters& n = numbers_.blocks[l];
      const BlockCache<Scalar, Device>& b = cache.blocks[l];
      // x = x' + W_down·f(W_up·norm2(x'))
      activation_linear_backward(context, mlp_, b.up, b.hidden, w[n.down], dx, dhidden, dup, g[n.down],
                                 data_of(g, n.down_bias), accumulate);
      linear_backward(context, b.norm2, joined(w[n.up], up_width()), dup, dnorm, joined(g[n.up], up_width()),
                      data_of(g, n.up_bias), accumulate);
      norm_backward(context, norm_, data_of(w, n.norm2), b.middle, b.saved2, dnorm, dx, dmiddle, data_of(g, n.norm2),
                    accumulate);
      // x' = x + W_o·attention(norm1(x))
      linear_backward(context, b.heads, w[n.output], dmiddle, dheads, g[n.output], data_of(g, n.output_bias),
                      accumulate);
      attention_backward(context, normalizer_, config_.mask, heads, data_of(w, n.normalizer), part(b.qkv, 0),
                         part(b.qkv, 1), part(b.qkv, 2), b.heads, b.saved_attention, dheads, part(dqkv, 0),
                         part(dqkv, 1), part(dqkv, 2), data_of(g, n.normalizer), accumulate);
      turn_heads(context, dqkv, cache.time, true);
      linear_backward(context, b.norm1, joined(w[n.query], qkv_width()), dqkv, dnorm, joined(g[n.query], qkv_width()),
                      data_of(g, n.query_bias), accumulate);
      norm_backward(context, norm_, data_of(w, n.norm1), cache.residual[l], b.saved1, dnorm, dmiddle, dx,
                    data_of(g, n.norm1), accumulate);
    }
    // x₀ = embedding(tokens) + positions; a tied table already holds the head's gradient.
    embedding_backward(context, cache.tokens, ConstView(dx), g[numbers_.token],
                       detail::tied_head<A>() ? Accumulate::yes : accumulate);
    if (numbers_.position >= 0) position_backward(context, cache.time, ConstView(dx), g[numbers_.position], accumulate);
    return finish(context, loss);
  }

 private:
  using MutableView = View<Scalar, Device>;
  using ConstView = View<const Scalar, Device>;
  template <class P>
  using Policy = typename On::template Policy<P>;

  Index head_size() const { return config_.width / config_.heads; }
  Index key_width() const { return config_.key_value_heads * head_size(); }
  Index qkv_width() const { return config_.width + 2 * key_width(); }
  Index up_width() const { return A::Mlp::gated ? 2 * config_.mlp_width : config_.mlp_width; }

  /// The packed neighbors that begin at `first` as one (rows, in) matrix.
  template <class T>
  static View<T, Device> joined(const View<T, Device>& first, Index rows) {
    return {first.data, rows, first.cols, first.stride};
  }
  /// Queries, keys or values: part 0, 1 or 2 of (tokens, qkv width).
  MutableView part(const MutableView& x, Index i) const {
    return i == 0 ? x.col_range(0, config_.width) : x.col_range(config_.width + (i - 1) * key_width(), key_width());
  }
  /// Where parameter `number` begins; null where there is none (a norm or normalizer without parameters, no bias).
  template <class P>
  static auto data_of(P& parameters, Index number) {
    return number >= 0 ? parameters[number].data : nullptr;
  }

  /// Rounds the masters for this forward pass where they are wider.
  template <class Context>
  void round([[maybe_unused]] Context& context, [[maybe_unused]] Cache& cache) const {
    if constexpr (!std::is_same_v<Weights, Masters>) {
      if (cache.rounded.layout.size() != parameters_.layout.size()) cache.rounded = Weights(parameters_.layout);
      cast(context, parameters_.values.data(), parameters_.values.size(), cache.rounded.values.data());
    }
  }

  /// Turns queries and keys by their positions, or gradients back.
  template <class Context>
  void turn_heads(Context& context, const MutableView& qkv, Index time, bool back) const {
    rotate_heads(context, position_, qkv, rotation_.data(), time, config_.heads + config_.key_value_heads, head_size(),
                 back);
  }

  /// Plans the cache; allocates only if the batch is larger than any before.
  template <class Context>
  void plan(Context& context, std::span<const Token> tokens, Index time, Cache& cache) const {
    const Index rows = static_cast<Index>(tokens.size());
    check(time >= 1 && time <= config_.context, "forward: sequences of ", time,
          " tokens, expected 1 to the context of ", config_.context);
    check(rows > 0 && rows % time == 0, "forward: ", rows, " tokens are not whole sequences of ", time);
    cache.batch = rows / time;
    cache.time = time;
    set_tokens(context, tokens, config_.vocabulary, cache.tokens);
    CacheWidths widths{config_.width, qkv_width(), up_width(), config_.mlp_width, config_.vocabulary};
    widths.norm = Policy<typename A::Norm>::saved_per_row;
    widths.attention = On::attention_saved(attention_shape(cache.batch, time));
    place_views(cache, config_.layers, rows, widths);
  }

  Config config_;
  Policy<typename A::Norm> norm_;
  Policy<typename A::Normalizer> normalizer_;
  Policy<typename A::Position> position_;
  Policy<typename A::Mlp> mlp_;
  TransformerParameters numbers_;
  Masters parameters_;
  typename On::template Buffer<Accumulator<Scalar>> rotation_;
};

}  // namespace meso
