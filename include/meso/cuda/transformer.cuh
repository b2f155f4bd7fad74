#pragma once
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <meso/core/random.hpp>
#include <meso/cuda/activation.cuh>
#include <meso/cuda/attention.cuh>
#include <meso/cuda/cross_entropy.cuh>
#include <meso/cuda/embedding.cuh>
#include <meso/cuda/gemm.hpp>
#include <meso/cuda/linear.cuh>
#include <meso/cuda/norm.cuh>
#include <meso/cuda/parameter.hpp>
#include <meso/cuda/policy.hpp>
#include <meso/cuda/position.cuh>
#include <meso/model/layout.hpp>

namespace meso {

template <class Scalar, class A, class Device>
class Transformer;

namespace cuda {

/// What one block keeps of a forward pass; see meso::BlockCache.
template <class T>
struct BlockCache {
  View<T> norm1, qkv, heads, middle, norm2, up, hidden;
  View<Compute<T>> saved1, saved2;
  View<Compute<T>> lse;  ///< (tokens, heads)
};

/// What a Transformer on the device keeps of a forward pass; see meso::TransformerCache. All views are of device memory.
template <class T>
struct TransformerCache {
  Index batch = 0;
  Index time = 0;
  TokenBatch tokens;
  std::vector<View<T>> residual;
  std::vector<BlockCache<T>> blocks;
  View<T> final_norm;
  View<Compute<T>> saved_final;
  View<T> logits;
  Buffer<T> memory;
  Buffer<Compute<T>> saved_memory;
};

}  // namespace cuda

/// The model of meso::Transformer on an NVIDIA GPU: the same config, parameters, initial values (bit for bit) and
/// equations. Scalar is float, double or cuda::bf16. With bf16, activations and weights are bf16, products, norms,
/// attention and the loss accumulate in float, parameters() are the float master weights, rounded at each forward pass,
/// and gradients are float.
/// A's policies may be the CPU's or the device's own (cuda::LayerNorm, …); the head size is 32, 64, 96 or 128 and the
/// normalizer one of the null-logit family. Nothing comes back to the host but the loss.
/// Throws: std::invalid_argument as the CPU's, and for a head size without a kernel.
template <class Scalar, class A>
class Transformer<Scalar, A, Cuda> {
 public:
  using Config = TransformerConfig<A>;
  using Cache = cuda::TransformerCache<Scalar>;
  using Accumulated = cuda::Compute<Scalar>;  ///< of master weights, gradients and saved scalars
  using Norm = typename cuda::DevicePolicy<typename A::Norm>::type;
  using Mlp = typename cuda::DevicePolicy<typename A::Mlp>::type;
  using Normalizer = typename cuda::DevicePolicy<typename A::Normalizer>::type;
  using Position = typename cuda::DevicePolicy<typename A::Position>::type;

  Transformer(cuda::Context& context, const Config& config)
      : config_(completed(config)),
        norm_(cuda::device_policy(config_.norm)),
        normalizer_(cuda::device_policy(config_.normalizer)),
        position_(cuda::device_policy(config_.position)),
        numbers_(declare_parameters(config_)),
        parameters_(numbers_.layout) {
    cuda::detail::with_head_size("Transformer", head_size(), [](auto) {});
    const Parameters<Accumulated> values = initial_values();
    cuda::upload(context, values.values.data(), values.values.size(), parameters_.values.data());
    if constexpr (!same) weights_ = cuda::Parameters<Scalar>(numbers_.layout);
    if constexpr (Position::rotating) {
      const std::vector<Accumulated> table = position_.template table<Accumulated>(config_.context, head_size());
      rotation_.resize(static_cast<Index>(table.size()));
      cuda::upload(context, table.data(), rotation_.size(), rotation_.data());
    }
  }

  const Config& config() const { return config_; }
  const TransformerParameters& numbers() const { return numbers_; }
  /// Master weights.
  cuda::Parameters<Accumulated>& parameters() { return parameters_; }
  const cuda::Parameters<Accumulated>& parameters() const { return parameters_; }
  /// A zeroed buffer of this model's layout, for gradients.
  cuda::Parameters<Accumulated> gradients() const { return cuda::Parameters<Accumulated>(numbers_.layout); }

  AttentionShape attention_shape(Index batch, Index time) const {
    return {batch, time, config_.heads, config_.key_value_heads, head_size(), config_.context};
  }

