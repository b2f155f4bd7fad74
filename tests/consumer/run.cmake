# Configures, builds and runs the consumer from nothing, in WORK.
function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${WORK})
if(WAY STREQUAL "package")
  run(${CMAKE_COMMAND} --install ${MESO_BINARY} --prefix ${WORK}/prefix)
  set(location -D CMAKE_PREFIX_PATH=${WORK}/prefix)
else()
  set(location -D MESO_SOURCE=${MESO_SOURCE})
endif()
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK}/build -G ${GENERATOR} -D WAY=${WAY} ${location}
  -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_BUILD_TYPE=Release)
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/consumer)
