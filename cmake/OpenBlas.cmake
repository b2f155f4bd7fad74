# meso_openblas, where OpenBLAS with the C interface is installed (package libopenblas-dev): for our own tests and
# benchmarks of meso::Blas. They see MESO_WITH_OPENBLAS.
find_path(MESO_OPENBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas)
find_library(MESO_OPENBLAS_LIBRARY openblas)
mark_as_advanced(MESO_OPENBLAS_INCLUDE MESO_OPENBLAS_LIBRARY)
if(MESO_OPENBLAS_INCLUDE AND MESO_OPENBLAS_LIBRARY AND NOT TARGET meso_openblas)
  add_library(meso_openblas INTERFACE)
  target_compile_definitions(meso_openblas INTERFACE MESO_WITH_OPENBLAS)
  target_include_directories(meso_openblas SYSTEM INTERFACE ${MESO_OPENBLAS_INCLUDE})
  target_link_libraries(meso_openblas INTERFACE ${MESO_OPENBLAS_LIBRARY})
elseif(NOT TARGET meso_openblas)
  message(STATUS "Left out, as there is no OpenBLAS (package libopenblas-dev): tests and benchmarks of meso::Blas")
endif()
