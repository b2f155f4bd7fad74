#include <meso/cuda/attention.cuh>

#include "tests/cuda/attention_instances.hpp"
#include "tests/cuda/device_test.hpp"

using namespace meso;
using namespace meso::test;
using cuda::bf16;

namespace {

/// Attention by its definition, in double, with bounds of the errors of a computation with roundoff u, whose weights,
/// dz and results are also rounded with v.
struct Reference {
  oracle::Matrix o, o_bound, lse, lse_bound, dq, dq_bound, dk, dk_bound, dv, dv_bound, ds, ds_bound;
};

Reference reference(const AttentionShape& s, const cuda::MaskRange& mask, const std::vector<double>& sinks,
                    const oracle::Matrix& q, const oracle::Matrix& k, const oracle::Matrix& v,
                    const oracle::Matrix& d_o, double u, double rounding) {
  const Index d = s.head_size, width = s.heads * d, key_width = s.key_value_heads * d;
  const auto like = [&](Index cols) { return oracle::Matrix(s.tokens(), cols); };
  Reference r{like(width),
              like(width),
              like(s.heads),
              like(s.heads),
              like(width),
              like(width),
              like(key_width),
              like(key_width),
              like(key_width),
              like(key_width),
              oracle::Matrix(1, s.heads),
              oracle::Matrix(1, s.heads)};
  const double scale = 1 / std::sqrt(static_cast<double>(d)), infinity = std::numeric_limits<double>::infinity();
  for (Index b = 0; b < s.batch; ++b)
    for (Index h = 0; h < s.heads; ++h)
      for (Index i = 0; i < s.time; ++i) {
        const Index row = b * s.time + i, left = h * d, right = h / s.group() * d;
        const double sink = sinks[oracle::at(h)];
        std::vector<Index> keys;
        std::vector<double> z, dp, dp_terms;
        double top = sink, zeta = 0;
        for (Index j = std::max<Index>(0, i - mask.behind); j <= std::min<Index>(s.time - 1, i + mask.ahead); ++j) {
          double sum = 0, terms = 0, slope = 0, slope_terms = 0;
          for (Index c = 0; c < d; ++c) {
            const double a = q(row, left + c), x = k(b * s.time + j, right + c);
            sum += a * x;
            if (std::isfinite(a * x)) terms += std::abs(a * x);
            const double e = d_o(row, left + c) * v(b * s.time + j, right + c);
            slope += e;
            slope_terms += std::abs(e);
          }
          keys.push_back(b * s.time + j);
          z.push_back(scale * sum);
          dp.push_back(slope);
          dp_terms.push_back(slope_terms);
          top = std::max<double>(top, scale * sum);
          zeta = std::max<double>(zeta, (static_cast<double>(d) + 3) * u * scale * terms);
        }
        const double n = static_cast<double>(keys.size());
        if (top == -infinity) {
          r.lse(row, h) = -infinity;
          continue;
        }
        double total = std::exp(sink - top), spread = std::min<double>(110, std::isfinite(sink) ? top - sink : 0);
        for (const double x : z) {
          total += std::exp(x - top);
          if (x > -infinity) spread = std::max<double>(spread, std::min<double>(110, top - x));
        }
        // Twice the CPU's bound: the running maximum rounds each weight once more, and p = e^{z − lse} carries |lse|.
        const double lse = top + std::log(total);
        const double weight_error = 2 * zeta + 2 * (spread + n + 16 + std::abs(lse)) * u;
        r.lse(row, h) = lse;
        r.lse_bound(row, h) = zeta + (2 * n + 16 + std::abs(lse)) * u;
        double delta = 0, delta_terms = 0, output_terms = 0;
        std::vector<double> p;
        for (std::size_t m = 0; m < keys.size(); ++m) {
          p.push_back(std::exp(z[m] - top) / total);
          delta += p[m] * dp[m];
          delta_terms += p[m] * dp_terms[m];
        }
        for (Index c = 0; c < d; ++c) {
          double sum = 0, terms = 0;
          for (std::size_t m = 0; m < keys.size(); ++m) {
            sum += p[m] * v(keys[m], right + c);
            terms += p[m] * std::abs(v(keys[m], right + c));
          }
          r.o(row, left + c) = sum;
          r.o_bound(row, left + c) = (weight_error + (n + 2) * u + 2 * rounding) * terms;
          output_terms += std::abs(d_o(row, left + c)) * std::abs(sum);
        }
        for (std::size_t m = 0; m < keys.size(); ++m) {
          const double dz = p[m] * (dp[m] - delta) * scale;
          const double error =
              p[m] * scale *
              ((weight_error + (static_cast<double>(d) + n + 8) * u) * 2 * (dp_terms[m] + delta_terms) +
               rounding * (std::abs(dp[m]) + std::abs(delta) + 2 * delta_terms + output_terms));
          for (Index c = 0; c < d; ++c) {
            const double x = k(keys[m], right + c), a = q(row, left + c), e = d_o(row, left + c);
            r.dq(row, left + c) += dz * x;
            r.dq_bound(row, left + c) +=
                (error + (n + 3) * u * std::abs(dz) + 2 * rounding * std::abs(dz)) * std::abs(x);
            const double many = static_cast<double>(s.time * s.group());
            r.dk(keys[m], right + c) += dz * a;
            r.dk_bound(keys[m], right + c) +=
                (error + (many + 3) * u * std::abs(dz) + 2 * rounding * std::abs(dz)) * std::abs(a);
            r.dv(keys[m], right + c) += p[m] * e;
            r.dv_bound(keys[m], right + c) += (weight_error + (many + 2) * u + 2 * rounding) * p[m] * std::abs(e);
          }
        }
        const double null = std::exp(sink - lse);
        r.ds(0, h) -= null * delta;
        r.ds_bound(0, h) += null * ((weight_error + (static_cast<double>(d) + n + 200) * u) * 2 * delta_terms +
                                    rounding * (output_terms + 2 * delta_terms));
      }
  return r;
}

template <class T, class Normalizer, class Mask>
void check_attention(const Normalizer& normalizer, const Mask& mask, const AttentionShape& s, double sink = 0,
                     double scale_q = 1, Index margin = 8) {
  using C = cuda::Compute<T>;
  const double u = roundoff<C>(), v = std::is_same_v<T, C> ? 0 : roundoff<T>();
  on_device([&](cuda::Context& context) {
    const Index width = s.heads * s.head_size, key_width = s.key_value_heads * s.head_size;
    // q, k and v side by side, as a model has them.
    DeviceMatrix<T> qkv(context, s.tokens(), width + 2 * key_width, margin, 1, scale_q),
        dqkv(context, s.tokens(), width + 2 * key_width, margin), o(context, s.tokens(), width, margin),
        d_o(context, s.tokens(), width, margin, 2), theta(context, 1, s.heads);
    DeviceMatrix<C> lse(context, s.tokens(), s.heads, 1), dtheta(context, 1, s.heads, 0, 3);
    std::vector<double> sinks(oracle::at(s.heads), normalizer.null_logit());
    if constexpr (Normalizer::parameters_per_head > 0) {
      oracle::Matrix values(1, s.heads);
      for (Index h = 0; h < s.heads; ++h) values(0, h) = sink + 0.25 * static_cast<double>(h);
      theta.set(values);
      sinks = theta.values().data;
    }
    const auto parts = [&](DeviceMatrix<T>& x, Index i) {
      return i == 0 ? x.view().col_range(0, width) : x.view().col_range(width + (i - 1) * key_width, key_width);
    };
    const auto columns = [&](const oracle::Matrix& x, Index first, Index count) {
      oracle::Matrix m(x.rows, count);
      for (Index i = 0; i < x.rows; ++i)
        for (Index j = 0; j < count; ++j) m(i, j) = x(i, first + j);
      return m;
    };
    const oracle::Matrix all = qkv.values(), before = dtheta.values();
    const Reference r =
        reference(s, cuda::mask_range(mask, s.time), sinks, columns(all, 0, width), columns(all, width, key_width),
                  columns(all, width + key_width, key_width), d_o.values(), u, v);
    cuda::attention_forward<Normalizer, Mask, T>(context, normalizer, mask, s, theta.data(), parts(qkv, 0),
                                                 parts(qkv, 1), parts(qkv, 2), o.view(), lse.view());
    cuda::attention_backward<Normalizer, Mask, T>(
        context, normalizer, mask, s, theta.data(), parts(qkv, 0), parts(qkv, 1), parts(qkv, 2), o.constant(),
        lse.view(), d_o.constant(), parts(dqkv, 0), parts(dqkv, 1), parts(dqkv, 2), dtheta.data(), Accumulate::yes);
    // Weights below the smallest normal number are lost.
    const auto of = [](const oracle::Matrix& bound) { return [&](Index i, Index j) { return bound(i, j) + 1e-34; }; };
    check_matrix("o", o.values(), r.o, of(r.o_bound));
    check_matrix("lse", lse.values(), r.lse, of(r.lse_bound));
    const oracle::Matrix slopes = dqkv.values();
    check_matrix("dq", columns(slopes, 0, width), r.dq, of(r.dq_bound));
    check_matrix("dk", columns(slopes, width, key_width), r.dk, of(r.dk_bound));
    check_matrix("dv", columns(slopes, width + key_width, key_width), r.dv, of(r.dv_bound));
    if constexpr (Normalizer::parameters_per_head > 0) {
      const oracle::Matrix ds = dtheta.values();
      for (Index h = 0; h < s.heads; ++h)
        MESO_CHECK_WITHIN(ds(0, h), before(0, h) + r.ds(0, h), r.ds_bound(0, h) + 4 * u * std::abs(before(0, h)));
    }
    MESO_CHECK(o.intact() && dqkv.intact() && lse.intact() && dtheta.intact());
  });
}

template <class T>
void check_masks() {
  const AttentionShape two_groups{2, 71, 4, 2, 32, 80};
  check_attention<T>(cuda::Softmax1{}, Causal{}, two_groups);
  check_attention<T>(cuda::Softmax{}, Bidirectional{}, AttentionShape{1, 65, 2, 1, 32, 80});
  check_attention<T>(cuda::SoftmaxN{2.5}, SlidingWindow{5}, AttentionShape{1, 97, 1, 1, 32, 97});
  check_attention<T>(cuda::LearnedSink{}, Causal{}, AttentionShape{1, 33, 2, 2, 32, 33}, -1);
  check_attention<T>(cuda::Softmax1{}, Causal{}, AttentionShape{1, 1, 1, 1, 32, 1});
  check_attention<T>(cuda::Softmax1{}, Causal{}, AttentionShape{1, 19, 1, 1, 32, 19}, 0, 1, 3);  // unaligned
}

template <class T>
void check_head_sizes() {
  for (const Index d : {Index{64}, Index{96}, Index{128}})
    check_attention<T>(cuda::Softmax1{}, Causal{}, AttentionShape{1, 70, 2, 1, d, 70});
}

}  // namespace

