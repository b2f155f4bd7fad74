# Compile through ccache where it is installed. The sloppiness is what ccache asks for to cache with precompiled headers.
find_program(MESO_CCACHE ccache)
mark_as_advanced(MESO_CCACHE)
if(MESO_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${MESO_CCACHE})
endif()
