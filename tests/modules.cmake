# The tests that are written with Boost.Test; included by CMakeLists.txt where it is there.

# --- main and the precompiled header, compiled once for all binaries

set(precompiled <Eigen/Core> <boost/test/unit_test.hpp> <algorithm> <array> <cmath> <cstdint> <limits> <memory> <span>
  <string> <vector>)

add_library(meso_test_options INTERFACE)
target_compile_definitions(meso_test_options INTERFACE BOOST_TEST_DYN_LINK)
target_include_directories(meso_test_options INTERFACE ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(meso_test_options INTERFACE meso::meso Boost::unit_test_framework)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(meso_test_options INTERFACE "SHELL:-Xclang -fno-pch-timestamp") # lets ccache cache
else()
  target_compile_options(meso_test_options INTERFACE -fpch-preprocess)
endif()

file(CONFIGURE OUTPUT precompiled.cpp CONTENT "" @ONLY)
add_library(meso_test_precompiled OBJECT ${CMAKE_CURRENT_BINARY_DIR}/precompiled.cpp)
target_link_libraries(meso_test_precompiled PRIVATE meso_test_options)
target_precompile_headers(meso_test_precompiled PRIVATE ${precompiled})
meso_warnings(meso_test_precompiled)

add_library(meso_test_main OBJECT support/main.cpp) # not precompiled: BOOST_TEST_MODULE comes before Boost's header
target_link_libraries(meso_test_main PUBLIC meso_test_options)
meso_warnings(meso_test_main)

# --- every op against its oracle: the studies of the property tests, and the table of docs/numerics.md

file(GLOB sources CONFIGURE_DEPENDS properties/*_studies.cpp)
add_library(meso_test_studies STATIC ${sources})
target_link_libraries(meso_test_studies PUBLIC meso_test_options)
target_precompile_headers(meso_test_studies REUSE_FROM meso_test_precompiled)
meso_warnings(meso_test_studies)
add_executable(numerics_table properties/numerics_table.cpp)
target_link_libraries(numerics_table PRIVATE meso_test_studies)
meso_warnings(numerics_table)
add_test(NAME numerics_table COMMAND numerics_table ${PROJECT_SOURCE_DIR}/docs/numerics.md)
set_tests_properties(numerics_table PROPERTIES ENVIRONMENT "${environment}" TIMEOUT 900)

# --- one binary a module

file(GLOB_RECURSE sources RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS *_test.cpp)
list(FILTER sources EXCLUDE REGEX "^(cuda|support)/")
if(NOT MESO_EXAMPLE_PROGRAMS) # nothing to run
  list(FILTER sources EXCLUDE REGEX "^examples/")
endif()
set(modules ${sources})
list(TRANSFORM modules REPLACE "/.*" "")
list(REMOVE_DUPLICATES modules)
foreach(module IN LISTS modules)
  set(module_sources ${sources})
  list(FILTER module_sources INCLUDE REGEX "^${module}(/|$)")
  string(REPLACE "_test.cpp" "" module ${module}) # a test that lies in tests/ itself
  add_executable(test_${module} ${module_sources})
  target_link_libraries(test_${module} PRIVATE meso_test_main)
  target_precompile_headers(test_${module} REUSE_FROM meso_test_precompiled)
  meso_warnings(test_${module})
  add_test(NAME test_${module} COMMAND test_${module})
  set_tests_properties(test_${module} PROPERTIES ENVIRONMENT "${environment}" TIMEOUT 900)
endforeach()
target_link_libraries(test_properties PRIVATE meso_test_studies)
if(TARGET meso_openblas)
  target_link_libraries(test_core PRIVATE meso_openblas)
endif()
# Not __FILE__: ccache may make it relative.
target_compile_definitions(test_docs PRIVATE MESO_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
if(TARGET test_examples)
  add_dependencies(test_examples ${MESO_EXAMPLE_PROGRAMS} softmax1 readme train_text)
endif()
