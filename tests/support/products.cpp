#include "tests/support/products.hpp"

MESO_TEST_PRODUCTS(, float)
MESO_TEST_PRODUCTS(, double)
