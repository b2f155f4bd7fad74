#pragma once
// The device language: CUDA's own under nvcc, its emulation under any other compiler with MESO_CUDA_EMULATION.
#include <meso/core/view.hpp>

#if defined(MESO_CUDA_EMULATION)
#include <meso/cuda/emulation.hpp>
#elif defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <mma.h>
#define MESO_UNROLL _Pragma("unroll")
#define MESO_PRAGMA(text) _Pragma(#text)
#define MESO_UNROLL_BY(n) MESO_PRAGMA(unroll n)
#define MESO_DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]
namespace meso::cuda {
using bf16 = __nv_bfloat16;
}
#else
#error "meso/cuda needs nvcc; a host compiler can run the kernels in emulation with -DMESO_CUDA_EMULATION"
#endif

namespace meso {

/// Device tag of the memory of an NVIDIA GPU. A View<T, Cuda> cannot be read on the host: only ops take it.
struct Cuda {};

namespace cuda {

/// A view of device memory.
template <class T>
using View = meso::View<T, Cuda>;

/// A read-only argument that takes no part in deduction.
template <class T>
using ConstView = meso::View<const std::type_identity_t<T>, Cuda>;

}  // namespace cuda
}  // namespace meso
