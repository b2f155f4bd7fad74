# Passes when SOURCE does not compile and the compiler's message matches the file's first line, `// expect: <regex>`.
file(STRINGS ${SOURCE} expected LIMIT_COUNT 1)
if(NOT expected MATCHES "^// expect: (.+)$")
  message(FATAL_ERROR "${SOURCE}: the first line must be `// expect: <regex>`")
endif()
set(expected "${CMAKE_MATCH_1}")
list(TRANSFORM INCLUDE PREPEND "-I")
execute_process(COMMAND ${COMPILER} -std=c++20 -fsyntax-only ${INCLUDE} ${SOURCE}
  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(result EQUAL 0)
  message(FATAL_ERROR "${SOURCE} compiles, and must not")
elseif(NOT output MATCHES "${expected}")
  message(FATAL_ERROR "${SOURCE} fails as it should, but its message does not match `${expected}`:\n${output}")
endif()
