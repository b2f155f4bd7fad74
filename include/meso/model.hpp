#pragma once
#include <meso/model/architectures.hpp>
#include <meso/model/config.hpp>
#include <meso/model/parameters.hpp>
#include <meso/model/probes.hpp>
#include <meso/model/transformer.hpp>
