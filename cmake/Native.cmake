# This machine's vector instructions for every executable of this build tree, hence for all of its translation units.
option(MESO_NATIVE "Build our own executables for this machine" OFF)
if(MESO_NATIVE)
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-march=native MESO_HAS_MARCH_NATIVE)
  if(MESO_HAS_MARCH_NATIVE)
    add_compile_options(-march=native)
  endif()
  # With g++, -march=native alone also tunes for the machine, and on AMD's Zen that halves the speed of Eigen's products.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    add_compile_options(-mtune=haswell)
  endif()
endif()
