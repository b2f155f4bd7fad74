#include "all_headers.hpp"

int b();
int macros();

int main() { return MESO_VERSION == b() && MESO_VERSION == macros() ? 0 : 1; }
