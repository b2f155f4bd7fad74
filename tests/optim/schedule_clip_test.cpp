#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <meso/optim/clip.hpp>
#include <meso/optim/schedule.hpp>
#include <stdexcept>
#include <string>

#include "support/error_of.hpp"
#include "support/random.hpp"
#include "support/tolerance.hpp"

using namespace meso;
using meso::test::error_of;
using meso::test::within;

namespace {
constexpr double u64 = test::unit_roundoff<double>;

static_assert(Schedule<Constant> && Schedule<Linear> && Schedule<WarmupCosine>);

ParameterLayout three_parameters() {
  ParameterLayout layout;
  layout.add("a", 150, 333, ParameterKind::matrix);  // 49,950 elements: four tiles, the last one short
  layout.add("b", 1, 7, ParameterKind::bias);
  layout.add("c", 3, 5, ParameterKind::embedding);
  return layout;
}
}  // namespace

BOOST_AUTO_TEST_SUITE(optim_schedule_and_clip)

BOOST_AUTO_TEST_CASE(constant) {
  BOOST_TEST(Constant{}(1) == 1.0);
  BOOST_TEST(Constant{0.5}(1000) == 0.5);
}

BOOST_AUTO_TEST_CASE(linear) {
  const Linear s{.warmup = 4, .total = 12, .floor = 0.2};
  BOOST_TEST(s(1) == 0.25);
  BOOST_TEST(s(3) == 0.75);
  BOOST_TEST(s(4) == 1.0);
  BOOST_TEST(within(s(8), 0.6, 4 * u64));
  BOOST_TEST(within(s(12), 0.2, 4 * u64));
  BOOST_TEST(within(s(100), 0.2, 4 * u64));
  BOOST_TEST((Linear{.total = 10}(5)) == 0.5);
}

BOOST_AUTO_TEST_CASE(warmup_cosine) {
  const WarmupCosine s{.warmup = 10, .total = 110};
  BOOST_TEST(s(1) == 0.1);
  BOOST_TEST(s(10) == 1.0);
  BOOST_TEST(within(s(60), 0.55, 4 * u64));  // half way: floor + (1 − floor)/2
  BOOST_TEST(within(s(35), 0.1 + 0.45 * (1 + std::sqrt(0.5)), 8 * u64));
  BOOST_TEST(within(s(110), 0.1, 4 * u64));
  BOOST_TEST(within(s(1000), 0.1, 4 * u64));
  for (Index step = 10; step < 110; ++step) BOOST_TEST(s(step + 1) < s(step));
}

BOOST_AUTO_TEST_CASE(schedules_name_what_is_missing) {
  BOOST_CHECK_THROW(WarmupCosine{}(1), std::invalid_argument);
  BOOST_CHECK_THROW((WarmupCosine{.warmup = 10, .total = 10}(1)), std::invalid_argument);
  BOOST_CHECK_THROW(Linear{}(1), std::invalid_argument);
  BOOST_CHECK_THROW((Linear{.warmup = -1, .total = 10}(1)), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(schedules_check_the_step_and_every_parameter) {
  const double nan = std::nan(""), inf = HUGE_VAL;
  BOOST_TEST(error_of([] { Constant{}(-1); }) == "Constant: the step is -1, expected a number that counts from 1");
  BOOST_TEST(error_of([] { Linear{.total = 9}(-2); }) ==
             "Linear: the step is -2, expected a number that counts from 1");
  BOOST_TEST(error_of([] { WarmupCosine{.warmup = 3, .total = 9}(-1); }) ==
             "WarmupCosine: the step is -1, expected a number that counts from 1");
  for (const double bad : {nan, inf, -0.1}) {
    const std::string is = message(" is ", bad, ", expected a finite number >= 0");
    BOOST_TEST(error_of([&] { Constant{bad}(1); }) == "Constant: factor" + is);
    for (const Index step : {1, 5, 20}) {  // whether the floor counts in that step or not
      BOOST_TEST(error_of([&] { Linear{.warmup = 3, .total = 9, .floor = bad}(step); }) == "Linear: floor" + is);
      BOOST_TEST(error_of([&] { WarmupCosine{.warmup = 3, .total = 9, .floor = bad}(step); }) ==
                 "WarmupCosine: floor" + is);
    }
  }
}

BOOST_AUTO_TEST_CASE(norm_of_known_numbers) {
  CpuContext<> context(1);
  Parameters<float> g(three_parameters());
  BOOST_TEST(global_norm(context, g) == 0.0);
  g["a"](149, 332) = 3;
  g["b"](0, 6) = 4;
  BOOST_TEST(global_norm(context, g) == 5.0);
  g.layout["b"].frozen = true;
  BOOST_TEST(global_norm(context, g) == 3.0);
  BOOST_TEST(global_norm(context, g, three_parameters()) == 5.0);
  map(g["a"]).setConstant(1e30f);  // the square overflows a float
  BOOST_TEST(within(global_norm(context, g) / (static_cast<double>(1e30f) * std::sqrt(49950.0)), 1, 2048 * u64));
  g["c"](1, 1) = std::numeric_limits<float>::quiet_NaN();
  BOOST_TEST(std::isnan(global_norm(context, g)));
}

BOOST_AUTO_TEST_CASE(norm_has_the_same_bits_for_any_number_of_threads) {
  Parameters<double> g(three_parameters());
  double naive = 0;
  for (const ParameterInfo& info : g.layout) {
    const View<double> v = parameter_view(g.values.data(), info);
    fill_normal(v, Random{3, stream_of(info.name)});
    for (Index k = 0; k < v.size(); ++k) naive += v.data[k] * v.data[k];
  }
  CpuContext<> one(1);
  const double expected = global_norm(one, g);
  BOOST_TEST(within(expected, std::sqrt(naive), std::sqrt(naive) * 50000 * u64));
  for (const int threads : {2, 3}) {
    CpuContext<> context(threads);
    BOOST_TEST(global_norm(context, g) == expected);
  }
}

BOOST_AUTO_TEST_CASE(norm_rejects_another_layout) {
  CpuContext<> context(1);
  ParameterLayout other;
  other.add("a", 2, 2, ParameterKind::matrix);
  const Parameters<float> g(three_parameters());
  BOOST_CHECK_THROW(global_norm(context, g, other), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(scale) {
  BOOST_TEST(clip_scale(0.5, 1.0) == 1.0);
  BOOST_TEST(clip_scale(0.0, 1.0) == 1.0);
  BOOST_TEST(within(clip_scale(4.0, 1.0), 1 / 4.000001, u64));
  BOOST_TEST(clip_scale(1.0, 1.0) == 1 / 1.000001);
  BOOST_TEST(clip_scale(std::numeric_limits<double>::infinity(), 1.0) == 0.0);
  BOOST_TEST(std::isnan(clip_scale(std::nan(""), 1.0)));
  BOOST_CHECK_THROW(clip_scale(1.0, 0.0), std::invalid_argument);
  BOOST_CHECK_THROW(clip_scale(1.0, std::nan("")), std::invalid_argument);
  BOOST_CHECK_THROW(clip_scale(-1.0, 1.0), std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
