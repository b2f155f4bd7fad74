#include <boost/test/unit_test.hpp>
#include <meso/quant.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "studies.hpp"
#include "support/oracle_quant.hpp"

namespace meso::test {

namespace {

using oracle::Vector;

/// Errors of a quantizer are counted in steps s of its grid.
constexpr Roundings in_steps{1, 0};

template <class S, class Scheme>
Study quantizer(const std::string& name, const std::string& bound, int least_bits) {
  return {
      name,
      "N(μ, σ²), \\|μ\\| ≤ 3σ, ≤ 12 × 40, all granularities and bits",
      {{name + " x̂, in steps s", bound, in_steps}, {name + " q, s, z", "0", in_scalar<S>}},
      [least_bits](Draw& draw, std::vector<Comparison>& to) {
        const Index rows = draw.size("rows", 0, 12), cols = draw.size("cols", 0, 40);
        const Scheme scheme{static_cast<int>(draw.note("bits", draw.between(least_bits, 8)))};
        const Granularity g{draw.note("block_rows", draw.between(0, 4)), draw.note("block_cols", draw.between(0, 9))};
        const double scale = draw.note("scale", draw.log_uniform(1e-3, 1e3));
        const Window<S> x = draw.normals<S>(rows, cols, scale, scale * draw.uniform(-3, 3));
        CpuContext<> context(static_cast<int>(draw.between(1, 3)));
        const auto q = quantize(context, x.view(), scheme, g);
        const RowMajorMatrix<S> back = dequantize(q);
        const Index down = g.rows ? g.rows : std::max<Index>(1, rows),
                    across = g.cols ? g.cols : std::max<Index>(1, cols);
        for (Index i = 0; i < rows; i += down)
          for (Index j = 0; j < cols; j += across) {
            const Index m = std::min<Index>(down, rows - i), n = std::min<Index>(across, cols - j);
            Vector block;
            for (Index r = i; r < i + m; ++r)
              for (Index c = j; c < j + n; ++c) block.push_back(x(r, c));
            constexpr bool symmetric = std::is_same_v<Scheme, Absmax>;
            const oracle::QuantizedBlock exact =
                symmetric ? oracle::absmax<S>(block, scheme.bits) : oracle::zeropoint<S>(block, scheme.bits);
            const double levels = std::exp2(scheme.bits), u = unit_roundoff<S>;
            const double error = 0.5 + (symmetric ? 3 * u * (levels / 2 - 1) : 4 * levels * u) * (1 + 2 * u);
            to[1].add_exact(static_cast<double>(q.scale(i, j)), exact.scale);
            to[1].add_exact(q.zero_point(i, j), exact.zero);
            for (std::size_t k = 0; k < block.size(); ++k) {
              const Index r = i + static_cast<Index>(k) / n, c = j + static_cast<Index>(k) % n;
              to[0].add((static_cast<double>(back(r, c)) - block[k]) / exact.scale, 0, error, 1);
              to[1].add_exact(static_cast<double>(q.values(r, c)), exact.q[k]);
            }
          }
      }};
}

template <class S>
Study integers() {
  return {"int8_gemm",
          "all of int8, ≤ 90 × 90 × 700",
          {{"int8_gemm", "0", in_double}},
          [](Draw& draw, std::vector<Comparison>& to) {
            const Index m = draw.size("m", 0, 90), n = draw.size("n", 0, 90),
                        k = draw.size("k", 0, draw.chance(0.05) ? 700 : 40);
            const auto fill = [&](Window<std::int8_t>& x) {
              std::vector<std::int8_t> values;
              for (Index i = 0; i < x.rows; ++i)
                for (Index j = 0; j < x.cols; ++j)
                  values.push_back(x(i, j) = static_cast<std::int8_t>(draw.between(-128, 127)));
              return values;
            };
            Window<std::int8_t> a = draw.window<std::int8_t>(m, k), b = draw.window<std::int8_t>(n, k);
            Window<std::int32_t> c = draw.window<std::int32_t>(m, n);
            const std::vector<std::int8_t> left = fill(a), right = fill(b);
            CpuContext<> context(static_cast<int>(draw.between(1, 3)));
            int8_gemm(context, a.constant(), b.constant(), c.view());
            const auto exact = oracle::integer_product(left, right, m, n, k);
            for (Index i = 0; i < m; ++i)
              for (Index j = 0; j < n; ++j)
                to[0].add_exact(static_cast<double>(c(i, j)), static_cast<double>(exact[oracle::at(i * n + j)]));
            to[0].require(c.intact(), "written outside the window");
          }};
}

/// Two adjacent weights, per row, activations per token: y = x̂ ŵᵀ + bias with x̂ and ŵ of the oracle.
template <class S>
Study linear() {
  return {"quantized linear",
          "N(0, 1), absmax per row, 2–8 bits, ≤ 12 tokens, ≤ 60 inputs, 2 × ≤ 20 outputs",
          {{"QuantizedLinear y", "(in + 9)(\\|x̂\\|\\|ŵ\\|ᵀ + \\|bias\\|)", in_scalar<S>},
           {"SimulatedLinear y", "(in + 9)(\\|x̂\\|\\|ŵ\\|ᵀ + \\|bias\\|)", in_scalar<S>}},
          [](Draw& draw, std::vector<Comparison>& to) {
            const Index tokens = draw.size("tokens", 0, 12), in = draw.size("in", 1, 60), out = draw.size("out", 1, 20),
                        second = draw.size("second", 1, 20);
            const bool with_bias = draw.note("bias", draw.chance(0.5));
            const AbsmaxLinear scheme{per_row, per_row, static_cast<int>(draw.note("bits", draw.between(2, 8)))};
            ParameterLayout layout;
            layout.add("w1", out, in, ParameterKind::matrix);
            layout.add("w2", second, in, ParameterKind::matrix);
            layout.add("b1", 1, out, ParameterKind::bias);
            layout.add("b2", 1, second, ParameterKind::bias);
            Parameters<S> parameters(layout);
            for (Index p = 0; p < 4; ++p)
              for (Index i = 0; i < parameters[p].size(); ++i) parameters[p].data[i] = static_cast<S>(draw.normal());
            const Window<S> x = draw.normals<S>(tokens, in);
            Window<S> integer = draw.window<S>(tokens, out + second), simulated = draw.window<S>(tokens, out + second);
            CpuContext<> context(static_cast<int>(draw.between(1, 3)));
            const Parameters<S>& constant = parameters;
            QuantizedLinear<S>(constant, scheme)(context, constant, 0, 2, with_bias ? 2 : -1, x.view(), integer.view());
            SimulatedLinear<S>(constant, scheme)(context, constant, 0, 2, with_bias ? 2 : -1, x.view(),
                                                 simulated.view());
            for (Index i = 0; i < tokens; ++i) {
              const Vector row = oracle::absmax<S>(x.values().row(i), scheme.bits).back;
              for (Index j = 0; j < out + second; ++j) {
                const Index p = j < out ? 0 : 1, r = j < out ? j : j - out;
                const Vector w = oracle::absmax<S>(oracle::matrix(constant[p]).row(r), scheme.bits).back;
                const double b = with_bias ? static_cast<double>(constant[p + 2](0, r)) : 0.0;
                double exact = b, size = std::abs(b);
                for (std::size_t k = 0; k < w.size(); ++k) exact += row[k] * w[k], size += std::abs(row[k] * w[k]);
                to[0].add(static_cast<double>(integer(i, j)), exact, static_cast<double>(in + 9) * size, size);
                to[1].add(static_cast<double>(simulated(i, j)), exact, static_cast<double>(in + 9) * size, size);
              }
            }
            to[0].require(integer.intact(), "written outside the window");
            to[1].require(simulated.intact(), "written outside the window");
          }};
}

}  // namespace

template <class S>
std::vector<Study> quantization_studies() {
  return {quantizer<S, Absmax>("Absmax", "1/2 + 3u·max\\|x\\|/s", 2),
          quantizer<S, Zeropoint>("Zeropoint", "1/2 + 2^{b+2}·u", 1), integers<S>(), linear<S>()};
}
MESO_TEST_STUDIES(quantization_studies);

}  // namespace meso::test
