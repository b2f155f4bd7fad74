#include "tests/cuda/attention_instances.hpp"

MESO_ATTENTION_INSTANCES(, 32)
