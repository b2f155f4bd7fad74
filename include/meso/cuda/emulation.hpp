#pragma once
// CUDA's device language on the host, for one kernel source: each CUDA thread of a block is a fiber. Emulated: the built-in
// indices, dynamic shared memory, __syncthreads, __syncwarp, shuffles, votes, __nv_bfloat16 and the 16×16×16 subset of
// wmma. Not emulated: CUB, cooperative groups, cp.async, mma and wgmma in PTX, memory order between blocks.
// Shared memory starts as NaN. A barrier that not all threads reach, a shuffle from a lane outside its mask and a
// misaligned wmma load end the launch with EmulationFault.
// Blocks and threads run one after another, in an order of choice: a missing barrier shows in one of the three.
#include <cstdint>
#include <cstring>

#include <meso/cuda/emulation/block.hpp>
#include <meso/cuda/emulation/wmma.hpp>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define MESO_UNROLL
#define MESO_UNROLL_BY(n)
#define MESO_DYNAMIC_SHARED(name) unsigned char* const name = ::meso::cuda::emulation::current().shared

namespace meso::cuda {

/// Rounds to the nearest bfloat16, ties to even, as __nv_bfloat16 does.
struct bf16 {
  std::uint16_t bits;

  bf16() = default;
  explicit bf16(float value) {
    std::uint32_t u;
    std::memcpy(&u, &value, sizeof u);
    bits = value != value ? std::uint16_t{0x7FFF} : static_cast<std::uint16_t>((u + 0x7FFF + (u >> 16 & 1)) >> 16);
  }
  explicit operator float() const {
    const std::uint32_t u = std::uint32_t{bits} << 16;
    float value;
    std::memcpy(&value, &u, sizeof u);
    return value;
  }
};

}  // namespace meso::cuda

#define threadIdx (::meso::cuda::emulation::current().thread)
#define blockIdx (::meso::cuda::emulation::current().block)
#define blockDim (::meso::cuda::emulation::current().size)
#define gridDim (::meso::cuda::emulation::current().grid)
#define __syncthreads() ::meso::cuda::emulation::current().sync(__LINE__)
#define __syncthreads_or(predicate) ::meso::cuda::emulation::current().sync_or(__LINE__, (predicate) != 0)

inline void __syncwarp(unsigned mask = ~0u) { meso::cuda::emulation::sync_warp(mask); }
template <class T>
T __shfl_sync(unsigned mask, T value, int source) {
  return meso::cuda::emulation::shuffle(mask, value, source & 31);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return meso::cuda::emulation::shuffle(mask, value, static_cast<int>(meso::cuda::emulation::current().lane()) ^ bits);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return meso::cuda::emulation::ballot(mask, predicate != 0);
}
