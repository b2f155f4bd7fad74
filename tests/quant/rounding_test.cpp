#include <boost/test/unit_test.hpp>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <meso/core/random.hpp>
#include <meso/quant/absmax.hpp>
#include <meso/quant/rounding.hpp>

namespace {

using namespace meso;

static_assert(Rounding<NearestEven, float> && Rounding<NearestEven, double> && Rounding<HalfAway, float>);
static_assert(NearestEven{}(2.5f) == 2 && NearestEven{}(-3.5) == -4);  // usable in constant expressions

BOOST_AUTO_TEST_SUITE(rounding)

template <class S>
void ties() {
  const NearestEven even;
  const HalfAway away;
  for (int k = -300; k <= 300; ++k) {
    const S tie = static_cast<S>(k) + static_cast<S>(0.5);
    BOOST_TEST(even(tie) == (k % 2 == 0 ? k : k + 1));
    BOOST_TEST(away(tie) == (k >= 0 ? k + 1 : k));
    BOOST_TEST(even(static_cast<S>(k)) == k);
    BOOST_TEST(away(static_cast<S>(k)) == k);
    // One ulp to either side of the tie decides.
    BOOST_TEST(even(std::nextafter(tie, static_cast<S>(1000))) == k + 1);
    BOOST_TEST(even(std::nextafter(tie, static_cast<S>(-1000))) == k);
    BOOST_TEST(away(std::nextafter(tie, static_cast<S>(1000))) == k + 1);
    BOOST_TEST(away(std::nextafter(tie, static_cast<S>(-1000))) == k);
  }
  BOOST_TEST(even(S(-0.0)) == 0);
  BOOST_TEST(even(std::nextafter(S(0.5), S(0))) == 0);
}

BOOST_AUTO_TEST_CASE(ties_and_their_neighbors) {
  ties<float>();
  ties<double>();
}

BOOST_AUTO_TEST_CASE(agrees_with_the_standard_library) {
  const Random random{3, 1};
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const double x = (random.uniform(i) - 0.5) * std::ldexp(1.0, static_cast<int>(i % 32));
    const float f = static_cast<float>(x);
    if (NearestEven{}(x) != std::nearbyint(x) || HalfAway{}(x) != std::round(x)) BOOST_ERROR("double " << x);
    if (static_cast<float>(NearestEven{}(f)) != std::nearbyint(f) || static_cast<float>(HalfAway{}(f)) != std::round(f))
      BOOST_ERROR("float " << f);
  }
}

BOOST_AUTO_TEST_CASE(does_not_depend_on_the_rounding_mode) {
  // volatile: nothing may be computed before the mode is set. Results are checked after it is restored.
  volatile float value = 2.5f;
  std::int32_t result[4];
  const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
  const int saved = std::fegetround();
  for (int i = 0; i < 4; ++i) {
    std::fesetround(modes[i]);
    result[i] = NearestEven{}(static_cast<float>(value));
  }
  std::fesetround(saved);
  for (const std::int32_t r : result) BOOST_TEST(r == 2);
}

BOOST_AUTO_TEST_CASE(a_policy_of_the_user) {
  // Scale 1 at a maximum of 127: the values are their own quotients.
  Eigen::Vector4f x(127.0f, 2.5f, -3.5f, 0.7f);
  const auto truncate = [](auto v) { return static_cast<std::int32_t>(v); };
  BOOST_TEST((quantize(x, Absmax{8}, per_tensor).values.cast<int>() == Eigen::Vector4i(127, 2, -4, 1)));
  BOOST_TEST((quantize(x, Absmax{8}, per_tensor, HalfAway{}).values.cast<int>() == Eigen::Vector4i(127, 3, -4, 1)));
  BOOST_TEST((quantize(x, Absmax{8}, per_tensor, truncate).values.cast<int>() == Eigen::Vector4i(127, 2, -3, 0)));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
