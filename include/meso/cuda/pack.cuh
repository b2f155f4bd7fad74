#pragma once
// Element-wise kernels that read and write several neighbors in one access, where the rows allow it.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <meso/cuda/math.cuh>

namespace meso::cuda::detail {

/// `count` neighbors that one access reads or writes; their address must be a multiple of their size.
template <class T, int count>
struct alignas(sizeof(T) * count) Pack {
  T values[count];
};
/// Neighbors in 16 bytes, the widest access.
template <class T>
inline constexpr int pack_size = 16 / static_cast<int>(sizeof(T));
/// Of an element-wise op; none of double, whose exponentials take the registers.
template <class T>
inline constexpr int element_pack = sizeof(T) == 8 ? 1 : pack_size<T>;

template <int count, class T>
__device__ __forceinline__ Pack<std::remove_const_t<T>, count> load_pack(T* from) {
  return *reinterpret_cast<const Pack<std::remove_const_t<T>, count>*>(from);
}
template <int count, class T>
__device__ __forceinline__ void store_in_place(T* to, const Pack<T, count>& pack) {
  *reinterpret_cast<Pack<T, count>*>(to) = pack;
}
#ifdef MESO_CUDA_EMULATION
template <int count, class T>
void store_pack(T* to, const Pack<T, count>& pack) {
  store_in_place(to, pack);
}
#else
/// To global memory. nvcc stores some structs member by member, hence the intrinsics of one access.
template <int count, class T>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, count>& pack) {
  store_in_place(to, pack);
}
__device__ __forceinline__ void store_pack(float* to, const Pack<float, 4>& p) {
  __stwb(reinterpret_cast<float4*>(to), make_float4(p.values[0], p.values[1], p.values[2], p.values[3]));
}
__device__ __forceinline__ unsigned two(bf16 low, bf16 high) {
  return static_cast<unsigned>(__bfloat16_as_ushort(low)) | static_cast<unsigned>(__bfloat16_as_ushort(high)) << 16;
}
__device__ __forceinline__ void store_pack(bf16* to, const Pack<bf16, 4>& p) {
  __stwb(reinterpret_cast<uint2*>(to), make_uint2(two(p.values[0], p.values[1]), two(p.values[2], p.values[3])));
}
__device__ __forceinline__ void store_pack(bf16* to, const Pack<bf16, 8>& p) {
  __stwb(reinterpret_cast<uint4*>(to), make_uint4(two(p.values[0], p.values[1]), two(p.values[2], p.values[3]),
                                                  two(p.values[4], p.values[5]), two(p.values[6], p.values[7])));
}
#endif

/// Whether every row begins at a multiple of 16 bytes; a null pointer does.
template <class T>
bool aligned(const View<T>& x) {
  return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 && x.stride * static_cast<Index>(sizeof(T)) % 16 == 0;
}
template <class T>
bool aligned(const T* x) {
  return reinterpret_cast<std::uintptr_t>(x) % 16 == 0;
}

template <int count, class F>
__global__ void __launch_bounds__(256, 3) packs_kernel(F f, Index rows, Index cols) {
  const Index j = (static_cast<Index>(blockIdx.x) * 256 + static_cast<Index>(threadIdx.x)) * count;
  if (j >= cols) return;
  for (Index i = static_cast<Index>(blockIdx.y); i < rows; i += static_cast<Index>(gridDim.y)) {
    if (j + count <= cols) {
      f.template at<count>(i, j);
    } else {
      for (Index k = j; k < cols; ++k) f.template at<1>(i, k);
    }
  }
}

/// f.at<n>(i, j) for the elements (i, j) … (i, j + n − 1): n = count if `packs` and they are all there, else 1.
template <int count, class F>
void for_packs(Context& context, const char* op, const F& f, Index rows, Index cols, bool packs) {
  const Index most = 32768;  // below the limit of a grid's y
  const unsigned down = static_cast<unsigned>(rows < most ? rows : most);
  if (packs)
    launch(context, op, {{blocks_for(cols, 256 * count), down}, {256}}, packs_kernel<count, F>, f, rows, cols);
  else
    launch(context, op, {{blocks_for(cols, 256), down}, {256}}, packs_kernel<1, F>, f, rows, cols);
}

}  // namespace meso::cuda::detail
