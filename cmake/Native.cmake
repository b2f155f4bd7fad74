# This machine's vector instructions, or with MESO_MARCH those of another (x86-64-v2, x86-64-v3, x86-64-v4), for every
# executable of this build tree, hence for all of its translation units.
option(MESO_NATIVE "Build our own executables for MESO_MARCH" OFF)
set(MESO_MARCH native CACHE STRING "With MESO_NATIVE: the processor to build for, as -march takes it")
if(MESO_NATIVE)
  include(CheckCXXCompilerFlag)
  string(MAKE_C_IDENTIFIER MESO_HAS_MARCH_${MESO_MARCH} has_march)
  check_cxx_compiler_flag(-march=${MESO_MARCH} ${has_march})
  if(${has_march})
    add_compile_options(-march=${MESO_MARCH})
  elseif(NOT MESO_MARCH STREQUAL "native")
    message(FATAL_ERROR "MESO_MARCH is ${MESO_MARCH}, but ${CMAKE_CXX_COMPILER} does not take -march=${MESO_MARCH}")
  endif()
  # With g++, -march=native alone also tunes for the machine, and on AMD's Zen that halves the speed of Eigen's products.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    add_compile_options(-mtune=haswell)
  endif()
endif()