  /// Logits of `tokens` (host memory), sequences of `time` one after the other; fills the cache. Returns
  /// (tokens, vocabulary) in device memory.
  cuda::View<const Scalar> forward(cuda::Context& context, std::span<const Token> tokens, Index time, Cache& cache) {
    plan(context, tokens, time, cache);
    if constexpr (!same)
      cuda::cast(context, parameters_.values.data(), parameters_.values.size(), weights_.values.data());
    const cuda::Parameters<Scalar>& w = weights();
    const AttentionShape heads = attention_shape(cache.batch, time);
    embedding_forward<Scalar>(context, cache.tokens, time, w[numbers_.token],
                              numbers_.position >= 0 ? w[numbers_.position] : ConstView{}, cache.residual[0]);
    for (std::size_t l = 0; l < cache.blocks.size(); ++l) {
      const BlockParameters& n = numbers_.blocks[l];
      const cuda::BlockCache<Scalar>& b = cache.blocks[l];
      const View x = cache.residual[l], out = cache.residual[l + 1];
      norm_forward<Norm, Scalar>(context, norm_, data_of(w, n.norm1), x, b.norm1, b.saved1);
      multiply(context, b.norm1, joined(w[n.query], b.qkv.cols), b.qkv);
      add<Scalar>(context, data_of(w, n.query_bias), ConstView{}, b.qkv);
      turn_heads(context, b.qkv, time, false);
      attention_forward<Normalizer, Mask, Scalar>(context, normalizer_, config_.mask, heads, data_of(w, n.normalizer),
                                                  part(b.qkv, 0), part(b.qkv, 1), part(b.qkv, 2), b.heads, b.lse);
      multiply(context, b.heads, w[n.output], b.middle);
      add<Scalar>(context, data_of(w, n.output_bias), x, b.middle);

      norm_forward<Norm, Scalar>(context, norm_, data_of(w, n.norm2), b.middle, b.norm2, b.saved2);
      multiply(context, b.norm2, joined(w[n.up], b.up.cols), b.up);
      bias_activation_forward<Mlp, Scalar>(context, Mlp{}, b.up, data_of(w, n.up_bias), b.hidden);
      multiply(context, b.hidden, w[n.down], out);
      add<Scalar>(context, data_of(w, n.down_bias), b.middle, out);
    }
    norm_forward<Norm, Scalar>(context, norm_, data_of(w, numbers_.final_norm), cache.residual.back(), cache.final_norm,
                               cache.saved_final);
    multiply(context, cache.final_norm, w[numbers_.head], cache.logits);
    return cache.logits;
  }

