#define BOOST_TEST_MODULE meso
#include <boost/test/unit_test.hpp>
