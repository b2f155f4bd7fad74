#pragma once

/// Semantic version of the library; the build reads it from here.
#define MESO_VERSION_MAJOR 0
#define MESO_VERSION_MINOR 1
#define MESO_VERSION_PATCH 0

/// One number to compare: major · 10000 + minor · 100 + patch, as in `#if MESO_VERSION >= 100`.
#define MESO_VERSION (MESO_VERSION_MAJOR * 10000 + MESO_VERSION_MINOR * 100 + MESO_VERSION_PATCH)