MESO_TEST_SUITE(cuda_attention)

MESO_TEST(masks_and_groups_float) { check_masks<float>(); }
MESO_TEST(masks_and_groups_double) { check_masks<double>(); }
MESO_TEST(masks_and_groups_bf16) { check_masks<bf16>(); }
MESO_TEST(head_sizes_float) { check_head_sizes<float>(); }
MESO_TEST(head_sizes_double) { check_head_sizes<double>(); }
MESO_TEST(head_sizes_bf16) { check_head_sizes<bf16>(); }

MESO_TEST(extreme_sinks_and_scores) {
  const AttentionShape s{1, 35, 2, 2, 32, 35};
  for (const double sink : {1e4, -1e4}) {
    check_attention<float>(cuda::LearnedSink{}, Causal{}, s, sink);
    check_attention<bf16>(cuda::LearnedSink{}, Causal{}, s, sink);
  }
  check_attention<float>(cuda::Softmax1{}, Causal{}, s, 0, 30);
}

/// o, lse, dq, dk, dv, ds of one call.
template <class T>
struct Call {
  AttentionShape shape;
  oracle::Matrix q, k, v, d_o, theta, o, lse, dq, dk, dv, ds;

  explicit Call(cuda::Context& context, const AttentionShape& s) : shape(s), theta(1, s.heads) {
    const Index width = s.heads * s.head_size, key_width = s.key_value_heads * s.head_size;
    q = DeviceMatrix<T>(context, s.tokens(), width, 0, 1).values();
    k = DeviceMatrix<T>(context, s.tokens(), key_width, 0, 2).values();
    v = DeviceMatrix<T>(context, s.tokens(), key_width, 0, 3).values();
    d_o = DeviceMatrix<T>(context, s.tokens(), width, 0, 4).values();
  }
  template <class Mask>
  Call& run(cuda::Context& context, const Mask& mask) {
    using C = cuda::Compute<T>;
    using N = cuda::LearnedSink;
    const auto on = [&](const oracle::Matrix& x) {
      DeviceMatrix<T> m(context, x.rows, x.cols);
      m.set(x);
      return m;
    };
    DeviceMatrix<T> q_(on(q)), k_(on(k)), v_(on(v)), d_o_(on(d_o)), theta_(on(theta)), o_(on(q)), dq_(on(q)),
        dk_(on(k)), dv_(on(v));
    DeviceMatrix<C> lse_(context, q.rows, shape.heads), ds_(context, 1, shape.heads);
    cuda::attention_forward<N, Mask, T>(context, {}, mask, shape, theta_.data(), q_.constant(), k_.constant(),
                                        v_.constant(), o_.view(), lse_.view());
    cuda::attention_backward<N, Mask, T>(context, {}, mask, shape, theta_.data(), q_.constant(), k_.constant(),
                                         v_.constant(), o_.constant(), lse_.view(), d_o_.constant(), dq_.view(),
                                         dk_.view(), dv_.view(), ds_.data(), Accumulate::no);
    o = o_.values(), lse = lse_.values(), dq = dq_.values(), dk = dk_.values(), dv = dv_.values(), ds = ds_.values();
    return *this;
  }
};

