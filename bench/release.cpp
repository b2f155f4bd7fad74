#ifndef NDEBUG
#error "a benchmark of a build without NDEBUG measures nothing; use the release preset"
#endif
