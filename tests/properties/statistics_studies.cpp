#include <boost/test/unit_test.hpp>
#include <meso/stats.hpp>
#include <meso/stats/perplexity.hpp>
#include <string>
#include <vector>

#include "studies.hpp"
#include "support/oracle_stats.hpp"

namespace meso::test {

namespace {

using oracle::Vector;

/// Gaussian, or with a few numbers that stand out; the mean up to 100 σ away.
template <class S>
Window<S> activations(Draw& draw, Index rows, Index cols, double farthest = 100) {
  const double scale = draw.note("scale", draw.log_uniform(1e-3, 1e3));
  const double mean = draw.note("mean", draw.chance(0.5) ? 0.0 : scale * draw.uniform(-farthest, farthest));
  Window<S> x = draw.normals<S>(rows, cols, scale, mean);
  const Index outliers = draw.chance(0.5) && x.rows * x.cols > 0 ? draw.note("outliers", draw.between(0, 5)) : 0;
  for (Index k = 0; k < outliers; ++k)
    x(draw.between(0, rows - 1), draw.between(0, cols - 1)) = static_cast<S>(scale * draw.uniform(-300, 300));
  return x;
}

/// The documented limit of "no variance" lies far below these data: float data with a mean of 100 σ.
template <class S>
Study kurtoses() {
  const std::string stated = "2(n + 12)·κ";
  return {"kurtosis",
          "N(μ, σ²) with up to 5 outliers of 300σ, \\|μ\\| ≤ 100σ, ≤ 12 × 200",
          {{"kurtosis", stated, in_double},
           {"row_kurtosis", stated, in_double},
           {"bondarenko_kurtosis", "2(n + 14)·κ", in_double}},
          [](Draw& draw, std::vector<Comparison>& to) {
            const Index rows = draw.size("rows", 0, 12), cols = draw.size("cols", 0, 200);
            const Window<S> x = activations<S>(draw, rows, cols);
            const oracle::Matrix values = x.values();
            const auto whole = map(x.view());
            const double n = static_cast<double>(rows * cols);
            to[0].add_relative(kurtosis(whole), oracle::kurtosis(values.data), 2 * (n + 12));
            to[2].add_relative(bondarenko_kurtosis(whole), oracle::bondarenko_kurtosis(values.data), 2 * (n + 14));
            const Eigen::VectorXd by_row = row_kurtosis(whole);
            to[1].require(by_row.size() == rows, "size");
            for (Index i = 0; i < rows; ++i)
              to[1].add_relative(by_row[i], oracle::kurtosis(values.row(i)), 2 * static_cast<double>(cols + 12));
          }};
}

template <class S>
Study channel_kurtoses() {
  return {"channel kurtosis",
          "N(0, σ²) with up to 5 outliers of 300σ, 1–12 tokens, 2–200 channels",
          {{"osp_kurtosis", "3(width + 14)·mean(excess + 3)", in_double},
           {"he_kurtosis", "4(tokens + 2·width + 10)·κ", in_double}},
          [](Draw& draw, std::vector<Comparison>& to) {
            const Index rows = draw.size("tokens", 1, 12), cols = draw.size("width", 2, 200);
            const Window<S> x = activations<S>(draw, rows, cols, 0);
            const oracle::Matrix values = x.values();
            double osp = 0, size = 0;
            for (Index i = 0; i < rows; ++i) {
              const double excess = oracle::osp_excess(values.row(i));
              osp += std::max<double>(0, excess) / static_cast<double>(rows);
              size += (excess + 3) / static_cast<double>(rows);
            }
            to[0].add(osp_kurtosis(map(x.view())), osp, 3 * static_cast<double>(cols + 14) * size, size);
            to[1].add_relative(he_kurtosis(map(x.view())), oracle::he_kurtosis(values),
                               4 * static_cast<double>(rows + 2 * cols + 10));
          }};
}

template <class S>
Study moments() {
  return {"Moments",
          "N(μ, σ²) with up to 5 outliers of 300σ, \\|μ\\| ≤ 10⁹σ, ≤ 600 numbers; one pass, and merged parts",
          {{"Moments m2", "8n·m2", in_double},
           {"Moments m3", "8n·√(m2·m4)", in_double},
           {"Moments m4", "8n·m4", in_double},
           {"RunningMean", "(1 + n²u)·mean\\|x\\| + \\|mean\\|", in_double}},
          [](Draw& draw, std::vector<Comparison>& to) {
            const Index n = draw.size("n", 1, 600);
            const Vector x = activations<S>(draw, 1, n, std::is_same_v<S, double> ? 1e9 : 1e3).values().data;
            Moments whole, part;
            RunningMean mean, mean_part;
            const Index cut = draw.note("cut", draw.between(0, n)), pieces = draw.note("piece", draw.between(1, 40));
            for (Index i = 0; i < n; ++i) {
              part.add(x[oracle::at(i)]), mean_part.add(x[oracle::at(i)]);
              if (i + 1 < n && i != cut && i % pieces != 0) continue;
              whole.merge(part), mean.merge(mean_part);
              part = {}, mean_part = {};
            }
            const oracle::CentralMoments exact = oracle::central_moments(x);
            const double m2 = static_cast<double>(exact.m2), m4 = static_cast<double>(exact.m4),
                         k = 8 * static_cast<double>(n);
            to[0].require(whole.count == n && mean.count == n, "count");
            to[0].add_relative(whole.m2, m2, k);
            to[1].add(whole.m3, static_cast<double>(exact.m3), k * std::sqrt(m2 * m4), std::sqrt(m2 * m4));
            to[2].add_relative(whole.m4, m4, k);
            double absolute = 0;
            for (const double v : x) absolute += std::abs(v) / static_cast<double>(n);
            const double of_mean = static_cast<double>(exact.mean);
            to[3].add(mean.value(), of_mean, (1 + static_cast<double>(n * n) * 0x1p-53) * absolute + std::abs(of_mean),
                      absolute);
          }};
}

template <class S>
Study hidden_states() {
  return {"HiddenStateStatistics",
          "N(μ, σ²) with outliers; 3 layers, sequences of ≤ 6, ≤ 60 channels; parts merged",
          {{"HiddenStateStatistics kurtosis", "(2(n + 12) + 8)·κ", in_double},
           {"HiddenStateStatistics max_abs", "8·max\\|x\\|", in_double}},
          [](Draw& draw, std::vector<Comparison>& to) {
            const Index width = draw.size("width", 2, 60), parts = draw.size("parts", 1, 3);
            HiddenStateStatistics total;
            // tokens[layer][position]
            std::vector<std::vector<std::vector<Vector>>> tokens(3, std::vector<std::vector<Vector>>(6));
            for (Index part = 0; part < parts; ++part) {
              HiddenStateStatistics one;
              const Index time = draw.size("time", 1, 6), sequences = draw.size("sequences", 0, 4);
              for (Index layer = 0; layer < 3; ++layer) {
                const Window<S> x = activations<S>(draw, sequences * time, width);
                one.add(layer, x.view(), time);
                for (Index i = 0; i < x.rows; ++i)
                  tokens[oracle::at(layer)][oracle::at(i % time)].push_back(x.values().row(i));
              }
              total.merge(one);
            }
            const auto mean = [](const Vector& x) { return x.empty() ? oracle::not_a_number : oracle::mean(x); };
            const double bound = 2 * static_cast<double>(width + 12) + 8;
            for (const PositionClass c : {PositionClass::first, PositionClass::rest}) {
              Vector kurtosis_of_layers, top_of_layers;
              for (Index layer = 0; layer < 3; ++layer) {
                Vector kurtosis_of_positions, top_of_positions;
                Index count = 0, undefined = 0;
                for (std::size_t t = c == PositionClass::first ? 0 : 1; t < (c == PositionClass::first ? 1u : 6u);
                     ++t) {
                  Vector kappas, tops;
                  for (const Vector& x : tokens[oracle::at(layer)][t]) {
                    const double kappa = oracle::kurtosis(x);
                    ++count, undefined += std::isnan(kappa);
                    if (!std::isnan(kappa)) kappas.push_back(kappa);
                    tops.push_back(oracle::central_moments(x).top);
                  }
                  to[0].add_relative(total.kurtosis_at(layer, static_cast<Index>(t)), mean(kappas), bound);
                  to[1].add_relative(total.max_abs_at(layer, static_cast<Index>(t)), mean(tops), 8);
                  if (!kappas.empty()) kurtosis_of_positions.push_back(mean(kappas));
                  if (!tops.empty()) top_of_positions.push_back(mean(tops));
                }
                to[0].add_relative(total.kurtosis(layer, c), mean(kurtosis_of_positions), bound);
                to[1].add_relative(total.max_abs(layer, c), mean(top_of_positions), 8);
                to[0].require(total.tokens(layer, c) == count && total.undefined(layer, c) == undefined, "tokens");
                if (layer == 0) continue;  // the embedding is never averaged in
                if (total.positions(layer) > 0) kurtosis_of_layers.push_back(mean(kurtosis_of_positions));
                if (total.positions(layer) > 0) top_of_layers.push_back(mean(top_of_positions));
              }
              to[0].add_relative(total.kurtosis(c), mean(kurtosis_of_layers), bound);
              to[1].add_relative(total.max_abs(c), mean(top_of_layers), 8);
            }
          }};
}

template <class S>
Study sink_rows() {
  return {"SinkStatistics",
          "rows of ≤ 12 weights with ties and zeros, 3 sequences, sliding windows",
          {{"SinkStatistics shares", "0", in_double},
           {"SinkStatistics masses", "3", in_double},
           {"SinkStatistics entropy", "(keys + 8)·entropy", in_double}},
          [](Draw& draw, std::vector<Comparison>& to) {
            const SinkOptions options{draw.note("count_first", draw.chance(0.5)),
                                      draw.note("sink_key", draw.between(0, 2)), 0.3};
            SinkStatistics statistics(options), other(options);
            std::vector<oracle::SinkRow> rows;
            const bool ties = draw.note("ties", draw.chance(0.5));
            for (Index sequence = 0; sequence < 3; ++sequence) {
              const Index time = draw.size("time", 0, 12), window = draw.between(1, 14);
              SinkStatistics& part = sequence == 1 ? other : statistics;
              for (Index query = 0; query < time; ++query) {
                const Index first_key = std::max<Index>(0, query - window + 1), n = query + 1 - first_key;
                oracle::SinkRow row{sequence, query, first_key, Vector(oracle::at(n), 0.0), 0};
                const auto weight = [&] {
                  return static_cast<double>(
                      static_cast<S>(ties ? 0.125 * static_cast<double>(draw.between(0, 2)) : draw.uniform(0, 0.2)));
                };
                for (double& p : row.p) p = weight();
                row.null = draw.chance(0.5) ? weight() : 0.0;
                part.add_row(2, 1, query, Eigen::Map<const Eigen::VectorXd>(row.p.data(), n).template cast<S>(),
                             row.null, first_key);
                rows.push_back(row);
              }
              part.end_sequence();
            }
            statistics.merge(other);
            const oracle::Sinks exact =
                oracle::sinks(rows, options.count_first_query ? 0 : 1, options.sink_key, options.sink_threshold, 3);
            to[0].require(statistics.rows() == exact.rows, "rows");
            to[0].add_exact(statistics.first_token_proportion(), exact.first);
            to[0].add_exact(statistics.first_token_proportion_with_null(2), exact.first_with_null);
            to[0].add_exact(statistics.nowhere_proportion(2, 1), exact.nowhere);
            to[0].add_exact(statistics.sink_rate(), exact.sink_rate);
            to[1].add_relative(statistics.first_token_mass(), exact.first_mass, 3);
            to[1].add_relative(statistics.null_mass(), exact.null_mass, 3);
            to[2].add_relative(statistics.entropy(), exact.entropy, 12 + 8);
          }};
}

template <class S>
Study outliers() {
  return {"outliers",
          "N(0, 4²) with planted numbers, ≤ 12 × 40",
          {{"massive_activations", "0", in_double},
           {"OutlierChannels", "0", in_double},
           {"Perplexity", "((n + 2)·mean + 2)·value", in_double}},
          [](Draw& draw, std::vector<Comparison>& to) {
            const Index rows = draw.size("rows", 0, 12), cols = draw.size("cols", 0, 40);
            const Window<S> x = draw.normals<S>(rows, cols, 4);
            const Vector values = x.values().data;
            const double limit = draw.uniform(2, 9), ratio = draw.uniform(1, 4);
            const auto found = massive_activations(map(x.view()), limit, ratio);
            std::size_t next = 0;
            bool same = true;
            for (std::size_t i = 0; i < values.size(); ++i) {
              if (!(std::abs(values[i]) > limit && std::abs(values[i]) > ratio * oracle::median_abs(values))) continue;
              same = same && next < found.size() && found[next].value == values[i] &&
                     found[next].row * cols + found[next].col == static_cast<Index>(i);
              ++next;
            }
            to[0].require(same && next == found.size(), "another set of coefficients");

            const OutlierChannelOptions options{6, 0.5, draw.uniform(0.02, 0.4)};
            OutlierChannels channels(options), part(options);
            std::vector<Index> hits(oracle::at(cols), 0), layers_with(oracle::at(cols), 0);
            Index layers = 0;
            for (Index layer = 0; layer < 3; ++layer) {
              const Window<S> h = draw.normals<S>(rows, cols, 4);
              (layer == 1 ? part : channels).add(layer, map(h.view()));
              layers += rows > 0;
              for (Index j = 0; j < cols; ++j) {
                Index in_layer = 0;
                for (Index i = 0; i < rows; ++i) in_layer += std::abs(h(i, j)) >= 6;
                hits[oracle::at(j)] += in_layer, layers_with[oracle::at(j)] += in_layer > 0;
              }
            }
            channels.merge(part);
            std::vector<Index> expected;
            for (Index j = 0; rows > 0 && j < cols; ++j) {
              const double share = static_cast<double>(layers_with[oracle::at(j)]) / static_cast<double>(layers);
              const double of_tokens = static_cast<double>(hits[oracle::at(j)]) / static_cast<double>(3 * rows);
              if (share >= 0.5 && of_tokens >= options.position_share) expected.push_back(j);
            }
            to[1].require(channels.channels() == expected, "another set of channels");

            Perplexity perplexity;
            const Index calls = draw.size("calls", 1, 40);
            long double sum = 0;
            Index tokens = 0;
            for (Index i = 0; i < calls; ++i) {
              const double loss = draw.uniform(0, 200);
              const Index n = draw.between(1, 60);
              perplexity.add(loss, n);
              sum += static_cast<long double>(loss), tokens += n;
            }
            const double mean = static_cast<double>(sum / static_cast<long double>(tokens));
            to[2].add_relative(perplexity.value(),
                               static_cast<double>(std::exp(sum / static_cast<long double>(tokens))),
                               static_cast<double>(calls + 2) * mean + 2);
          }};
}

}  // namespace

template <class S>
std::vector<Study> statistics_studies() {
  return {kurtoses<S>(), channel_kurtoses<S>(), moments<S>(), hidden_states<S>(), sink_rows<S>(), outliers<S>()};
}
MESO_TEST_STUDIES(statistics_studies);

}  // namespace meso::test
