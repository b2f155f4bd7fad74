#pragma once
#include <cstdint>

namespace meso {

/// A token is an index into the vocabulary.
using Token = std::int32_t;

}  // namespace meso
