#pragma once
// meso::Transformer on the CPU: the model and all the ops that it calls.
#include <meso/attention/attention.hpp>
#include <meso/attention/rotate.hpp>
#include <meso/core/finite.hpp>
#include <meso/layer/cross_entropy.hpp>
#include <meso/layer/embedding.hpp>
#include <meso/layer/fused_linear.hpp>
#include <meso/model/cpu.hpp>
#include <meso/model/decoder.hpp>
