#pragma once
#include <meso/norm/layer_norm.hpp>
#include <meso/norm/norm.hpp>
#include <meso/norm/rms_norm.hpp>
