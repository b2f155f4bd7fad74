#pragma once
// Attention: masks, positions, the op and its probe.
#include <meso/attention/attention.hpp>
#include <meso/attention/mask.hpp>
#include <meso/attention/position.hpp>
#include <meso/attention/rotate.hpp>
#include <meso/attention/rows.hpp>
