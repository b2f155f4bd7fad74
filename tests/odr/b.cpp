#include "all_headers.hpp"

int b();
int b() { return MESO_VERSION; }