  /// Cross-entropy of the cached logits against `targets` (host memory) and the gradient of every parameter, times
  /// gradient_scale, as meso::Transformer::backward. Waits for the loss, after all work is under way.
  LossSum backward(cuda::Context& context, std::span<const Token> targets, const Cache& cache,
                   cuda::Parameters<Accumulated>& g, Accumulate accumulate = Accumulate::no,
                   double gradient_scale = 1.0) const {
    const cuda::Parameters<Scalar>& w = weights();
    meso::check(g.layout.size() == w.layout.size(), "backward: the gradients have ", g.layout.size(),
                " elements, the model's layout has ", w.layout.size());
    const Index tokens = cache.batch * cache.time, width = config_.width;
    meso::check(static_cast<Index>(targets.size()) == tokens, "backward: there are ", targets.size(), " targets for ",
                tokens, " tokens");
    LossSum loss;
    loss.count = detail::count_targets(targets, config_.vocabulary);
    const AttentionShape heads = attention_shape(cache.batch, cache.time);
    const Index qkv_width = cache.blocks.front().qkv.cols, up_width = cache.blocks.front().up.cols;
    const auto take = [&](Index cols) { return context.workspace.template take<Scalar>(tokens * cols); };
    const auto dx_memory = take(width), dmiddle_memory = take(width), dnorm_memory = take(width),
               dheads_memory = take(width), dqkv_memory = take(qkv_width), dhidden_memory = take(config_.mlp_width),
               dup_memory = take(up_width), dlogits_memory = take(config_.vocabulary);
    const View dx = dx_memory.view(tokens, width), dmiddle = dmiddle_memory.view(tokens, width),
               dnorm = dnorm_memory.view(tokens, width), dheads = dheads_memory.view(tokens, width),
               dqkv = dqkv_memory.view(tokens, qkv_width), dhidden = dhidden_memory.view(tokens, config_.mlp_width),
               dup = dup_memory.view(tokens, up_width), dlogits = dlogits_memory.view(tokens, config_.vocabulary);
    const auto device_targets = context.workspace.template take<Token>(tokens);
    const auto sum = context.workspace.template take<double>(1);
    cuda::upload(context, targets.data(), tokens, device_targets.data());

    // logits = head·final_norm(x_L)
    cross_entropy<Scalar>(context, cache.logits, device_targets.data(), loss.count, dlogits, gradient_scale,
                          sum.data());
    multiply_backward(context, cache.final_norm, w[numbers_.head], dlogits, dnorm, g[numbers_.head], nullptr,
                      accumulate);
    norm_backward<Norm, Scalar>(context, norm_, data_of(w, numbers_.final_norm), cache.residual.back(),
                                cache.saved_final, dnorm, ConstView{}, dx, data_of(g, numbers_.final_norm), accumulate);
    for (std::size_t l = cache.blocks.size(); l-- > 0;) {
      const BlockParameters& n = numbers_.blocks[l];
      const cuda::BlockCache<Scalar>& b = cache.blocks[l];
      // x = x' + W_down·f(W_up·norm2(x'))
      multiply_backward(context, b.hidden, w[n.down], dx, dhidden, g[n.down], data_of(g, n.down_bias), accumulate);
      activation_backward<Mlp, Scalar>(context, Mlp{}, b.up, dhidden, dup);
      multiply_backward(context, b.norm2, joined(w[n.up], up_width), dup, dnorm, joined(g[n.up], up_width),
                        data_of(g, n.up_bias), accumulate);
      norm_backward<Norm, Scalar>(context, norm_, data_of(w, n.norm2), b.middle, b.saved2, dnorm, dx, dmiddle,
                                  data_of(g, n.norm2), accumulate);
      // x' = x + W_o·attention(norm1(x))
      multiply_backward(context, b.heads, w[n.output], dmiddle, dheads, g[n.output], data_of(g, n.output_bias),
                        accumulate);
      attention_backward<Normalizer, Mask, Scalar>(context, normalizer_, config_.mask, heads, data_of(w, n.normalizer),
                                                   part(b.qkv, 0), part(b.qkv, 1), part(b.qkv, 2), b.heads, b.lse,
                                                   dheads, part(dqkv, 0), part(dqkv, 1), part(dqkv, 2),
                                                   data_of(g, n.normalizer), accumulate);
      turn_heads(context, dqkv, cache.time, true);
      multiply_backward(context, b.norm1, joined(w[n.query], qkv_width), dqkv, dnorm, joined(g[n.query], qkv_width),
                        data_of(g, n.query_bias), accumulate);
      norm_backward<Norm, Scalar>(context, norm_, data_of(w, n.norm1), cache.residual[l], b.saved1, dnorm, dmiddle, dx,
                                  data_of(g, n.norm1), accumulate);
    }
    // x₀ = embedding(tokens) + positions; a tied table already holds the head's gradient.
    embedding_backward<Scalar>(context, cache.tokens, dx, g[numbers_.token],
                               detail::tied_head<A>() ? Accumulate::yes : accumulate);
    if (numbers_.position >= 0) position_backward<Scalar>(context, cache.time, dx, g[numbers_.position], accumulate);
    cuda::download(context, sum.data(), 1, &loss.sum);
    return loss;
  }

 private:
  static constexpr bool same = std::is_same_v<Scalar, Accumulated>;
  using View = cuda::View<Scalar>;
  using ConstView = cuda::View<const Scalar>;
  using Mask = typename detail::MaskOf<A>::type;

  Index head_size() const { return config_.width / config_.heads; }
  const cuda::Parameters<Scalar>& weights() const {
    if constexpr (same)
      return parameters_;
    else
      return weights_;
  }

  /// GPT-2's initialization, as meso::initialize_parameters: the same bits.
  Parameters<Accumulated> initial_values() const {
    Parameters<Accumulated> values(numbers_.layout);
    for (Index i = 0; i < values.layout.count(); ++i) {
      const ParameterInfo& info = values.layout[i];
      if (info.kind == ParameterKind::matrix || info.kind == ParameterKind::embedding)
        fill_normal(values[i], Random{config_.seed, stream_of(info.name)}, 0.02);
      if (info.kind == ParameterKind::gain) std::fill(values[i].data, values[i].data + info.size(), Accumulated(1));
    }
    const Accumulated residual = static_cast<Accumulated>(1.0 / std::sqrt(2.0 * static_cast<double>(config_.layers)));
    for (const BlockParameters& b : numbers_.blocks)
      for (const Index i : {b.output, b.down})
        for (Index k = 0; k < values.layout[i].size(); ++k) values[i].data[k] *= residual;
    return values;
  }