// The limit of s → +∞: the head attends to nothing and gets no gradient.
template <class T>
void check_infinite_sink() {
  on_device([](cuda::Context& context) {
    const AttentionShape s{1, 71, 2, 2, 32, 71};
    Call<T> finite(context, s), x(context, s);
    x.theta(0, 0) = std::numeric_limits<double>::infinity();
    finite.run(context, Causal{}), x.run(context, Causal{});
    MESO_CHECK(x.ds(0, 0) == 0 && x.ds(0, 1) == finite.ds(0, 1));
    for (Index i = 0; i < 71; ++i) {
      MESO_CHECK(x.lse(i, 0) == std::numeric_limits<double>::infinity() && x.lse(i, 1) == finite.lse(i, 1));
      for (Index c = 0; c < 32; ++c) {
        MESO_CHECK(x.o(i, c) == 0 && x.dq(i, c) == 0 && x.dk(i, c) == 0 && x.dv(i, c) == 0);
        MESO_CHECK(x.o(i, 32 + c) == finite.o(i, 32 + c) && x.dk(i, 32 + c) == finite.dk(i, 32 + c));
      }
    }
  });
}
MESO_TEST(a_sink_of_infinity) {
  check_infinite_sink<float>();
  check_infinite_sink<bf16>();
}

