#include <boost/test/unit_test.hpp>
#include <meso/attention.hpp>
#include <meso/normalizer.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "rows.hpp"
#include "studies.hpp"
#include "support/oracle_attention.hpp"

namespace meso::test {

namespace {

using oracle::Vector;

/// One of the library's masks, chosen at run time so that each normalizer is compiled once.
struct AnyMask {
  int kind = 0;
  Index window = 1;

  KeyRange visible(Index query, Index keys) const {
    return kind == 0   ? Causal{}.visible(query, keys)
           : kind == 1 ? Bidirectional{}.visible(query, keys)
                       : SlidingWindow{window}.visible(query, keys);
  }
  /// The definition.
  bool sees(Index query, Index key) const { return kind == 1 || (key <= query && (kind == 0 || key > query - window)); }
};

template <class S>
struct Operands {
  AttentionShape shape;
  Window<S> q, k, v, d_o;
};

/// Either N(0, 1) numbers, or quarters with a head size of 1, 4 or 16: then scores and dp are exact.
template <class S>
Operands<S> operands(Draw& draw, bool exact, Index most) {
  const Index batch = draw.size("batch", 0, 2), time = draw.size("time", 0, draw.chance(0.1) ? 70 : most);
  const Index groups = draw.size("groups", 1, 3), heads = groups * draw.size("group", 1, 3);
  const Index size =
      exact ? draw.note("head_size", Index{1} << (2 * draw.between(0, 1))) : draw.size("head_size", 1, 9);
  Operands<S> x{{batch, time, heads, groups, size, time + draw.between(0, 5)}, {}, {}, {}, {}};
  const auto matrix = [&](Index cols) {
    return exact ? draw.quarters<S>(batch * time, cols) : draw.normals<S>(batch * time, cols);
  };
  x.q = matrix(heads * size), x.k = matrix(groups * size), x.v = matrix(groups * size), x.d_o = matrix(heads * size);
  return x;
}

template <class S>
struct Results {
  Window<S> o, dq, dk, dv;
  std::vector<S> dtheta;
};

template <class S, class N, class M>
Results<S> run(Draw& draw, const Operands<S>& x, const N& normalizer, const M& mask, const std::vector<S>& theta) {
  const Index tokens = x.shape.tokens();
  Results<S> r{draw.window<S>(tokens, x.q.cols), draw.window<S>(tokens, x.q.cols), draw.window<S>(tokens, x.k.cols),
               draw.window<S>(tokens, x.k.cols), std::vector<S>(theta.size(), S(-7))};
  CpuContext<> context(static_cast<int>(draw.between(1, 3)));
  attention_forward(context, normalizer, mask, x.shape, theta.data(), x.q.view(), x.k.view(), x.v.view(), r.o.view());
  attention_backward(context, normalizer, mask, x.shape, theta.data(), x.q.view(), x.k.view(), x.v.view(), x.d_o.view(),
                     r.dq.view(), r.dk.view(), r.dv.view(), r.dtheta.data(), Accumulate::no);
  return r;
}

template <class S>
void compare(Comparison& to, const Window<S>& actual, const oracle::AttentionSums& exact, double terms) {
  for (Index i = 0; i < actual.rows; ++i)
    for (Index j = 0; j < actual.cols; ++j)
      if (std::isfinite(exact.error(i, j)))
        to.add(actual(i, j), exact.value(i, j), exact.error(i, j) + terms * exact.magnitude(i, j), exact.terms(i, j));
  to.require(actual.intact(), "written outside the window");
}
template <class S>
void compare(std::vector<Comparison>& to, const Results<S>& r, const oracle::Attention& exact,
             const AttentionShape& shape) {
  const double time = static_cast<double>(shape.time), queries = static_cast<double>(shape.time * shape.group());
  compare(to[0], r.o, exact.o, time + 2);
  compare(to[1], r.dq, exact.dq, time + 3);
  compare(to[2], r.dk, exact.dk, queries + 3);
  compare(to[3], r.dv, exact.dv, queries + 2);
}

template <class S>
std::vector<Quantity> quantities(const std::string& name, const std::string& weights, bool learned) {
  const std::string e = weights;
  std::vector<Quantity> q = {{name + " o", e + "time + 2, of Σp\\|v\\|", in_scalar<S>},
                             {name + " dq", "E_z\\|k\\|/√d + (time + 3)\\|dz\\|\\|k\\|/√d", in_scalar<S>},
                             {name + " dk", "E_zᵀ\\|q\\|/√d + (queries + 3)\\|dz\\|ᵀ\\|q\\|/√d", in_scalar<S>},
                             {name + " dv", e + "queries + 2, of Pᵀ\\|do\\|", in_scalar<S>}};
  if (learned) q.push_back({name + " dθ", "Σ of the rows' + (rows + batch)·Σ\\|terms\\|", in_scalar<S>});
  return q;
}

template <class S, class N>
Study attention(const std::string& name, const N& normalizer, bool exact) {
  constexpr bool learned = N::parameters_per_head > 0;
  return {exact ? name + ", exact scores" : name,
          exact ? "quarters ≤ 2, head size 1 or 4; all masks, groups, ≤ 20 positions, now and then 70"
                : "N(0, 1), head size ≤ 9; all masks, groups, ≤ 20 positions, now and then 70",
          quantities<S>(exact ? name + ", exact scores," : name, exact ? "ε + " : "2ζ + ε + ", learned),
          [normalizer, exact](Draw& draw, std::vector<Comparison>& to) {
            const Operands<S> x = operands<S>(draw, exact, 20);
            const AttentionShape& shape = x.shape;
            const AnyMask mask{static_cast<int>(draw.note("mask", draw.between(0, 2))), draw.size("window", 1, 9)};
            std::vector<S> theta;
            if (learned)
              for (Index h = 0; h < shape.heads; ++h) theta.push_back(static_cast<S>(draw.uniform(-2, 2)));
            const Results<S> r = run(draw, x, normalizer, mask, theta);

            const oracle::AttentionSizes sizes{shape.batch, shape.time, shape.heads, shape.key_value_heads,
                                               shape.head_size};
            const oracle::Matrix q = x.q.values(), k = x.k.values(), v = x.v.values(), d_o = x.d_o.values();
            const double d = static_cast<double>(shape.head_size), scale = N::scaled_scores ? 1 / std::sqrt(d) : 1;
            oracle::Attention sums(q, k);
            Vector dtheta(theta.size(), 0.0), dtheta_bound = dtheta, dtheta_size = dtheta;
            const auto sees = [&](Index i, Index j) { return mask.sees(i, j); };
            oracle::attention_rows(sizes, q, k, v, d_o, scale, sees, [&](const oracle::AttentionRow& row) {
              if (row.keys.empty()) return;
              RowCase one{row.z, row.dp, learned ? static_cast<double>(theta[oracle::at(row.head)]) : 0.0,
                          shape.context, unit_roundoff<S>};
              if (!exact) {
                double largest = 0;
                for (const double m : row.z_magnitude) largest = std::max<double>(largest, m);
                one.score = 2 * (d + 3) * largest;
                for (const double m : row.dp_magnitude) one.slope.push_back((d + 2) * m);
              }
              const RowAnswer a = answer(normalizer, one);
              sums.add(sizes, row, q, k, v, d_o, scale, a.p, a.p_bound, a.dz, a.dz_bound, a.dz_terms);
              if (learned) {
                dtheta[oracle::at(row.head)] += a.dtheta;
                dtheta_bound[oracle::at(row.head)] += a.dtheta_bound;
                dtheta_size[oracle::at(row.head)] += a.dtheta_terms;
              }
            });
            compare(to, r, sums, shape);
            for (std::size_t h = 0; h < theta.size(); ++h)
              to[4].add(static_cast<double>(r.dtheta[h]), dtheta[h],
                        dtheta_bound[h] + static_cast<double>(shape.time + shape.batch) * dtheta_size[h],
                        dtheta_size[h]);
          }};
}

/// The whole matrix of a head at once.
template <class S>
Study sinkhorn() {
  return {"Sinkhorn, exact scores", "quarters ≤ 2, head size 1 or 4; groups, ≤ 9 positions",
          quantities<S>("Sinkhorn, exact scores,", "ε + ", false), [](Draw& draw, std::vector<Comparison>& to) {
            Operands<S> x = operands<S>(draw, true, 9);
            if (x.shape.time > 9) return;
            const Sinkhorn normalizer{.epsilon = 1, .iterations = draw.size("iterations", 1, 4)};
            const Results<S> r = run(draw, x, normalizer, Bidirectional{}, std::vector<S>());
            const AttentionShape& shape = x.shape;
            const oracle::AttentionSizes sizes{shape.batch, shape.time, shape.heads, shape.key_value_heads,
                                               shape.head_size};
            const oracle::Matrix q = x.q.values(), k = x.k.values(), v = x.v.values(), d_o = x.d_o.values();
            const double scale = 1 / std::sqrt(static_cast<double>(shape.head_size));
            const double t = static_cast<double>(normalizer.iterations), n = static_cast<double>(shape.time);
            oracle::Attention sums(q, k);
            std::vector<oracle::AttentionRow> rows;
            oracle::attention_rows(
                sizes, q, k, v, d_o, scale, [](Index, Index) { return true; },
                [&](const oracle::AttentionRow& row) {
                  rows.push_back(row);
                  if (row.query + 1 < shape.time) return;
                  Vector z, dp;
                  for (const oracle::AttentionRow& i : rows) {
                    z.insert(z.end(), i.z.begin(), i.z.end());
                    dp.insert(dp.end(), i.dp.begin(), i.dp.end());
                  }
                  const Vector p = oracle::sinkhorn(z, shape.time, shape.time, 1, normalizer.iterations);
                  const Vector dz = oracle::sinkhorn_backward(z, shape.time, shape.time, 1, normalizer.iterations, dp);
                  double top = 0, sum = 0;
                  for (std::size_t i = 0; i < z.size(); ++i) {
                    top = std::max<double>(top, std::abs(z[i]));
                    sum += p[i] * std::abs(dp[i]);
                  }
                  const double relative = (t + 1) * (4 * top + 2 * n + 24);
                  const double error = std::exp2(t) * (t + 1) * (relative + 2 * n + 3) * sum;
                  for (std::size_t i = 0; i < rows.size(); ++i) {
                    const Index first = static_cast<Index>(i) * shape.time;
                    const auto part = [&](const Vector& whole) {
                      return Vector(whole.begin() + first, whole.begin() + first + shape.time);
                    };
                    Vector p_error = part(p);
                    for (double& e : p_error) e *= relative;
                    sums.add(sizes, rows[i], q, k, v, d_o, scale, part(p), p_error, part(dz),
                             Vector(oracle::at(shape.time), error), Vector(oracle::at(shape.time), sum));
                  }
                  rows.clear();
                });
            compare(to, r, sums, shape);
          }};
}

}  // namespace

template <class S>
std::vector<Study> attention_studies() {
  return {attention<S>("attention, Softmax", Softmax{}, false),
          attention<S>("attention, Softmax1", Softmax1{}, false),
          attention<S>("attention, SoftmaxN", SoftmaxN{.n = 4}, false),
          attention<S>("attention, LearnedSink", LearnedSink{}, false),
          attention<S>("attention, SigmoidAttention", SigmoidAttention{}, true),
          attention<S>("attention, ReluAttention", ReluAttention{}, true),
          attention<S>("attention, Softpick", Softpick{}, true),
          attention<S>("attention, ScalableSoftmax", ScalableSoftmax{}, true),
          attention<S>("attention, Sparsemax", Sparsemax{}, true),
          sinkhorn<S>()};
}
MESO_TEST_STUDIES(attention_studies);

}  // namespace meso::test
