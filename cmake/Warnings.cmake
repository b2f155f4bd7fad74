# Warnings for our own executables, never for the library's target: its users choose their own.
option(MESO_WERROR "Warnings in our own executables are errors" OFF)
mark_as_advanced(MESO_WERROR)

function(meso_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -Wshadow)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # False alarms of g++ 12 alone: inside its AVX-512 header (GCC PR 105593), where Eigen's vectorized path is compiled for
    # an array of one element, and at "text" + std::string (PR 105329, 105651).
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized -Wno-uninitialized -Wno-stringop-overflow
      -Wno-array-bounds -Wno-restrict)
  endif()
  if(MESO_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
    # Later than the g++ that we test with: what its optimizer guesses is shown, and no error.
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
      target_compile_options(${target} PRIVATE
        -Wno-error=array-bounds -Wno-error=maybe-uninitialized -Wno-error=stringop-overflow)
    endif()
  endif()
endfunction()
