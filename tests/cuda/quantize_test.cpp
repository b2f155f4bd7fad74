#include <meso/cuda/quantized_matrix.cuh>
#include <meso/cuda/statistics.cuh>

#include "tests/cuda/device_test.hpp"
#include "tests/support/oracle_quant.hpp"
#include "tests/support/oracle_stats.hpp"

using namespace meso;
using namespace meso::test;
using cuda::bf16;

namespace {

template <class S, class Scheme>
void check_blocks(const Scheme& scheme, const cuda::Granularity& granularity, bool ties) {
  on_device([&](cuda::Context& context) {
    const Index rows = 7, cols = 50;
    DeviceMatrix<S> x(context, rows, cols, 3, 1, 2, 0.5), back(context, rows, cols, 2);
    if (ties) {
      oracle::Matrix m(rows, cols);
      for (Index i = 0; i < rows * cols; ++i) m.data[oracle::at(i)] = 0.5 * static_cast<double>(i % 41 - 13);
      x.set(m);
    }
    const oracle::Matrix values = x.values();
    cuda::QuantizedMatrix<S, typename Scheme::Storage> q;
    cuda::quantize(context, x.constant(), scheme, granularity, q);
    cuda::dequantize(context, q, back.view());
    std::vector<typename Scheme::Storage> integers(static_cast<std::size_t>(rows * cols));
    std::vector<cuda::QuantizationGrid<S>> grids(static_cast<std::size_t>(q.grids.size()));
    cuda::download(context, q.values.data(), rows * cols, integers.data());
    cuda::download(context, q.grids.data(), q.grids.size(), grids.data());
    const oracle::Matrix returned = back.values();
    for (Index a = 0; a < q.down; ++a)
      for (Index b = 0; b < q.across; ++b) {
        oracle::Vector block;
        std::vector<std::pair<Index, Index>> places;
        for (Index i = a * q.block_rows; i < std::min<Index>(rows, (a + 1) * q.block_rows); ++i)
          for (Index j = b * q.block_cols; j < std::min<Index>(cols, (b + 1) * q.block_cols); ++j) {
            block.push_back(values(i, j));
            places.emplace_back(i, j);
          }
        oracle::QuantizedBlock expected;
        if constexpr (std::is_same_v<Scheme, cuda::Absmax>)
          expected = oracle::absmax<S>(block, scheme.bits);
        else
          expected = oracle::zeropoint<S>(block, scheme.bits);
        const cuda::QuantizationGrid<S> grid = grids[oracle::at(a * q.across + b)];
        MESO_CHECK(static_cast<double>(grid.scale) == expected.scale);
        MESO_CHECK(static_cast<double>(grid.zero) == expected.zero);
        for (std::size_t k = 0; k < places.size(); ++k) {
          const auto [i, j] = places[k];
          MESO_CHECK(static_cast<double>(integers[oracle::at(i * cols + j)]) == expected.q[k]);
          MESO_CHECK(returned(i, j) == oracle::round_to<S>(expected.back[k]));
        }
      }
    MESO_CHECK(back.intact());
  });
}

}  // namespace

MESO_TEST_SUITE(cuda_quantize)

