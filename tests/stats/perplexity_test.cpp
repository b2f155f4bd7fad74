#include <boost/test/unit_test.hpp>
#include <cmath>
#include <meso/stats/perplexity.hpp>

#include "support/tolerance.hpp"

namespace {

using namespace meso;
using namespace meso::test;

constexpr double u = unit_roundoff<double>;

BOOST_AUTO_TEST_SUITE(perplexity)

BOOST_AUTO_TEST_CASE(a_uniform_prediction_has_the_size_of_the_vocabulary) {
  Perplexity p;
  BOOST_TEST(std::isnan(p.value()));
  for (int batch = 0; batch < 10; ++batch) p.add(64 * std::log(256.0), 64);
  BOOST_TEST(p.tokens == 640);
  // 10 additions and a division, 12u of a mean of 5.5; exp passes the absolute error on, and adds 2u.
  BOOST_TEST(within(p.value(), 256.0, 256 * (12 * 5.6 + 2) * u));
}

BOOST_AUTO_TEST_CASE(batches_weigh_by_their_tokens) {
  Perplexity p, a, b;
  p.add(30.0, 10);
  p.add(2.0, 2);
  a.add(30.0, 10);
  b.add(2.0, 2);
  a.merge(b);
  BOOST_TEST(within(p.mean(), 32.0 / 12, 4 * u * 3));
  BOOST_TEST(a.value() == p.value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
