#include <boost/test/unit_test.hpp>

#include "studies.hpp"

namespace meso::test {

template <class S>
std::vector<Study> activation_studies() {
  return {};
}
MESO_TEST_STUDIES(activation_studies);

}  // namespace meso::test
