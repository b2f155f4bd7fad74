#pragma once
#include <meso/stats/kurtosis.hpp>
#include <meso/stats/moments.hpp>
#include <meso/stats/outliers.hpp>
#include <meso/stats/perplexity.hpp>
#include <meso/stats/sinks.hpp>