  template <class T>
  static cuda::View<T> joined(const cuda::View<T>& first, Index rows) {
    return {first.data, rows, first.cols, first.stride};
  }
  template <class P>
  static auto data_of(P& parameters, Index number) {
    return number >= 0 ? parameters[number].data : nullptr;
  }
  View part(const View& x, Index i) const {
    const Index width = config_.width, key_width = config_.key_value_heads * head_size();
    return i == 0 ? x.col_range(0, width) : x.col_range(width + (i - 1) * key_width, key_width);
  }

  /// y = x wᵀ.
  static void multiply(cuda::Context& context, const ConstView& x, const ConstView& w, const View& y) {
    gemm<Scalar, Scalar>(context, x, w, y, {.transpose_b = true});
  }
  /// dx = dy w, dw = or += dyᵀ x, dbias = or += Σ dy.
  static void multiply_backward(cuda::Context& context, const ConstView& x, const ConstView& w, const ConstView& dy,
                                const View& dx, const cuda::View<Accumulated>& dw, Accumulated* dbias,
                                Accumulate accumulate) {
    gemm<Scalar, Scalar>(context, dy, w, dx);
    gemm<Scalar, Accumulated>(context, dy, x, dw, {.transpose_a = true, .accumulate = accumulate == Accumulate::yes});
    if (dbias) column_sums<Scalar>(context, dy, dbias, accumulate);
  }

  void turn_heads(cuda::Context& context, const View& qkv, Index time, bool back) const {
    if constexpr (Position::rotating)
      rotate_heads<Scalar>(context, qkv, rotation_.data(), time, config_.heads + config_.key_value_heads, head_size(),
                           back);
  }

  /// Points the cache's views into its buffers; allocates only if the batch is larger than any before.
  void plan(cuda::Context& context, std::span<const Token> tokens, Index time, Cache& cache) const {
    const Index rows = static_cast<Index>(tokens.size());
    meso::check(time >= 1 && time <= config_.context, "forward: sequences of ", time,
                " tokens, expected 1 to the context of ", config_.context);
    meso::check(rows > 0 && rows % time == 0, "forward: ", rows, " tokens are not whole sequences of ", time);
    cache.batch = rows / time;
    cache.time = time;
    cache.tokens.set(context, tokens, config_.vocabulary);
    const Index width = config_.width, saved = Norm::saved_per_row;
    const Index qkv = width + 2 * config_.key_value_heads * head_size();
    cache.blocks.resize(numbers_.blocks.size());
    cache.residual.resize(numbers_.blocks.size() + 1);
    for (const bool place : {false, true}) {
      Index end = 0, saved_end = 0;
      const auto put = [&](View& view, Index cols) {
        if (place) view = {cache.memory.data() + end, rows, cols, cols};
        end += padded<Scalar>(rows * cols);
      };
      const auto keep = [&](cuda::View<Accumulated>& view, Index cols) {
        if (place) view = {cache.saved_memory.data() + saved_end, rows, cols, cols};
        saved_end += padded<Accumulated>(rows * cols);
      };
      for (View& x : cache.residual) put(x, width);
      for (cuda::BlockCache<Scalar>& b : cache.blocks) {
        put(b.norm1, width);
        put(b.qkv, qkv);
        put(b.heads, width);
        put(b.middle, width);
        put(b.norm2, width);
        put(b.up, cuda::preactivation_width<Mlp>(config_.mlp_width));
        put(b.hidden, config_.mlp_width);
        keep(b.saved1, saved);
        keep(b.saved2, saved);
        keep(b.lse, config_.heads);
      }
      put(cache.final_norm, width);
      keep(cache.saved_final, saved);
      put(cache.logits, config_.vocabulary);
      if (!place) {
        cache.memory.resize(end);
        cache.saved_memory.resize(saved_end);
      }
    }
  }

  Config config_;
  Norm norm_;
  Normalizer normalizer_;
  Position position_;
  TransformerParameters numbers_;
  cuda::Parameters<Accumulated> parameters_;
  cuda::Parameters<Scalar> weights_;  // bf16 alone
  cuda::Buffer<Accumulated> rotation_;
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
struct Gpt2Softmax1 : Gpt2 {
  using Normalizer = cuda::Softmax1;
};

}  // namespace cuda
}  // namespace meso
