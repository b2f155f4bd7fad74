#pragma once
#include <meso/quant/absmax.hpp>
#include <meso/quant/int8_gemm.hpp>
#include <meso/quant/quantized_linear.hpp>
#include <meso/quant/quantized_matrix.hpp>
#include <meso/quant/rounding.hpp>
#include <meso/quant/zeropoint.hpp>
