// Statistics of hidden states, and quantizers, whose integers must be those of the definition, bit for bit.
#include <meso/cuda/quantized_matrix.cuh>
#include <meso/cuda/sinks.cuh>
#include <meso/cuda/statistics.cuh>

#include "tests/cuda/attention_instances.hpp"
#include "tests/cuda/gpu/table.hpp"
#include "tests/support/oracle_quant.hpp"
#include "tests/support/oracle_stats.hpp"

namespace meso::table {
namespace {

namespace oracle = test::oracle;

void token_rows(Table& table) {
  cuda::Context& context = table.context;
  const Index width = table.sizes.width;
  table.line("token_statistics", "float", 1e-10, 1, [&](Index rows) {
    const Array<float> x(context, rows, width, 1, 0.5);
    const auto out = std::make_shared<cuda::Buffer<cuda::TokenStatistics>>(rows);
    return Op{[=, &context] { cuda::token_statistics(context, x.constant(), 6e-8, out->data()); },
              [=, &context] {
                std::vector<cuda::TokenStatistics> s(at(rows));
                cuda::download(context, out->data(), rows, s.data());
                const Matrix values = x.values();
                oracle::Vector actual, expected;
                for (Index i = 0; i < rows; ++i) {
                  actual.push_back(s[at(i)].kurtosis);
                  actual.push_back(s[at(i)].top);
                  expected.push_back(oracle::kurtosis(values.row(i)));
                  expected.push_back(oracle::central_moments(values.row(i)).top);
                }
                return largest_error(actual, expected);
              },
              x.bytes()};
  });
}

/// First weight and null mass of every query and head.
void sink_rows(Table& table) {
  cuda::Context& context = table.context;
  const Index width = table.sizes.width, d = 64, heads = width / d;
  table.line("attention_row_statistics", "float", 1e-5, table.float_rate, [&](Index rows) {
    const Index time = rows > table.sizes.checked ? table.sizes.time : rows;
    const AttentionShape s{rows / time, time, heads, heads, d, time};
    const Array<float> q(context, rows, width, 1), k(context, rows, width, 2), o(context, rows, width),
        lse(context, rows, heads);
    const auto out = std::make_shared<cuda::Buffer<cuda::AttentionRowStatistics>>(rows * heads);
    cuda::attention_forward<cuda::Softmax1, Causal, float>(context, {}, {}, s, nullptr, q.constant(), k.constant(),
                                                           k.constant(), o.view(), lse.view());
    return Op{[=, &context] {
                cuda::attention_row_statistics<cuda::Softmax1, Causal, float>(context, {}, {}, s, nullptr, q.constant(),
                                                                              k.constant(), lse.view(), out->data());
              },
              [=, &context] {
                std::vector<cuda::AttentionRowStatistics> all(at(rows * heads));
                cuda::download(context, out->data(), rows * heads, all.data());
                const Matrix queries = q.values(), keys = k.values();
                oracle::Vector actual, expected;
                for (Index i = 0; i < rows; ++i)
                  for (Index h = 0; h < heads; ++h) {
                    oracle::Vector z;
                    for (Index j = 0; j <= i; ++j) {
                      double sum = 0;
                      for (Index c = h * d; c < (h + 1) * d; ++c) sum += queries(i, c) * keys(j, c);
                      z.push_back(sum / std::sqrt(static_cast<double>(d)));
                    }
                    const oracle::Vector p = oracle::null_logit(z, 1);
                    double null = 1;
                    for (const double w : p) null -= w;
                    expected.push_back(p[0]);
                    expected.push_back(null);
                    actual.push_back(all[at(i * heads + h)].first);
                    actual.push_back(all[at(i * heads + h)].null_mass);
                  }
                return largest_error(actual, expected);
              },
              0, static_cast<double>(rows * time * width)};
  });
}

/// One grid a row.
template <class Scheme, class Expected>
void quantizer_rows(Table& table, const std::string& name, const Scheme& scheme, Expected expected) {
  using Storage = typename Scheme::Storage;
  cuda::Context& context = table.context;
  const Index width = table.sizes.width;
  const auto blocks = [=](const Array<float>& x, Index rows) {
    const Matrix values = x.values();
    std::vector<oracle::QuantizedBlock> all;
    for (Index i = 0; i < rows; ++i) all.push_back(expected(values.row(i), scheme.bits));
    return all;
  };
  table.line("quantize " + name, "float", 0, 1, [&](Index rows) {
    const Array<float> x(context, rows, width, 1, 0.5);
    const auto q = std::make_shared<cuda::QuantizedMatrix<float, Storage>>();
    return Op{[=, &context] {
                cuda::quantize(context, x.constant(), scheme, cuda::Granularity{1, 0}, *q);
              },
              [=, &context] {
                std::vector<Storage> integers(at(rows * width));
                cuda::download(context, q->values.data(), rows * width, integers.data());
                oracle::Vector exact;
                for (const oracle::QuantizedBlock& b : blocks(x, rows))
                  exact.insert(exact.end(), b.q.begin(), b.q.end());
                return largest_error(oracle::Vector(integers.begin(), integers.end()), exact);
              },
              x.bytes() * 1.25};
  });
  table.line("dequantize " + name, "float", 0, 1, [&](Index rows) {
    const Array<float> x(context, rows, width, 1, 0.5), back(context, rows, width);
    const auto q = std::make_shared<cuda::QuantizedMatrix<float, Storage>>();
    cuda::quantize(context, x.constant(), scheme, cuda::Granularity{1, 0}, *q);
    return Op{[=, &context] { cuda::dequantize(context, *q, back.view()); },
              [=] {
                oracle::Vector exact;
                for (const oracle::QuantizedBlock& b : blocks(x, rows))
                  for (const double value : b.back) exact.push_back(oracle::round_to<float>(value));
                return largest_error(back.values().data, exact);
              },
              x.bytes() * 1.25};
  });
}

}  // namespace

void statistics_rows(Table& table) {
  token_rows(table);
  sink_rows(table);
  quantizer_rows(table, "absmax 8", cuda::Absmax{8},
                 [](const oracle::Vector& x, int bits) { return oracle::absmax<float>(x, bits); });
  quantizer_rows(table, "zeropoint 4", cuda::Zeropoint{4},
                 [](const oracle::Vector& x, int bits) { return oracle::zeropoint<float>(x, bits); });
}

}  // namespace meso::table
