# MESO_CUDA: AUTO uses a CUDA toolkit if there is one, ON needs it, OFF ignores it. Kernels are tested in emulation either
# way.
set(MESO_CUDA AUTO CACHE STRING "Use the CUDA toolkit: AUTO, ON or OFF")
set_property(CACHE MESO_CUDA PROPERTY STRINGS AUTO ON OFF)
set(MESO_HAS_CUDA OFF)
if(MESO_CUDA)
  include(${CMAKE_CURRENT_LIST_DIR}/mesoCuda.cmake)
  if(TARGET meso::cuda)
    set(MESO_HAS_CUDA ON)
  elseif(NOT MESO_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "MESO_CUDA is ${MESO_CUDA} but there is no CUDA toolkit (nvcc, cudart, cuBLAS)")
  endif()
endif()