// Bit for bit: what a query does not see is as if it were finite.
template <class T, class Mask>
void check_not_finite(const Mask& mask, Index time, Index d) {
  on_device([&](cuda::Context& context) {
    const AttentionShape s{1, time, 2, 1, d, time};
    const Call<T> base = Call<T>(context, s).run(context, mask);
    const auto sees = [&](Index query, Index key) {
      const KeyRange range = mask.visible(query, time);
      return key >= range.first && key < range.first + range.count;
    };
    const auto same = [&](const oracle::Matrix& a, const oracle::Matrix& b, Index row) {
      return a.row(row) == b.row(row);
    };
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()})
      for (oracle::Matrix Call<T>::*operand : {&Call<T>::q, &Call<T>::k, &Call<T>::v, &Call<T>::d_o})
        for (const Index at : {Index{5}, time - 2}) {
          Call<T> x = base;
          (x.*operand)(at, d - 1) = bad;
          x.run(context, mask);
          const bool of_a_key = operand == &Call<T>::k || operand == &Call<T>::v;
          const auto query_meets = [&](Index i) { return of_a_key ? sees(i, at) : i == at; };
          bool kept = true, reached = true;
          for (Index i = 0; i < time; ++i) {
            bool key_meets = false;
            for (Index j = 0; j < time; ++j) key_meets = key_meets || (query_meets(j) && sees(j, i));
            if (!query_meets(i)) kept = kept && same(x.o, base.o, i) && same(x.dq, base.dq, i);
            if (!key_meets) kept = kept && same(x.dk, base.dk, i) && same(x.dv, base.dv, i);
            if (operand == &Call<T>::v && query_meets(i)) reached = reached && !std::isfinite(x.o(i, d - 1));
            if (operand == &Call<T>::d_o && key_meets) reached = reached && !std::isfinite(x.dv(i, d - 1));
          }
          MESO_CHECK_MESSAGE(kept, "row " + std::to_string(at) + " changed another");
          MESO_CHECK_MESSAGE(reached, "row " + std::to_string(at) + " was lost");
        }
  });
}
MESO_TEST(what_is_not_finite_keeps_to_the_mask_float) {
  check_not_finite<float>(Causal{}, 71, 32);
  check_not_finite<float>(SlidingWindow{5}, 40, 96);
}
MESO_TEST(what_is_not_finite_keeps_to_the_mask_double) { check_not_finite<double>(SlidingWindow{40}, 71, 32); }
MESO_TEST(what_is_not_finite_keeps_to_the_mask_bf16) {
  check_not_finite<bf16>(Causal{}, 71, 32);
  check_not_finite<bf16>(SlidingWindow{5}, 40, 96);
}

