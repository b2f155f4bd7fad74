#include <boost/test/unit_test.hpp>
#include <meso/attention/rotate.hpp>
#include <meso/core/random.hpp>

using namespace meso;

BOOST_AUTO_TEST_SUITE(rotate)

// Bounds: those of meso::Rotary; a turn and its reverse have twice the error.
// Channels (c, c + 2) of a head are turned by position·base^{−2c/4}; what lies behind the heads stays.
BOOST_AUTO_TEST_CASE(turns_heads_by_their_positions_and_back) {
  const Index time = 3, heads = 2, head_size = 4, rows = 2 * time;
  const Rotary rotary{.base = 100};
  Buffer<double> table;
  fill_rotation(rotary, time, head_size, table);
  BOOST_TEST(table.size() == time * head_size);
  RowMajorMatrix<double> x(rows, heads * head_size + 3);
  fill_normal(view(x), Random{1, 1});
  const RowMajorMatrix<double> before = x;
  const auto error = [&](double angle) { return (3 + (std::log(rotary.base) + 3) * angle) * 0x1p-53; };
  CpuContext<> context(2);
  rotate_heads(context, rotary, view(x), table.data(), time, heads, head_size, false);
  for (Index i = 0; i < rows; ++i)
    for (Index h = 0; h < heads; ++h)
      for (Index c = 0; c < 2; ++c) {
        const double angle = static_cast<double>(i % time) * (c == 0 ? 1.0 : 0.1);
        const double a = before(i, h * 4 + c), b = before(i, h * 4 + 2 + c);
        const double cosine = std::cos(angle), sine = std::sin(angle),
                     bound = error(angle) * (std::abs(a) + std::abs(b));
        BOOST_TEST(std::abs(x(i, h * 4 + c) - (a * cosine - b * sine)) <= bound);
        BOOST_TEST(std::abs(x(i, h * 4 + 2 + c) - (a * sine + b * cosine)) <= bound);
      }
  BOOST_TEST((x.rightCols(3) == before.rightCols(3)));
  rotate_heads(context, rotary, view(x), table.data(), time, heads, head_size, true);
  BOOST_TEST((x - before).cwiseAbs().maxCoeff() <= 2 * error(time) * 4 * before.cwiseAbs().maxCoeff());
  BOOST_CHECK_THROW(rotate_heads(context, rotary, view(x), table.data(), time, heads + 1, head_size, false),
                    std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(other_positions_leave_heads_alone) {
  Buffer<float> table;
  fill_rotation(LearnedPosition{}, 5, 4, table);
  BOOST_TEST(table.size() == 0);
  RowMajorMatrix<float> x = RowMajorMatrix<float>::Ones(2, 8);
  CpuContext<> context(1);
  rotate_heads(context, NoPosition{}, view(x), table.data(), 2, 2, 4, false);
  BOOST_TEST((x.array() == 1.0f).all());
}

BOOST_AUTO_TEST_SUITE_END()
