#include <boost/test/unit_test.hpp>

#include "studies.hpp"

namespace meso::test {

template <class S>
std::vector<Study> attention_studies() {
  return {};
}
MESO_TEST_STUDIES(attention_studies);

}  // namespace meso::test
