#pragma once
#include <stdexcept>
#include <string>

#include <meso/core/check.hpp>
#include <meso/cuda/platform.hpp>
#ifndef MESO_CUDA_EMULATION
#include <cublas_v2.h>
#endif

namespace meso::cuda {

/// A call of the CUDA runtime, a kernel launch or a cuBLAS call that failed: the call with its shapes, the error's name,
/// number and text.
class Error : public std::runtime_error {
 public:
  Error(const std::string& what, int error_code) : std::runtime_error(what), code(error_code) {}
  int code;  ///< cudaError_t, or cublasStatus_t
};

#ifndef MESO_CUDA_EMULATION
/// Throws cuda::Error unless the call succeeded. The parts say what was called; they are formatted only on failure.
template <class... Parts>
void check(cudaError_t error, const Parts&... parts) {
  if (error == cudaSuccess) return;
  throw Error(
      message(parts..., ": ", cudaGetErrorName(error), " (", static_cast<int>(error), "): ", cudaGetErrorString(error)),
      static_cast<int>(error));
}
template <class... Parts>
void check(cublasStatus_t status, const Parts&... parts) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(message(parts..., ": ", cublasGetStatusName(status), " (", static_cast<int>(status), ")"),
              static_cast<int>(status));
}
#endif

/// Why no kernel can run here: the driver's error, or an empty string if there is a device.
inline std::string unavailable() {
#ifdef MESO_CUDA_EMULATION
  return {};
#else
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess)
    return message("cudaGetDeviceCount: ", cudaGetErrorName(error), " (", static_cast<int>(error),
                   "): ", cudaGetErrorString(error));
  return count > 0 ? std::string() : std::string("cudaGetDeviceCount: there is no CUDA device");
#endif
}

}  // namespace meso::cuda
