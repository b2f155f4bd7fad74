#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <meso/quant/quantized_linear.hpp>
#include <meso/quant/zeropoint.hpp>
#include <stdexcept>

#include "support/random.hpp"
#include "support/tolerance.hpp"

namespace {

using namespace meso;
using namespace meso::test;

/// Three packed weights with their biases, a fourth without, and one parameter of every other kind.
template <class S>
Parameters<S> model(Index in, Index out, std::uint64_t seed) {
  ParameterLayout layout;
  const auto packed = ParameterLayout::Placement::packed;
  layout.add("query", out, in, ParameterKind::matrix);
  layout.add("key", out + 2, in, ParameterKind::matrix, packed);
  layout.add("value", out + 5, in, ParameterKind::matrix, packed);
  layout.add("query.bias", 1, out, ParameterKind::bias);
  layout.add("key.bias", 1, out + 2, ParameterKind::bias, packed);
  layout.add("value.bias", 1, out + 5, ParameterKind::bias, packed);
  layout.add("gain", 1, in, ParameterKind::gain);
  layout.add("table", out, in, ParameterKind::embedding);
  layout.add("sink", 1, 4, ParameterKind::normalizer);
  Parameters<S> p(layout);
  for (Index i = 0; i < layout.count(); ++i)
    fill_normal(p[i], Random{seed, static_cast<std::uint64_t>(i)}, 1.0 + static_cast<double>(i));
  return p;
}

struct Call {
  Index weight, count, bias;
};
constexpr Call calls[] = {{0, 3, 3}, {0, 3, -1}, {1, 1, 4}, {2, 1, -1}};

template <class S, class Linear>
RowMajorMatrix<S> multiply(const Linear& linear, const Parameters<S>& p, const Call& call, const RowMajorMatrix<S>& x,
                           int threads = 1) {
  Index out = 0;
  for (Index i = 0; i < call.count; ++i) out += p.layout[call.weight + i].rows;
  RowMajorMatrix<S> y = RowMajorMatrix<S>::Constant(x.rows(), out, S(-9));
  CpuContext<> context(threads);
  linear(context, p, call.weight, call.count, call.bias, view(x), view(y));
  return y;
}

/// |integer − simulated| ≤ (in + 9)·u·(Σ|x̂||ŵ| + |bias|), the documented bound.
template <class S>
void check_against_simulation(Index tokens, Index in, Index out, const AbsmaxLinear& scheme) {
  const Parameters<S> p = model<S>(in, out, 17);
  RowMajorMatrix<S> x = gaussian<S>(tokens, in, 23);
  x.col(in / 2) *= S(40);  // an outlier channel
  const QuantizedLinear<S> integer(p, scheme);
  const SimulatedLinear<S> simulated(p, scheme);
  const RowMajorMatrix<double> xhat =
      fake_quantize(x, Absmax{scheme.bits}, scheme.activations).template cast<double>().cwiseAbs();
  for (const Call& call : calls) {
    const RowMajorMatrix<S> y = multiply(integer, p, call, x), z = multiply(simulated, p, call, x);
    for (Index i = 0, col = 0; i < call.count; ++i) {
      const RowMajorMatrix<double> what = fake_quantize(map(p[call.weight + i]), Absmax{scheme.bits}, scheme.weights)
                                              .template cast<double>()
                                              .cwiseAbs();
      RowMajorMatrix<double> size = xhat * what.transpose();
      if (call.bias >= 0) size.rowwise() += map(p[call.bias + i]).template cast<double>().cwiseAbs().row(0);
      const RowMajorMatrix<S> a = y.middleCols(col, what.rows()), b = z.middleCols(col, what.rows());
      BOOST_TEST(all_within(a.data(), b.data(), a.size(),
                            [&](Index k) { return static_cast<double>(in + 9) * unit_roundoff<S> * size.data()[k]; }));
      col += what.rows();
    }
  }
}

BOOST_AUTO_TEST_SUITE(quantized_linear)

BOOST_AUTO_TEST_CASE(closed_form) {
  // x = (127, 1), s = 1; w = (127, −2.5), s = 1, q = (127, −2): y = 127² − 2 + bias.
  ParameterLayout layout;
  layout.add("w", 1, 2, ParameterKind::matrix);
  layout.add("b", 1, 1, ParameterKind::bias);
  Parameters<float> p(layout);
  p[0](0, 0) = 127.0f, p[0](0, 1) = -2.5f, p[1](0, 0) = 0.5f;
  RowMajorMatrix<float> x(1, 2);
  x << 127, 1;
  for (const AbsmaxLinear& scheme : {absmax8_coarse, absmax8_moderate, absmax8_fine}) {
    const QuantizedLinear<float> linear(p, scheme);
    BOOST_TEST(multiply(linear, p, {0, 1, 1}, x)(0, 0) == 127 * 127 - 1.5f);
    BOOST_TEST(multiply(SimulatedLinear<float>(p, scheme), p, {0, 1, -1}, x)(0, 0) == 127 * 127 - 2.0f);
    BOOST_TEST(static_cast<int>(linear.weight(0).values(0, 1)) == -2);
    BOOST_TEST(linear.weight(1).values.size() == 0);
  }
}

BOOST_AUTO_TEST_CASE(integers_agree_with_the_simulation) {
  const Index shapes[][3] = {{1, 1, 1}, {3, 7, 5}, {9, 33, 17}, {70, 129, 31}, {5, 530, 3}};
  for (const auto& [tokens, in, out] : shapes)
    for (const AbsmaxLinear& scheme :
         {absmax8_coarse, absmax8_moderate, absmax8_fine, AbsmaxLinear{{3, 0}, {2, 0}, 5}}) {
      check_against_simulation<float>(tokens, in, out, scheme);
      check_against_simulation<double>(tokens, in, out, scheme);
    }
}

BOOST_AUTO_TEST_CASE(presets_differ_as_they_say) {
  const Parameters<float> p = model<float>(24, 10, 3);
  const QuantizedLinear<float> coarse(p, absmax8_coarse), moderate(p, absmax8_moderate), fine(p, absmax8_fine);
  BOOST_TEST(coarse.weight(0).scales.size() == 1);
  BOOST_TEST(moderate.weight(1).scales.size() == 12);
  RowMajorMatrix<float> x = gaussian<float>(6, 24, 4);
  RowMajorMatrix<float> spiked = x;
  spiked(5, 3) = 1e4f;
  // An outlier in one token reaches the other tokens through a scale per tensor, and does not per token.
  const Call call{0, 1, -1};
  BOOST_TEST((multiply(fine, p, call, x).topRows(5) == multiply(fine, p, call, spiked).topRows(5)));
  BOOST_TEST((multiply(moderate, p, call, x).topRows(5) != multiply(moderate, p, call, spiked).topRows(5)));
}

BOOST_AUTO_TEST_CASE(a_tied_head_runs_in_floating_point) {
  const Parameters<double> p = model<double>(13, 8, 5);
  const RowMajorMatrix<double> x = gaussian<double>(4, 13, 6);
  CpuContext<> context(1);
  RowMajorMatrix<double> expected(4, 8);
  gemm<PackedProducts, double>(context, view(x), p["table"], view(expected), {.transpose_b = true});
  const Call call{p.layout.find("table"), 1, -1};
  BOOST_TEST((multiply(QuantizedLinear<double>(p, absmax8_fine), p, call, x) == expected));
  BOOST_TEST((multiply(SimulatedLinear<double>(p, absmax8_fine), p, call, x) == expected));
}

BOOST_AUTO_TEST_CASE(the_same_bits_for_any_number_of_threads) {
  const Parameters<float> p = model<float>(150, 90, 7);
  const RowMajorMatrix<float> x = gaussian<float>(257, 150, 8);
  for (const AbsmaxLinear& scheme : {absmax8_coarse, absmax8_fine}) {
    const QuantizedLinear<float> integer(p, scheme);
    const SimulatedLinear<float> simulated(p, scheme);
    const RowMajorMatrix<float> y = multiply(integer, p, calls[0], x), z = multiply(simulated, p, calls[0], x);
    for (const int threads : {2, 3}) {
      BOOST_TEST((multiply(integer, p, calls[0], x, threads) == y));
      BOOST_TEST((multiply(simulated, p, calls[0], x, threads) == z));
    }
  }
}

BOOST_AUTO_TEST_CASE(windows_empty_calls_and_bad_arguments) {
  const Parameters<float> p = model<float>(12, 6, 9);
  const QuantizedLinear<float> linear(p, absmax8_fine);
  const RowMajorMatrix<float> x = gaussian<float>(5, 20, 10);
  RowMajorMatrix<float> y = RowMajorMatrix<float>::Constant(9, 30, 4.0f);
  CpuContext<> context(1);
  linear(context, p, 0, 3, 3, view(x).block(1, 2, 3, 12), view(y).block(2, 1, 3, 25));
  const RowMajorMatrix<float> inside = x.block(1, 2, 3, 12);
  BOOST_TEST((y.block(2, 1, 3, 25) == multiply(linear, p, calls[0], inside)));
  y.block(2, 1, 3, 25).setConstant(4.0f);
  BOOST_TEST((y.array() == 4.0f).all());

  BOOST_TEST(multiply(linear, p, calls[0], RowMajorMatrix<float>(0, 12)).rows() == 0);
  BOOST_CHECK_THROW(multiply(linear, p, calls[0], x), std::invalid_argument);
  BOOST_CHECK_THROW(multiply(SimulatedLinear<float>(p, absmax8_fine), p, calls[0], x), std::invalid_argument);
  BOOST_CHECK_THROW(linear(context, p, 0, 1, -1, view(inside), view(y)), std::invalid_argument);
  BOOST_CHECK_THROW(linear(context, p, 8, 2, -1, view(inside), view(y)), std::invalid_argument);
  RowMajorMatrix<float> bad = inside;
  bad(1, 1) = std::numeric_limits<float>::infinity();
  BOOST_CHECK_THROW(multiply(linear, p, calls[0], bad), std::invalid_argument);
  BOOST_CHECK_THROW(QuantizedLinear<float>(p, {per_group(4), per_row}), std::invalid_argument);
  BOOST_CHECK_THROW(QuantizedLinear<float>(p, {per_row, per_group(4)}), std::invalid_argument);
  const SimulatedLinear<float> grouped(p, {per_group(4), per_group(4)});
  BOOST_TEST(multiply(grouped, p, calls[0], inside).allFinite());
}

BOOST_AUTO_TEST_CASE(weights_alone) {
  const Parameters<float> p = model<float>(18, 7, 11);
  const Parameters<float> q = quantize_weights(p, Zeropoint{4}, per_row);
  for (Index i = 0; i < p.layout.count(); ++i) {
    if (p.layout[i].kind == ParameterKind::matrix)
      BOOST_TEST((map(q[i]) == fake_quantize(map(p[i]), Zeropoint{4}, per_row)));
    else
      BOOST_TEST((map(q[i]) == map(p[i])));
  }
  BOOST_TEST((map(q[0]) != map(p[0])));
}

// Scales whose product overflows or underflows while y does not: y = s_x s_w Σ q_x q_w of two inputs.
BOOST_AUTO_TEST_CASE(scales_at_the_ends_of_the_range) {
  struct Case {
    float x, w;
  };
  for (const Case c : {Case{1e-20f, 1e-22f}, {1e-30f, 1e-6f}, {1e25f, 1e-30f}, {1e35f, 1e-35f}, {1e25f, 1e22f}}) {
    ParameterLayout layout;
    layout.add("w", 2, 4000, ParameterKind::matrix);
    Parameters<float> p(layout);
    map(p[0]).row(0).setConstant(c.w);
    map(p[0]).row(1).setConstant(c.w).tail(2000) *= -1.0f;  // a sum of 0
    const RowMajorMatrix<float> x = RowMajorMatrix<float>::Constant(1, 4000, c.x);
    const RowMajorMatrix<float> y = multiply(QuantizedLinear<float>(p, absmax8_fine), p, {0, 1, -1}, x);
    const double exact = 4000 * static_cast<double>(c.x) * static_cast<double>(c.w);
    if (exact > static_cast<double>(std::numeric_limits<float>::max()))
      BOOST_TEST(std::isinf(y(0, 0)));
    else  // four roundings, and those of both x̂, within an ulp each
      BOOST_TEST(
          within(y(0, 0), exact,
                 8 * unit_roundoff<float> * exact + static_cast<double>(std::numeric_limits<float>::denorm_min())));
    BOOST_TEST(y(0, 1) == 0.0f);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
