#include <boost/test/unit_test.hpp>
#include <meso/attention/position.hpp>
#include <meso/layer/cross_entropy.hpp>
#include <meso/layer/embedding.hpp>
#include <meso/layer/linear.hpp>
#include <string>
#include <vector>

#include "studies.hpp"
#include "support/oracle_layer.hpp"

namespace meso::test {

namespace {

/// x against exact + before, element by element: bound·(magnitude + |before|).
template <class S>
void compare(Comparison& to, Window<S>& x, const oracle::Product& exact, const oracle::Matrix& before, double bound) {
  for (Index i = 0; i < x.rows; ++i)
    for (Index j = 0; j < x.cols; ++j) {
      const double scale = exact.magnitude(i, j) + std::abs(before(i, j));
      to.add(static_cast<double>(x(i, j)), exact.value(i, j) + before(i, j), bound * scale, scale);
    }
  to.require(x.intact(), "written outside the window");
}

/// What column_sums and norm_backward add up: the rows of a tile, and the tiles.
double tile_terms(Index rows, Index cols) {
  const RowTiles tiles = RowTiles::of(rows, cols);
  return static_cast<double>((std::min)(tiles.tile_rows, rows) + tiles.count());
}

template <class S>
Study linear() {
  const std::string range = "N(0, 1), ≤ 40³, now and then 300 tokens; with and without a bias, written and added";
  return {"linear",
          range,
          {{"linear_forward y", "(in + 3)(\\|x\\|\\|w\\|ᵀ + \\|bias\\|)", in_scalar<S>},
           {"linear_backward dx", "(out + 2)\\|dy\\|\\|w\\|", in_scalar<S>},
           {"linear_backward dw", "(tokens + 3)\\|dy\\|ᵀ\\|x\\|", in_scalar<S>},
           {"column_sums, dbias", "(rows of a tile + tiles)·Σ\\|dy\\|", in_scalar<S>}},
          [](Draw& draw, std::vector<Comparison>& to) {
            const Index tokens = draw.size("tokens", 0, draw.chance(0.1) ? 300 : 40);
            const Index in = draw.size("in", 0, 40), out = draw.size("out", 0, draw.chance(0.1) ? 600 : 40);
            const bool bias = draw.note("bias", draw.chance(0.5)), add = draw.note("add", draw.chance(0.5));
            const bool skip = draw.note("skip_dx", draw.chance(0.2));
            const Window<S> x = draw.normals<S>(tokens, in), w = draw.normals<S>(out, in),
                            dy = draw.normals<S>(tokens, out);
            Window<S> y = draw.window<S>(tokens, out), dx = draw.window<S>(tokens, in), dw = draw.normals<S>(out, in),
                      b = draw.normals<S>(1, out), db = draw.normals<S>(1, out);
            const oracle::Matrix none_w(out, in), none_b(1, out), start_w = dw.values(), start_b = db.values();
            CpuContext<> context(static_cast<int>(draw.between(1, 3)));
            linear_forward(context, x.view(), w.view(), bias ? b.view().data : nullptr, y.view());
            linear_backward(context, x.view(), w.view(), dy.view(), skip ? View<S>{} : dx.view(), dw.view(),
                            bias ? db.view().data : nullptr, add ? Accumulate::yes : Accumulate::no);
            oracle::Product exact = oracle::product(x.values(), false, w.values(), true);
            oracle::Matrix start(tokens, out);
            for (Index i = 0; i < tokens; ++i)
              for (Index j = 0; j < out; ++j) start(i, j) = bias ? static_cast<double>(b(0, j)) : 0.0;
            compare(to[0], y, exact, start, static_cast<double>(in + 3));
            if (!skip && dx.storage.size() > 0)
              compare(to[1], dx, oracle::product(dy.values(), false, w.values(), false), oracle::Matrix(tokens, in),
                      static_cast<double>(out + 2));
            compare(to[2], dw, oracle::product(dy.values(), true, x.values(), false), add ? start_w : none_w,
                    static_cast<double>(tokens + 3));
            if (bias)
              compare(to[3], db, oracle::column_sums(dy.values()), add ? start_b : none_b,
                      tile_terms(tokens, out) + (add ? 1 : 0));
          }};
}

template <class S>
Study embedding() {
  return {"embedding",
          "N(0, 1), ≤ 12 sequences of ≤ 9 tokens, width ≤ 150, vocabulary ≤ 12",
          {{"embedding_forward y", "0, with positions \\|y\\|", in_scalar<S>},
           {"embedding_backward dtable", "m·Σ\\|dy\\|, m tokens a row", in_scalar<S>},
           {"position_backward", "sequences·Σ\\|dy\\|", in_scalar<S>}},
          [](Draw& draw, std::vector<Comparison>& to) {
            const Index sequences = draw.size("sequences", 0, 12), time = draw.size("time", 1, 9);
            const Index width = draw.size("width", 0, 150), vocabulary = draw.size("vocabulary", 1, 12);
            const bool with = draw.note("positions", draw.chance(0.5)), add = draw.note("add", draw.chance(0.5));
            const Index count = sequences * time;
            std::vector<Token> tokens;
            for (Index i = 0; i < count; ++i) tokens.push_back(static_cast<Token>(draw.between(0, vocabulary - 1)));
            const Window<S> table = draw.normals<S>(vocabulary, width),
                            positions = draw.normals<S>(time + draw.between(0, 2), width),
                            dy = draw.normals<S>(count, width);
            Window<S> y = draw.window<S>(count, width), dtable = draw.normals<S>(vocabulary, width),
                      dpositions = draw.normals<S>(positions.rows, width);
            const bool use = with && positions.storage.size() > 0;
            const oracle::Matrix start = dtable.values(), start_p = dpositions.values();
            CpuContext<> context(static_cast<int>(draw.between(1, 3)));
            const Accumulate accumulate = add ? Accumulate::yes : Accumulate::no;
            embedding_forward(context, tokens, time, table.view(), use ? positions.view() : View<const S>{}, y.view());
            embedding_backward(context, tokens, dy.view(), dtable.view(), accumulate);
            position_backward(context, time, dy.view(), dpositions.view(), accumulate);

            std::vector<Index> uses(oracle::at(vocabulary), 0);
            for (Index i = 0; i < count; ++i) {
              const Index token = tokens[oracle::at(i)];
              ++uses[oracle::at(token)];
              for (Index j = 0; j < width; ++j) {
                const double exact = table(token, j) + (use ? positions(i % time, j) : 0.0);
                to[0].add(static_cast<double>(y(i, j)), exact, use ? std::abs(exact) : 0.0, std::abs(exact));
              }
            }
            to[0].require(y.intact(), "written outside the window");
            const auto sums = [&](Comparison& c, Window<S>& actual, const oracle::Product& exact,
                                  const oracle::Matrix& before, auto&& terms) {
              for (Index i = 0; i < actual.rows; ++i)
                for (Index j = 0; j < width; ++j) {
                  const double first = add ? before(i, j) : 0.0, scale = exact.magnitude(i, j) + std::abs(first);
                  c.add(static_cast<double>(actual(i, j)), exact.value(i, j) + first, terms(i) * scale, scale);
                }
              c.require(actual.intact(), "written outside the window");
            };
            sums(to[1], dtable,
                 oracle::sums_by(dy.values(), vocabulary, [&](Index i) { return Index{tokens[oracle::at(i)]}; }), start,
                 [&](Index i) { return static_cast<double>(uses[oracle::at(i)]); });
            sums(to[2], dpositions, oracle::sums_by(dy.values(), positions.rows, [&](Index i) { return i % time; }),
                 start_p, [&](Index) { return static_cast<double>(sequences); });
          }};
}

template <class S>
Study cross_entropies() {
  return {"cross_entropy",
          "≤ 30 × 300 logits N(0, σ²), σ ≤ 12; targets ignored, gradient scaled, in place",
          {{"cross_entropy loss of a row", "1.4·V + 8 + max x − x_target", in_scalar<S>},
           {"cross_entropy dlogits", "p(1.4·V + 10 + max x − x), at the target + 2\\|p − 1\\|", in_scalar<S>}},
          [](Draw& draw, std::vector<Comparison>& to) {
            const Index rows = draw.size("rows", 0, 30), vocabulary = draw.size("vocabulary", 0, 300);
            const bool in_place = draw.note("in_place", draw.chance(0.3)), only = draw.chance(0.2);
            const double gradient_scale = draw.note("gradient_scale", draw.chance(0.5) ? 1.0 : draw.uniform(0.1, 2));
            std::vector<Token> targets;
            for (Index i = 0; i < rows; ++i)
              targets.push_back(vocabulary == 0 || draw.chance(0.2)
                                    ? ignored_target
                                    : static_cast<Token>(draw.between(0, vocabulary - 1)));
            Window<S> x =
                draw.normals<S>(rows, vocabulary, draw.note("scale", draw.log_uniform(0.1, 12)), draw.uniform(-20, 20));
            const oracle::Matrix logits = x.values();
            const oracle::CrossEntropy exact = oracle::cross_entropy(logits, targets);
            Window<S> other = draw.window<S>(rows, vocabulary);
            Window<S>& dx = in_place ? x : other;
            CpuContext<> context(static_cast<int>(draw.between(1, 3)));
            const double count = static_cast<double>(exact.count);

            double sum = 0, bound = 0;
            for (Index i = 0; i < rows; ++i) {
              if (targets[oracle::at(i)] < 0) continue;
              double top = logits(i, 0);
              for (Index j = 1; j < vocabulary; ++j) top = std::max<double>(top, logits(i, j));
              const double row = 1.4 * static_cast<double>(vocabulary) + 8 + top - logits(i, targets[oracle::at(i)]);
              // One row by itself, without a gradient, then all of them.
              const LossSum alone = cross_entropy<PackedProducts, S>(
                  context, x.constant().row_range(i, 1), std::span<const Token>(targets).subspan(oracle::at(i), 1), {});
              to[0].add(alone.sum, exact.loss[oracle::at(i)], row, 1);
              sum += exact.loss[oracle::at(i)];
              bound += row + 1;
            }
            const LossSum loss =
                only ? cross_entropy<PackedProducts, S>(context, x.constant(), targets, {})
                     : cross_entropy<PackedProducts, S>(context, x.constant(), targets, dx.view(), gradient_scale);
            to[0].require(loss.count == exact.count, "count of targets");
            to[0].add(loss.sum, sum, bound, std::max<double>(1, count));
            if (only || dx.storage.size() == 0) return;
            for (Index i = 0; i < rows; ++i) {
              double top = vocabulary > 0 ? logits(i, 0) : 0;
              for (Index j = 1; j < vocabulary; ++j) top = std::max<double>(top, logits(i, j));
              for (Index j = 0; j < vocabulary; ++j) {
                if (targets[oracle::at(i)] < 0) {
                  to[1].add_exact(static_cast<double>(dx(i, j)), 0);
                  continue;
                }
                const bool target = j == targets[oracle::at(i)];
                const double p = exact.softmax(i, j), scale = gradient_scale / count;
                const double relative = 1.4 * static_cast<double>(vocabulary) + 10 + top - logits(i, j);
                to[1].add(static_cast<double>(dx(i, j)), scale * (p - (target ? 1 : 0)),
                          scale * (p * relative + (target ? 2 * std::abs(p - 1) : 0)), scale * (p + (target ? 1 : 0)));
              }
            }
            to[1].require(dx.intact(), "written outside the window");
          }};
}

template <class S>
Study rotary() {
  return {"Rotary",
          "N(0, 1), head size ≤ 64, positions ≤ 4096, base 10⁴ or 5·10⁵",
          {{"Rotary rotate", "3(\\|x_i cos\\| + \\|x_j sin\\|) and (log base + 3)·angle·2⁻⁵³(\\|x_i\\| + \\|x_j\\|)",
            in_scalar<S>},
           {"Rotary rotate_back",
            "3(\\|x_i cos\\| + \\|x_j sin\\|) and (log base + 3)·angle·2⁻⁵³(\\|x_i\\| + \\|x_j\\|)", in_scalar<S>}},
          [](Draw& draw, std::vector<Comparison>& to) {
            const Index half = draw.size("half", 0, 32), position = draw.note("position", draw.between(0, 4096));
            const Rotary policy{.base = draw.chance(0.5) ? 1e4 : 5e5};
            draw.note("base", policy.base);
            const Window<S> x = draw.normals<S>(1, 2 * half);
            Window<S> table = draw.window<S>(1, policy.table_size(2 * half));
            policy.fill(position, 2 * half, row_array(table.view(), 0));
            const oracle::Vector in = x.values().row(0);
            for (const int sense : {1, -1}) {
              Window<S> y = x;
              if (sense > 0)
                policy.rotate(row_array(table.constant(), 0), row_array(y.view(), 0));
              else
                policy.rotate_back(row_array(table.constant(), 0), row_array(y.view(), 0));
              const oracle::Turned exact = oracle::rotary(in, position, policy.base, sense);
              Comparison& c = to[sense > 0 ? 0 : 1];
              for (Index i = 0; i < 2 * half; ++i) {
                const std::size_t a = oracle::at(i), b = oracle::at((i + half) % (2 * half));
                const double angle = (std::log(policy.base) + 3) * exact.angle[a] * 0x1p-53;
                c.add(static_cast<double>(y(0, i)), exact.value[a],
                      3 * exact.magnitude[a] + angle / unit_roundoff<S> * (std::abs(in[a]) + std::abs(in[b])),
                      std::abs(in[a]) + std::abs(in[b]));
              }
              c.require(y.intact() && table.intact(), "written outside the window");
            }
          }};
}

}  // namespace

template <class S>
std::vector<Study> layer_studies() {
  return {linear<S>(), embedding<S>(), cross_entropies<S>(), rotary<S>()};
}
MESO_TEST_STUDIES(layer_studies);

}  // namespace meso::test