MESO_TEST(absmax_has_the_bits_of_the_definition) {
  for (const cuda::Granularity g : {cuda::Granularity{}, cuda::Granularity{1, 0}, cuda::Granularity{1, 16}})
    for (const int bits : {8, 4, 2}) check_blocks<float>(cuda::Absmax{bits}, g, false);
  check_blocks<float>(cuda::Absmax{8}, {}, true);
  check_blocks<double>(cuda::Absmax{8}, {1, 0}, false);
}
MESO_TEST(zeropoint_has_the_bits_of_the_definition) {
  for (const cuda::Granularity g : {cuda::Granularity{}, cuda::Granularity{1, 0}, cuda::Granularity{1, 16}})
    for (const int bits : {8, 4, 1}) check_blocks<float>(cuda::Zeropoint{bits}, g, false);
  check_blocks<float>(cuda::Zeropoint{4}, {}, true);
  check_blocks<double>(cuda::Zeropoint{4}, {1, 0}, false);
}
MESO_TEST(not_finite_is_named) {
  on_device([](cuda::Context& context) {
    DeviceMatrix<float> x(context, 3, 5, 1, 1);
    oracle::Matrix m = x.values();
    m(1, 3) = std::numeric_limits<double>::quiet_NaN();
    x.set(m);
    cuda::QuantizedMatrix<float, std::int8_t> q;
    std::string text;
    try {
      cuda::quantize(context, x.constant(), cuda::Absmax{8}, {}, q);
    } catch (const std::invalid_argument& e) {
      text = e.what();
    }
    MESO_CHECK(text == "quantize: x(1, 3) is nan; a quantized matrix must be finite");
    MESO_CHECK_THROWS(cuda::quantize(context, x.constant(), cuda::Absmax{1}, {}, q), std::invalid_argument);
  });
}

MESO_TEST(kurtosis_and_maximum_of_tokens) {
  on_device([](cuda::Context& context) {
    const Index rows = 6, cols = 300;
    DeviceMatrix<float> x(context, rows, cols, 3, 1, 2, 30);
    oracle::Matrix m = x.values();
    m(1, 17) = 3000;  // an outlier channel
    for (Index j = 0; j < cols; ++j) m(2, j) = 7;
    m(3, 5) = std::numeric_limits<double>::quiet_NaN();
    m(4, 5) = std::numeric_limits<double>::infinity();
    x.set(m);
    cuda::Buffer<cuda::TokenStatistics> out(rows);
    cuda::token_statistics(context, x.constant(), roundoff<float>(), out.data());
    std::vector<cuda::TokenStatistics> s(static_cast<std::size_t>(rows));
    cuda::download(context, out.data(), rows, s.data());
    const oracle::Matrix values = x.values();
    for (const Index i : {Index{0}, Index{1}, Index{5}}) {
      const double expected = oracle::kurtosis(values.row(i));
      MESO_CHECK_WITHIN(s[oracle::at(i)].kurtosis, expected, 1e-12 * expected);
      MESO_CHECK(s[oracle::at(i)].top == oracle::central_moments(values.row(i)).top);
    }
    MESO_CHECK(s[1].kurtosis > 250);
    MESO_CHECK(std::isnan(s[2].kurtosis) && s[2].top == 7);
    MESO_CHECK(std::isnan(s[3].kurtosis) && std::isnan(s[3].top));
    MESO_CHECK(std::isnan(s[4].kurtosis) && std::isinf(s[4].top));
  });
}

MESO_TEST(kurtosis_of_doubles_at_every_magnitude) {
  on_device([](cuda::Context& context) {
    const double sizes[] = {1e-320, 1e-300, 1e-78, 1.0, 1e78, 1e300, 1.7e308};
    DeviceMatrix<double> x(context, 8, 300, 1);
    oracle::Matrix m(8, 300);
    for (Index i = 0; i < 7; ++i) m(i, 40 * i) = -sizes[i];
    m(7, 3) = 1e300, m(7, 4) = std::numeric_limits<double>::quiet_NaN();
    x.set(m);
    std::vector<cuda::TokenStatistics> s;
    cuda::token_statistics(context, x.constant(), s);
    for (std::size_t i = 0; i < 7; ++i) {
      MESO_CHECK_WITHIN(s[i].kurtosis, 298 + 1.0 / 299, 2 * 312 * 0x1p-53 * 299);  // 2(n + 12)u
      MESO_CHECK(s[i].top == sizes[i]);
    }
    MESO_CHECK(std::isnan(s[7].kurtosis) && std::isnan(s[7].top));
  });
}

MESO_TEST_SUITE_END()