MESO_TEST(rows_of_dz_sum_to_null_mass_times_delta) {
  // With k = 1 in channel 0, dq's channel 0 is Σ_j dz_j/√d. A backward pass that took softmax's row sums of 0 for granted
  // would fail; so would one that forgot the null term in lse.
  on_device([](cuda::Context& context) {
    const Index time = 40, d = 32;
    const AttentionShape s{1, time, 1, 1, d, time};
    DeviceMatrix<double> q(context, time, d, 0, 1), k(context, time, d, 0, 2), v(context, time, d, 0, 3),
        d_o(context, time, d, 0, 4), o(context, time, d), lse(context, time, 1), dq(context, time, d),
        dk(context, time, d), dv(context, time, d);
    oracle::Matrix keys = k.values();
    for (Index j = 0; j < time; ++j) keys(j, 0) = 1;
    k.set(keys);
    cuda::attention_forward<cuda::Softmax1, Causal, double>(context, {}, {}, s, nullptr, q.constant(), k.constant(),
                                                            v.constant(), o.view(), lse.view());
    cuda::attention_backward<cuda::Softmax1, Causal, double>(context, {}, {}, s, nullptr, q.constant(), k.constant(),
                                                             v.constant(), o.constant(), lse.view(), d_o.constant(),
                                                             dq.view(), dk.view(), dv.view(), nullptr, Accumulate::no);
    const oracle::Matrix out = o.values(), slopes = d_o.values(), logs = lse.values(), dqs = dq.values();
    for (Index i = 0; i < time; ++i) {
      double delta = 0;
      for (Index c = 0; c < d; ++c) delta += out(i, c) * slopes(i, c);
      const double expected = std::exp(-logs(i, 0)) * delta / std::sqrt(static_cast<double>(d));
      MESO_CHECK_WITHIN(dqs(i, 0), expected, 1e-13);
      MESO_CHECK(std::abs(expected) > 1e-8);
    }
    // softmax's own gradients, fed o and lse of softmax-1, are softmax-1's.
    DeviceMatrix<double> again(context, time, d);
    cuda::attention_backward<cuda::Softmax, Causal, double>(
        context, {}, {}, s, nullptr, q.constant(), k.constant(), v.constant(), o.constant(), lse.view(), d_o.constant(),
        again.view(), dk.view(), dv.view(), nullptr, Accumulate::no);
    MESO_CHECK(again.values().data == dqs.data);
  });
}

