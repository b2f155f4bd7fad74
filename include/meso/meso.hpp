#pragma once
// All of Meso on the CPU: no CUDA, no file input or output (see meso/io).
#include <meso/apply.hpp>
#include <meso/attention.hpp>
#include <meso/layer.hpp>
#include <meso/model.hpp>
#include <meso/norm.hpp>
#include <meso/normalizer.hpp>
#include <meso/optim.hpp>
#include <meso/quant.hpp>
#include <meso/stats.hpp>
#include <meso/train.hpp>
#include <meso/version.hpp>
