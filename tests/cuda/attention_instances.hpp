#pragma once
// The attention kernels of every head size, compiled once, a translation unit each: attention_<size>.cpp.
#include <meso/cuda/attention.cuh>

#define MESO_ATTENTION_INSTANCE(keyword, T, size)                                                                \
  keyword template void meso::cuda::detail::flash_forward<T, size>(meso::cuda::Context&,                         \
                                                                   const meso::cuda::detail::AttentionCall<T>&); \
  keyword template void meso::cuda::detail::flash_backward<T, size>(meso::cuda::Context&,                        \
                                                                    const meso::cuda::detail::AttentionCall<T>&);
#define MESO_ATTENTION_INSTANCES(keyword, size)  \
  MESO_ATTENTION_INSTANCE(keyword, float, size)  \
  MESO_ATTENTION_INSTANCE(keyword, double, size) \
  MESO_ATTENTION_INSTANCE(keyword, meso::cuda::bf16, size)

MESO_ATTENTION_INSTANCES(extern, 32)
MESO_ATTENTION_INSTANCES(extern, 64)
MESO_ATTENTION_INSTANCES(extern, 96)
MESO_ATTENTION_INSTANCES(extern, 128)
