#include <boost/test/unit_test.hpp>

#include "studies.hpp"

namespace meso::test {

template <class S>
std::vector<Study> statistics_studies() {
  return {};
}
MESO_TEST_STUDIES(statistics_studies);

}  // namespace meso::test
