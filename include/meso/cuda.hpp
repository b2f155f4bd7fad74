#pragma once
// Meso on NVIDIA GPUs, for translation units that nvcc compiles; beside meso.hpp, not instead of it. The CMake target
// meso::cuda sets what it needs. Without Eigen: meso/cuda/transformer.cuh and the other headers of meso/cuda.
#if defined(__CUDACC__) && !defined(EIGEN_NO_CUDA)
#ifdef EIGEN_CORE_H
#error "Eigen came before <meso/cuda.hpp> without EIGEN_NO_CUDA: define it for this target (meso::cuda does)"
#endif
#define EIGEN_NO_CUDA
#endif
#include <meso/cuda/clip.cuh>
#include <meso/cuda/optimizer.cuh>
#include <meso/cuda/policies.hpp>
#include <meso/cuda/probes.cuh>
#include <meso/cuda/quantized_matrix.cuh>
#include <meso/cuda/transformer.cuh>
#include <meso/model/transformer.hpp>
