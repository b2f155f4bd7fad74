# The target meso::cuda: meso::meso, the CUDA runtime and cuBLAS, and what nvcc must be told. Included by our own build
# where there is a toolkit, and by find_package(meso COMPONENTS cuda). Architectures are the user's
# (CMAKE_CUDA_ARCHITECTURES). No GPU is needed.
if(NOT TARGET meso::cuda)
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND AND TARGET CUDA::cudart_static AND TARGET CUDA::cublas)
    add_library(meso::cuda INTERFACE IMPORTED GLOBAL)
    target_link_libraries(meso::cuda INTERFACE meso::meso CUDA::cudart_static CUDA::cublas)
    # Eigen's own device code is neither needed nor free of warnings.
    target_compile_definitions(meso::cuda INTERFACE EIGEN_NO_CUDA)
    # CMake before 3.25.2 knows no CUDA_STANDARD 20 for every nvcc that does.
    target_compile_options(meso::cuda INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
  endif()
endif()
