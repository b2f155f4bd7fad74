// Attention, and what softmax-1 costs over softmax.
#include "tests/cuda/attention_instances.hpp"
#include "tests/cuda/gpu/table.hpp"

namespace meso::table {
namespace {

namespace oracle = test::oracle;

/// o, or dq, dk and dv one after the other, of causal attention in double.
oracle::Vector reference(const AttentionShape& s, double null, const Matrix& q, const Matrix& k, const Matrix& v,
                         const Matrix& d_o, bool backward) {
  Matrix o(q.rows, q.cols), dq = o, dk = o, dv = o;
  const double scale = 1 / std::sqrt(static_cast<double>(s.head_size));
  for (Index b = 0; b < s.batch; ++b)
    for (Index h = 0; h < s.heads; ++h)
      for (Index i = 0; i < s.time; ++i) {
        const Index row = b * s.time + i, first = h * s.head_size;
        oracle::Vector z, dp;
        for (Index j = 0; j <= i; ++j) {
          double score = 0, slope = 0;
          for (Index c = first; c < first + s.head_size; ++c) {
            score += q(row, c) * k(b * s.time + j, c) * scale;
            slope += d_o(row, c) * v(b * s.time + j, c);
          }
          z.push_back(score);
          dp.push_back(slope);
        }
        const oracle::Vector p = oracle::null_logit(z, null);
        double delta = 0;
        for (std::size_t j = 0; j < p.size(); ++j) delta += p[j] * dp[j];
        for (Index j = 0; j <= i; ++j) {
          const double w = p[at(j)], dz = w * (dp[at(j)] - delta) * scale;
          for (Index c = first; c < first + s.head_size; ++c) {
            o(row, c) += w * v(b * s.time + j, c);
            dq(row, c) += dz * k(b * s.time + j, c);
            dk(b * s.time + j, c) += dz * q(row, c);
            dv(b * s.time + j, c) += w * d_o(row, c);
          }
        }
      }
  if (!backward) return o.data;
  oracle::Vector all = dq.data;
  all.insert(all.end(), dk.data.begin(), dk.data.end());
  all.insert(all.end(), dv.data.begin(), dv.data.end());
  return all;
}

template <class Normalizer, class T>
Op attention(Table& table, Index rows, Index head_size, bool backward) {
  cuda::Context& context = table.context;
  const Index width = table.sizes.width, heads = width / head_size;
  const Index time = rows > table.sizes.checked ? table.sizes.time : rows;
  const AttentionShape s{rows / time, time, heads, heads, head_size, time};
  const Array<T> q(context, rows, width, 1), k(context, rows, width, 2), v(context, rows, width, 3),
      o(context, rows, width), d_o(context, rows, width, 4), dq(context, rows, width), dk(context, rows, width),
      dv(context, rows, width);
  const Array<cuda::Compute<T>> lse(context, rows, heads);
  const auto forward = [=, &context] {
    cuda::attention_forward<Normalizer, Causal, T>(context, {}, {}, s, nullptr, q.constant(), k.constant(),
                                                   v.constant(), o.view(), lse.view());
  };
  const auto back = [=, &context] {
    cuda::attention_backward<Normalizer, Causal, T>(context, {}, {}, s, nullptr, q.constant(), k.constant(),
                                                    v.constant(), o.constant(), lse.view(), d_o.constant(), dq.view(),
                                                    dk.view(), dv.view(), nullptr, Accumulate::no);
  };
  forward();
  // Causal: half of 2 products forward, of 5 backward.
  const double flops = (backward ? 5.0 : 2.0) * static_cast<double>(rows * time * width);
  return Op{backward ? std::function<void()>(back) : std::function<void()>(forward),
            [=] {
              oracle::Vector actual = backward ? dq.values().data : o.values().data;
              if (backward)
                for (const Matrix& m : {dk.values(), dv.values()})
                  actual.insert(actual.end(), m.data.begin(), m.data.end());
              return largest_error(actual, reference(s, std::exp(Normalizer{}.null_logit()), q.values(), k.values(),
                                                     v.values(), d_o.values(), backward));
            },
            0, flops};
}

}  // namespace

void attention_rows(Table& table) {
  for (const Index d : {Index{64}, Index{128}})
    for (const bool backward : {false, true}) {
      const std::string name = std::string(backward ? "attention_backward " : "attention_forward ") + std::to_string(d);
      table.line(name + " softmax-1", "float", 1e-4, table.float_rate,
                 [&](Index rows) { return attention<cuda::Softmax1, float>(table, rows, d, backward); });
      const double one = table.line(name + " softmax-1", "bf16", 0.05, table.bf16_rate, [&](Index rows) {
        return attention<cuda::Softmax1, bf16>(table, rows, d, backward);
      });
      const double plain = table.line(name + " softmax", "bf16", 0.05, table.bf16_rate, [&](Index rows) {
        return attention<cuda::Softmax, bf16>(table, rows, d, backward);
      });
      std::printf("%-32s %-5s %21.3f times softmax\n", (name + " softmax-1").c_str(), "bf16", one / plain);
    }
}

}  // namespace meso::table
