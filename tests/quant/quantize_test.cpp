#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <meso/quant/absmax.hpp>
#include <meso/quant/zeropoint.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "support/random.hpp"
#include "support/tolerance.hpp"

namespace {

using namespace meso;
using namespace meso::test;

static_assert(QuantizationScheme<Absmax, float> && QuantizationScheme<Absmax, double> &&
              QuantizationScheme<Zeropoint, float> && QuantizationScheme<Zeropoint, double, HalfAway>);
static_assert(std::is_same_v<decltype(quantize(Eigen::MatrixXf(), Absmax{})), QuantizedMatrix<float, std::int8_t>>);
static_assert(
    std::is_same_v<decltype(quantize(Eigen::MatrixXd(), Zeropoint{})), QuantizedMatrix<double, std::uint8_t>>);

constexpr Granularity granularities[] = {per_tensor,     per_row, per_group(1), per_group(7),
                                         per_group(128), {0, 1},  {3, 5}};

/// |x − x̂| within the documented bounds for every coefficient; max|x| ≤ 2^b·s.
template <class S>
void check_error(const RowMajorMatrix<S>& x, const Absmax& scheme, const Granularity& g) {
  const auto q = quantize(x, scheme, g);
  const RowMajorMatrix<S> back = dequantize(q);
  const double top = static_cast<double>((1 << (scheme.bits - 1)) - 1), u = unit_roundoff<S>;
  BOOST_TEST(q.values.template cast<int>().cwiseAbs().maxCoeff() <= static_cast<int>(top));
  BOOST_TEST(all_within(back.data(), x.data(), x.size(), [&](Index i) {
    const double s = static_cast<double>(q.scale(i / x.cols(), i % x.cols()));
    return s / 2 + 3 * u * top * s * (1 + 2 * u);
  }));
}
template <class S>
void check_error(const RowMajorMatrix<S>& x, const Zeropoint& scheme, const Granularity& g) {
  const auto q = quantize(x, scheme, g);
  const RowMajorMatrix<S> back = dequantize(q);
  const double levels = static_cast<double>(1 << scheme.bits), u = unit_roundoff<S>;
  BOOST_TEST(q.values.template cast<int>().maxCoeff() <= (1 << scheme.bits) - 1);
  BOOST_TEST(q.zero_points.minCoeff() >= 0);
  BOOST_TEST(q.zero_points.maxCoeff() <= (1 << scheme.bits) - 1);
  BOOST_TEST(all_within(back.data(), x.data(), x.size(), [&](Index i) {
    const double s = static_cast<double>(q.scale(i / x.cols(), i % x.cols()));
    return s / 2 + 4 * levels * u * s;
  }));
}

std::string error_of(const Eigen::MatrixXf& x, const Granularity& g) {
  try {
    quantize(x, Absmax{}, g);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "";
}

BOOST_AUTO_TEST_SUITE(quantized_matrices)

BOOST_AUTO_TEST_CASE(absmax_closed_form) {
  // 3 bits: levels −3 … 3, s = 6/3 = 2; 3/2 and −1/2 are ties.
  Eigen::MatrixXf x(2, 3);
  x << 6, 3, -1, -6, 0.9f, 5.1f;
  const auto q = quantize(x, Absmax{3});
  Eigen::MatrixXi expected(2, 3);
  expected << 3, 2, 0, -3, 0, 3;
  BOOST_TEST((q.values.cast<int>() == expected));
  BOOST_TEST(q.scales.size() == 1);
  BOOST_TEST(q.scales(0, 0) == 2.0f);
  BOOST_TEST((dequantize(q) == 2.0f * expected.cast<float>()));
  // Per row: s = 2 in both here; per column: 2, 1, 5.1/3.
  const auto columns = quantize(x, Absmax{3}, {0, 1});
  BOOST_TEST(columns.scales.rows() == 1);
  BOOST_TEST(columns.scale(1, 1) == 1.0f);
  BOOST_TEST(static_cast<int>(columns.values(0, 1)) == 3);
  BOOST_TEST(static_cast<int>(columns.values(1, 1)) == 1);
}

BOOST_AUTO_TEST_CASE(zeropoint_closed_form) {
  // 2 bits on [−1, 5]: s = 2, z = round(1/2) = 0 by ties to even. x/s = −0.5, 0.5, 1.5, 2.5 → 0, 0, 2, 2.
  Eigen::Vector4f x(-1, 1, 3, 5);
  const auto q = quantize(x, Zeropoint{2});
  BOOST_TEST(q.scales(0, 0) == 2.0f);
  BOOST_TEST(q.zero_points(0, 0) == 0);
  BOOST_TEST((q.values.cast<int>() == Eigen::Vector4i(0, 0, 2, 2)));
  // [−3, 0]: the range holds zero. s = 1, z = 3.
  Eigen::Vector3f y(-3, -1, -2);
  const auto r = quantize(y, Zeropoint{2});
  BOOST_TEST(r.zero_points(0, 0) == 3);
  BOOST_TEST((r.values.cast<int>() == Eigen::Vector3i(0, 2, 1)));
  BOOST_TEST((dequantize(r) == y));
  // Both ends are ties that round up, −lo/s = 1.5 and hi/s = 13.5, so that hi is clipped: its error is s/2.
  Eigen::Vector2d both(-1.5, 13.5);
  const auto clipped = quantize(both, Zeropoint{4});
  BOOST_TEST(clipped.zero_points(0, 0) == 2);
  BOOST_TEST((dequantize(clipped) == Eigen::Vector2d(-2, 13)));
}

BOOST_AUTO_TEST_CASE(the_extremes_hit_the_last_level) {
  for (int bits = 2; bits <= 8; ++bits) {
    const int top = (1 << (bits - 1)) - 1;
    for (int i = 1; i < 200; ++i) {
      const float a = static_cast<float>(i) * 0.0137f;
      const Eigen::Vector3f x(a, -a, a / 3);
      const auto q = quantize(x, Absmax{bits});
      BOOST_TEST(static_cast<int>(q.values(0, 0)) == top);
      BOOST_TEST(static_cast<int>(q.values(1, 0)) == -top);
      BOOST_TEST(static_cast<int>(q.values(2, 0)) == NearestEven{}(static_cast<double>(top) / 3));
    }
  }
}

BOOST_AUTO_TEST_CASE(errors_are_within_half_a_step) {
  const RowMajorMatrix<float> x = gaussian<float>(11, 37, 1);
  const RowMajorMatrix<double> y = gaussian<double>(11, 37, 2).array() * 1e-3 + 1.0;
  for (const Granularity& g : granularities) {
    for (int bits = 1; bits <= 8; ++bits) {
      if (bits > 1) check_error(x, Absmax{bits}, g), check_error(y, Absmax{bits}, g);
      check_error(x, Zeropoint{bits}, g), check_error(y, Zeropoint{bits}, g);
    }
  }
}

BOOST_AUTO_TEST_CASE(scales_belong_to_their_blocks) {
  const RowMajorMatrix<float> x = gaussian<float>(7, 11, 3);
  for (const Granularity& g : granularities) {
    const auto q = quantize(x, Absmax{}, g);
    const Index rows = g.rows ? g.rows : 7, cols = g.cols ? g.cols : 11;
    BOOST_TEST(q.scales.rows() == (7 + rows - 1) / rows);
    BOOST_TEST(q.scales.cols() == (11 + cols - 1) / cols);
    for (Index i = 0; i < 7; i += rows)
      for (Index j = 0; j < 11; j += cols) {
        const auto block = x.block(i, j, std::min<Index>(rows, 7 - i), std::min<Index>(cols, 11 - j));
        BOOST_TEST(q.scale(i, j) == block.cwiseAbs().maxCoeff() / 127.0f);
      }
  }
}

BOOST_AUTO_TEST_CASE(equal_numbers_are_exact_to_one_ulp) {
  // |N·fl(c/N) − c| < ulp(c) before the product is rounded, and c is a number: one ulp after it.
  for (int i = 1; i < 500; ++i) {
    const float c = 0.37f * static_cast<float>(i);
    for (const float v : {c, -c})
      for (int bits = 2; bits <= 8; ++bits) {
        const Eigen::RowVectorXf x = Eigen::RowVectorXf::Constant(3, v);
        const double ulp = static_cast<double>(std::nextafter(c, 1e9f) - c);
        const float a = fake_quantize(x, Absmax{bits})(0, 1), z = fake_quantize(x, Zeropoint{bits})(0, 2);
        BOOST_TEST(within(static_cast<double>(a), static_cast<double>(v), ulp));
        BOOST_TEST(within(static_cast<double>(z), static_cast<double>(v), ulp));
      }
  }
}

BOOST_AUTO_TEST_CASE(zeros_and_underflow) {
  for (const Granularity& g : granularities) {
    const auto a = quantize(Eigen::MatrixXf::Zero(3, 9), Absmax{}, g);
    BOOST_TEST((a.scales.array() == 1.0f).all());
    BOOST_TEST(a.values.isZero());
    const auto z = quantize(Eigen::MatrixXd::Zero(3, 9), Zeropoint{}, g);
    BOOST_TEST((z.scales.array() == 1.0).all());
    BOOST_TEST(z.values.isZero());
    BOOST_TEST(z.zero_points.isZero());
  }
  // A subnormal scale has too few digits for a level: it counts as zero. The smallest normal one does not.
  const float smallest = std::numeric_limits<float>::min();
  for (const float top : {std::numeric_limits<float>::denorm_min(), 190 * std::numeric_limits<float>::denorm_min(),
                          smallest, 100 * smallest}) {
    const Eigen::Vector2f x(top, -top / 2);
    BOOST_TEST(quantize(x, Absmax{8}).scales(0, 0) == 1.0f);
    BOOST_TEST(fake_quantize(x, Absmax{8}).isZero(0));
    BOOST_TEST(fake_quantize(x, Zeropoint{8}).isZero(0));
  }
  const Eigen::Vector2f x(127 * smallest, -64 * smallest);
  BOOST_TEST((fake_quantize(x, Absmax{8}) == x));
  // One block of zeros beside another.
  Eigen::MatrixXf mixed = Eigen::MatrixXf::Zero(2, 4);
  mixed(1, 2) = 3.0f;
  const auto q = quantize(mixed, Absmax{}, per_row);
  BOOST_TEST(q.scale(0, 0) == 1.0f);
  BOOST_TEST((dequantize(q) == mixed));
}

BOOST_AUTO_TEST_CASE(a_range_wider_than_the_largest_number) {
  const double largest = std::numeric_limits<double>::max();
  const Eigen::Vector3d x(-largest / 1.5, 0.0, largest / 1.5);
  for (const int bits : {2, 4, 8}) {
    const Eigen::VectorXd back = fake_quantize(x, Zeropoint{bits});
    const double step = x[2] / ((1 << bits) - 1) * 2;
    BOOST_TEST(back.allFinite());
    for (Index i = 0; i < 3; ++i)
      BOOST_TEST(within(back[i], x[i], step / 2 + 4 * (1 << bits) * unit_roundoff<double> * step));
  }
}

/// The stated bounds with s by its definition, in long double, which holds what overflows in S.
template <class S, class Scheme, class R>
void check_extremes(const RowMajorMatrix<S>& x, const Scheme& scheme, const Granularity& g, const R& rounding) {
  constexpr bool symmetric = std::is_same_v<Scheme, Absmax>;
  const auto q = quantize(x, scheme, g, rounding);
  const RowMajorMatrix<S> back = dequantize(q);
  BOOST_TEST(back.allFinite());
  BOOST_TEST(q.scales.allFinite());
  const long double levels = symmetric ? (1 << (scheme.bits - 1)) - 1 : (1 << scheme.bits) - 1;
  const long double u = static_cast<long double>(unit_roundoff<S>);
  const long double smallest = static_cast<long double>(std::numeric_limits<S>::min());
  const Index down = g.rows ? g.rows : x.rows(), across = g.cols ? g.cols : x.cols();
  bool within = true;
  for (Index i = 0; i < x.rows(); ++i)
    for (Index j = 0; j < x.cols(); ++j) {
      const Index row = i / down * down, col = j / across * across;
      const RowMajorMatrix<long double> block =
          x.block(row, col, std::min<Index>(down, x.rows() - row), std::min<Index>(across, x.cols() - col))
              .template cast<long double>();
      const long double low = std::min<long double>(block.minCoeff(), 0),
                        high = std::max<long double>(block.maxCoeff(), 0);
      const long double s = (symmetric ? std::max<long double>(-low, high) : high - low) / levels;
      const long double bound = s < smallest * (1 + u)
                                    ? levels * smallest * (1 + 2 * u)
                                    : s / 2 + (symmetric ? 3 * levels : 4 * (levels + 1)) * u * s * (1 + 2 * u);
      const long double error = std::abs(static_cast<long double>(back(i, j)) - static_cast<long double>(x(i, j)));
      if (error > bound)
        BOOST_ERROR("x " << x(i, j) << " came back as " << back(i, j) << ", bits " << scheme.bits << ", range " << low
                         << " … " << high);
      within = within && error <= bound;
    }
  BOOST_TEST(within);
}
template <class S>
void extremes() {
  const S most = std::numeric_limits<S>::max(), least = std::numeric_limits<S>::min(),
          tiny = std::numeric_limits<S>::denorm_min();
  RowMajorMatrix<S> x(12, 4);
  x << most, -most, 1, 0,                                         //
      S(0.999) * most, S(-0.999) * most, 1, 0,                    //
      most, S(-0.6) * most, S(0.5) * most, least,                 //
      S(-0.9) * most, S(0.3) * most, S(-0.45) * most, -tiny,      //
      most, most, most, most,                                     //
      -most, -most, -most, -most,                                 //
      most, tiny, -tiny, 0,                                       //
      tiny, -tiny, 5 * tiny, 0,                                   //
      least, -least, tiny, 0,                                     //
      256 * least, -100 * least, 3 * tiny, least,                 //
      S(127.5) * least, S(-14.9) * least, S(7.1) * least, -tiny,  //
      most / 2, -most / 2, most / 3, std::nextafter(most, S(0));
  for (const Granularity& g : {per_tensor, per_row, Granularity{1, 2}, Granularity{2, 3}})
    for (int bits = 1; bits <= 8; ++bits) {
      check_extremes(x, Zeropoint{bits}, g, NearestEven{});
      check_extremes(x, Zeropoint{bits}, g, HalfAway{});
      if (bits == 1) continue;
      check_extremes(x, Absmax{bits}, g, NearestEven{});
      check_extremes(x, Absmax{bits}, g, HalfAway{});
    }
}
BOOST_AUTO_TEST_CASE(finite_numbers_come_back_finite_and_within_the_bound) {
  extremes<float>();
  extremes<double>();
  // ±3.4e38 are 7.5 steps from 0: a tie, to 8 on either side, where s·8 overflows.
  const Eigen::VectorXf back = fake_quantize(Eigen::Vector4f(3.4e38f, -3.4e38f, 1, 0), Zeropoint{4});
  BOOST_TEST(back[1] == -std::numeric_limits<float>::max());
  BOOST_TEST(within(back[0], 7 * (6.8e38 / 15), 7 * (6.8e38 / 15) * 4 * unit_roundoff<float>));
  BOOST_TEST((back.tail(2).array() == 0.0f).all());
  // One bit, a range beyond the largest number: the nearer end, or 0.
  const float most = std::numeric_limits<float>::max();
  BOOST_TEST((fake_quantize(Eigen::Vector3f(most, -most / 2, most / 4), Zeropoint{1}) == Eigen::Vector3f(most, 0, 0)));
  BOOST_TEST(
      (fake_quantize(Eigen::Vector3f(most / 2, -most, -most / 4), Zeropoint{1}) == Eigen::Vector3f(0, -most, 0)));
}

// A power of two changes the scale alone.
BOOST_AUTO_TEST_CASE(the_same_integers_at_every_magnitude) {
  const RowMajorMatrix<double> x = gaussian<double>(3, 20, 5);
  const auto a = quantize(x, Absmax{8}, per_row);
  const auto z = quantize(x, Zeropoint{4}, per_row);
  for (const int exponent : {-1000, -500, 500, 1000}) {
    const double factor = std::ldexp(1.0, exponent);
    const RowMajorMatrix<double> y = factor * x;
    BOOST_TEST((quantize(y, Absmax{8}, per_row).values == a.values));
    BOOST_TEST((quantize(y, Zeropoint{4}, per_row).values == z.values));
    BOOST_TEST((fake_quantize(y, Absmax{8}, per_row) == factor * dequantize(a)));
    BOOST_TEST((fake_quantize(y, Zeropoint{4}, per_row) == factor * dequantize(z)));
  }
}

BOOST_AUTO_TEST_CASE(what_is_not_finite_throws_with_its_position) {
  for (const Granularity& g : granularities) {
    for (const float v : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
      Eigen::MatrixXf x = Eigen::MatrixXf::Random(5, 19);
      x(3, 16) = v;
      x(4, 0) = v;  // later in row order
      BOOST_TEST(error_of(x, g).find("x(3, 16)") != std::string::npos);
    }
    BOOST_TEST(error_of(Eigen::MatrixXf::Random(5, 19), g).empty());
  }
  CpuContext<> context(3);
  RowMajorMatrix<float> large = RowMajorMatrix<float>::Zero(400, 300);
  large(399, 1) = large(200, 7) = std::numeric_limits<float>::quiet_NaN();
  try {
    quantize(context, view(large), Absmax{});
    BOOST_ERROR("no exception");
  } catch (const std::invalid_argument& e) {
    BOOST_TEST(std::string(e.what()).find("x(200, 7)") != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(bad_options_throw) {
  const Eigen::MatrixXf x = Eigen::MatrixXf::Ones(2, 2);
  for (const int bits : {-1, 0, 1, 9}) BOOST_CHECK_THROW(quantize(x, Absmax{bits}), std::invalid_argument);
  for (const int bits : {-1, 0, 9}) BOOST_CHECK_THROW(quantize(x, Zeropoint{bits}), std::invalid_argument);
  BOOST_CHECK_THROW(quantize(x, Absmax{}, per_group(-3)), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(empty_matrices) {
  for (const Granularity& g : granularities)
    for (const auto& [rows, cols] : {std::pair<Index, Index>{0, 3}, {3, 0}, {0, 0}}) {
      const Eigen::MatrixXf back = fake_quantize(Eigen::MatrixXf(rows, cols), Zeropoint{}, g);
      BOOST_TEST(back.rows() == rows);
      BOOST_TEST(back.cols() == cols);
    }
}

BOOST_AUTO_TEST_CASE(every_expression_keeps_its_storage_order) {
  const RowMajorMatrix<float> x = gaussian<float>(9, 14, 5);
  const Eigen::MatrixXf columns = x;
  static_assert(!decltype(fake_quantize(columns, Absmax{}))::IsRowMajor);
  static_assert(decltype(fake_quantize(x, Absmax{}))::IsRowMajor);
  static_assert(decltype(fake_quantize(columns.transpose(), Absmax{}))::IsRowMajor);
  const RowMajorMatrix<float> expected = fake_quantize(x, Zeropoint{4}, per_row);
  BOOST_TEST((expected == dequantize(quantize(x, Zeropoint{4}, per_row))));
  BOOST_TEST((fake_quantize(columns, Zeropoint{4}, per_row) == expected));
  BOOST_TEST((fake_quantize(columns.array() * 1.0f, Zeropoint{4}, per_row) == expected));
  BOOST_TEST((fake_quantize(columns.transpose(), Zeropoint{4}, {0, 1}) == expected.transpose()));
  BOOST_TEST((fake_quantize(x.block(1, 2, 3, 4), Absmax{}) == fake_quantize(columns.block(1, 2, 3, 4), Absmax{})));
  CpuContext<> context(1);
  const auto window = quantize(context, view(x).block(1, 2, 3, 4), Absmax{}, per_row);
  BOOST_TEST((window.values == quantize(x.block(1, 2, 3, 4), Absmax{}, per_row).values));
}

BOOST_AUTO_TEST_CASE(quantizing_twice_changes_nothing) {
  // A power of two as scale: x̂ is exact, and so are its own extremes. Otherwise max|x̂| may differ by an ulp.
  RowMajorMatrix<float> x = gaussian<float>(6, 20, 6);
  x.col(0).setConstant(127.0f / 32);
  const auto once = quantize(x, Absmax{}, per_row);
  const auto twice = quantize(dequantize(once), Absmax{}, per_row);
  BOOST_TEST((once.values == twice.values));
  BOOST_TEST((once.scales == twice.scales));
}

BOOST_AUTO_TEST_CASE(the_same_bits_for_any_number_of_threads) {
  const RowMajorMatrix<float> x = gaussian<float>(301, 203, 7);
  for (const Granularity& g : granularities) {
    CpuContext<> one(1);
    const auto expected = quantize(one, view(x), Zeropoint{5}, g);
    BOOST_TEST((expected.values == quantize(x, Zeropoint{5}, g).values));
    for (const int threads : {2, 3}) {
      CpuContext<> context(threads);
      const auto q = quantize(context, view(x), Zeropoint{5}, g);
      BOOST_TEST((q.values == expected.values));
      BOOST_TEST((q.scales == expected.scales));
      BOOST_TEST((q.zero_points == expected.zero_points));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
