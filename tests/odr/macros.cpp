#include "system_headers.hpp"

#define min(a, b) (((a) < (b)) ? (a) : (b))
#define max(a, b) (((a) > (b)) ? (a) : (b))

#include "all_headers.hpp"

int macros();
int macros() { return min(MESO_VERSION, max(MESO_VERSION, 0)); }
