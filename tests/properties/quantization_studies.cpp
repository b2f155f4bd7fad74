#include <boost/test/unit_test.hpp>

#include "studies.hpp"

namespace meso::test {

template <class S>
std::vector<Study> quantization_studies() {
  return {};
}
MESO_TEST_STUDIES(quantization_studies);

}  // namespace meso::test
