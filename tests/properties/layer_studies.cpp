#include <boost/test/unit_test.hpp>

#include "studies.hpp"

namespace meso::test {

template <class S>
std::vector<Study> layer_studies() {
  return {};
}
MESO_TEST_STUDIES(layer_studies);

}  // namespace meso::test
