// Every op on random shapes (0, 1, odd, windows of larger matrices) against its oracle, within the bound of its
// docstring. A failure prints MESO_TEST_SEED and the case; the same value of it in the environment repeats the run.
#include <boost/test/unit_test.hpp>
#include <tuple>

#include "studies.hpp"

using namespace meso::test;

namespace {

using Scalars = std::tuple<float, double>;

void check(const std::vector<Study>& studies, meso::Index draws) {
  for (const Study& study : studies) BOOST_TEST(holds(study, draws));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(properties)

BOOST_AUTO_TEST_CASE_TEMPLATE(core, S, Scalars) { check(core_studies<S>(), 120); }
BOOST_AUTO_TEST_CASE_TEMPLATE(layers, S, Scalars) { check(layer_studies<S>(), 120); }
BOOST_AUTO_TEST_CASE_TEMPLATE(activations, S, Scalars) { check(activation_studies<S>(), 120); }
BOOST_AUTO_TEST_CASE_TEMPLATE(norms, S, Scalars) { check(norm_studies<S>(), 120); }
BOOST_AUTO_TEST_CASE_TEMPLATE(normalizers, S, Scalars) { check(normalizer_studies<S>(), 200); }
BOOST_AUTO_TEST_CASE_TEMPLATE(attention, S, Scalars) { check(attention_studies<S>(), 40); }
BOOST_AUTO_TEST_CASE_TEMPLATE(statistics, S, Scalars) { check(statistics_studies<S>(), 120); }
BOOST_AUTO_TEST_CASE_TEMPLATE(quantization, S, Scalars) { check(quantization_studies<S>(), 120); }
BOOST_AUTO_TEST_CASE_TEMPLATE(optimizers, S, Scalars) { check(optimizer_studies<S>(), 120); }

// A wrong sign, a missing factor, a shifted index: a comparison must be able to fail.
BOOST_AUTO_TEST_CASE(a_wrong_result_is_reported_with_its_seed_and_shape) {
  const Study wrong{"wrong", "", {{"f", "1", in_scalar<float>}}, [](Draw& draw, std::vector<Comparison>& to) {
                      const meso::Index n = draw.size("n", 0, 9);
                      to[0].add_relative(n == 7 ? 1.0 + 0x1p-22 : 1.0, 1.0, 1);
                    }};
  const boost::test_tools::assertion_result result = holds(wrong, 200);
  BOOST_TEST(!static_cast<bool>(result));
  const boost::unit_test::const_string message = result.message();
  const std::string text(message.begin(), message.end());
  BOOST_TEST(text.find("n 7") != text.npos);
  BOOST_TEST(text.find("MESO_TEST_SEED=" + std::to_string(test_seed())) != text.npos);
}

BOOST_AUTO_TEST_SUITE_END()
