#pragma once
#include <meso/cuda/context.hpp>

namespace meso::cuda {

/// Grid, block and dynamic shared memory in bytes of one launch.
struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared = 0;
};

/// Starts kernel(arguments...) on the context's stream; nothing for an empty grid.
/// Throws: cuda::Error that names the op, grid, block and shared memory when the launch is refused.
template <class... P, class... A>
void launch(Context& context, const char* op, const LaunchShape& shape, void (*kernel)(P...), A&&... arguments) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
#ifdef MESO_CUDA_EMULATION
  static_cast<void>(op);
  emulation::launch(context.order, context.seed, kernel, shape.grid, shape.block, shape.shared,
                    static_cast<P>(arguments)...);
#else
  const auto describe = [&] {
    return message(op, ": launch of grid (", shape.grid.x, ", ", shape.grid.y, ", ", shape.grid.z, "), block (",
                   shape.block.x, ", ", shape.block.y, ", ", shape.block.z, "), ", shape.shared,
                   " bytes of shared memory");
  };
  if (shape.shared > 48 * 1024) {
    const cudaError_t error =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shape.shared));
    if (error != cudaSuccess) check(error, describe());
  }
  kernel<<<shape.grid, shape.block, shape.shared, context.stream()>>>(static_cast<P>(arguments)...);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) check(error, describe());
#endif
}

/// ⌈count/size⌉ as a grid dimension. Throws: std::invalid_argument beyond 2³¹ − 1.
inline unsigned blocks_for(Index count, Index size) {
  const Index blocks = (count + size - 1) / size;
  meso::check(blocks <= 0x7FFFFFFF, "launch: ", count, " elements are too many for one grid");
  return static_cast<unsigned>(blocks);
}

}  // namespace meso::cuda
