# Configures the project as on a machine without CLI11, Boost.Test, Google Benchmark, OpenMP, OpenBLAS and gnuplot: each
# costs its targets and one line, and no error. Then the rest builds; one example stands for it.
file(REMOVE_RECURSE ${WORK})
set(without)
foreach(package CLI11 Boost benchmark OpenMP)
  list(APPEND without -D CMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
endforeach()
execute_process(COMMAND ${CMAKE_COMMAND} -S ${MESO_SOURCE} -B ${WORK} -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${COMPILER}
  -D CMAKE_BUILD_TYPE=Release -D CMAKE_CXX_FLAGS_RELEASE=-O0\ -DNDEBUG -D MESO_BUILD_TESTS=ON -D MESO_BUILD_EXAMPLES=ON
  -D MESO_BUILD_BENCH=ON -D MESO_OPENBLAS_LIBRARY=OFF -D MESO_GNUPLOT=OFF ${without}
  OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE status)
message("${output}")
if(NOT status EQUAL 0)
  message(FATAL_ERROR "configuring without optional packages ended with ${status}")
endif()
foreach(line "no CLI11 [^\n]*: ladder" "no Boost.Test" "no Google Benchmark" "no OpenMP" "no OpenBLAS" "no gnuplot")
  string(REGEX MATCHALL "${line}" said "${output}")
  list(LENGTH said times)
  if(NOT times EQUAL 1)
    message(FATAL_ERROR "\"${line}\" is said ${times} times, expected once")
  endif()
endforeach()
if(output MATCHES "CMake (Warning|Error)")
  message(FATAL_ERROR "there is a warning")
endif()

execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK} --target help OUTPUT_VARIABLE targets COMMAND_ERROR_IS_FATAL ANY)
if(NOT targets MATCHES "softmax1" OR targets MATCHES "ladder|test_core|test_examples|meso_bench")
  message(FATAL_ERROR "what needs a missing package is still there:\n${targets}")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK} --target softmax1 COMMAND_ERROR_IS_FATAL ANY)
