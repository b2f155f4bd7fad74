#include <boost/test/unit_test.hpp>

#include "studies.hpp"

namespace meso::test {

template <class S>
std::vector<Study> optimizer_studies() {
  return {};
}
MESO_TEST_STUDIES(optimizer_studies);

}  // namespace meso::test
