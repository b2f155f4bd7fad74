#include <boost/test/unit_test.hpp>

#include "studies.hpp"

namespace meso::test {

template <class S>
std::vector<Study> norm_studies() {
  return {};
}
MESO_TEST_STUDIES(norm_studies);

}  // namespace meso::test