template <class T>
void check_minus_infinity() {
  on_device([](cuda::Context& context) {
    const double infinity = std::numeric_limits<double>::infinity();
    const Index time = 12, d = 32;
    const AttentionShape s{1, time, 1, 1, d, time};
    DeviceMatrix<T> q(context, time, d, 0, 1), k(context, time, d, 0, 2), v(context, time, d, 0, 3),
        o(context, time, d);
    DeviceMatrix<cuda::Compute<T>> lse(context, time, 1);
    oracle::Matrix queries = q.values(), keys = k.values(), rest = keys;
    for (Index i = 0; i < time; ++i) queries(i, 0) = 1;
    for (const Index j : {Index{0}, Index{1}, Index{7}}) keys(j, 0) = -infinity;  // scores of −∞
    q.set(queries);
    k.set(keys);
    for (const bool null : {false, true}) {
      const auto run = [&](const auto& normalizer) {
        using N = std::remove_cvref_t<decltype(normalizer)>;
        cuda::attention_forward<N, Causal, T>(context, normalizer, {}, s, nullptr, q.constant(), k.constant(),
                                              v.constant(), o.view(), lse.view());
      };
      if (null)
        run(cuda::Softmax1{});
      else
        run(cuda::Softmax{});
      const oracle::Matrix out = o.values(), values = v.values(), logs = lse.values();
      for (Index c = 0; c < d; ++c) {
        MESO_CHECK(out(0, c) == 0 && out(1, c) == 0);  // they see keys of weight 0 alone
        if (!null) MESO_CHECK_WITHIN(out(2, c), values(2, c), 0.01 * std::abs(values(2, c)));
      }
      MESO_CHECK(logs(0, 0) == (null ? 0 : -infinity));
      for (const double x : out.data) MESO_CHECK(std::isfinite(x));
    }
  });
}
MESO_TEST(scores_of_minus_infinity) {
  check_minus_infinity<float>();
  check_minus_infinity<bf16>();
}

MESO_TEST(other_head_sizes_and_missing_parameters_are_refused) {
  on_device([](cuda::Context& context) {
    DeviceMatrix<float> x(context, 4, 40), lse(context, 4, 1);
    const AttentionShape s{1, 4, 1, 1, 40, 4};
    std::string text;
    try {
      cuda::attention_forward<cuda::Softmax1, Causal, float>(context, {}, {}, s, nullptr, x.constant(), x.constant(),
                                                             x.constant(), x.view(), lse.view());
    } catch (const std::invalid_argument& e) {
      text = e.what();
    }
    MESO_CHECK(text == "attention_forward: the head size is 40, expected 32, 64, 96 or 128");
    MESO_CHECK_THROWS((cuda::attention_forward<cuda::LearnedSink, Causal, float>(
                          context, {}, {}, s, nullptr, x.constant(), x.constant(), x.constant(), x.view(), lse.view())),
                      std::invalid_argument);
  });
}

MESO_TEST_SUITE_END()
