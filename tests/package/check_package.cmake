# cmake -DBUILD=... -DEXAMPLE=... -DLAUNCHER=... -DCOMPILER=... -P check_package.cmake
set(top "${BUILD}/package")
set(prefix "${top}/installed")
file(REMOVE_RECURSE "${prefix}" "${top}/elsewhere")
file(MAKE_DIRECTORY "${top}/elsewhere")

function(run)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "FOLDER;PRINTS" "COMMAND")
  execute_process(COMMAND ${arg_COMMAND} WORKING_DIRECTORY "${arg_FOLDER}" RESULT_VARIABLE status
                  OUTPUT_VARIABLE text ERROR_VARIABLE text)
  list(JOIN arg_COMMAND " " line)
  message("${line}\n${text}")
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "exit status ${status}: ${line}")
  endif()
  if(arg_PRINTS AND NOT text MATCHES "${arg_PRINTS}")
    message(FATAL_ERROR "'${arg_PRINTS}' is not in what it printed: ${line}")
  endif()
endfunction()

run(FOLDER "${BUILD}" COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${prefix}")

# The program finds what was installed with it, from any folder.
file(COPY_FILE "${prefix}/share/seeksim/scenarios/nccl_timeout.json" "${prefix}/share/seeksim/scenarios/only_here.json")
run(FOLDER "${top}/elsewhere" COMMAND "${prefix}/bin/seeksim" list scenarios PRINTS "only_here")
run(FOLDER "${top}/elsewhere" COMMAND "${prefix}/bin/seeksim" run "${prefix}/share/seeksim/scenarios/nccl_timeout.json")

# A project of its own.
run(FOLDER "${top}/elsewhere" COMMAND "${CMAKE_COMMAND}" -S "${EXAMPLE}" -B "${top}/example" -G Ninja
    "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}")
run(FOLDER "${top}/elsewhere" COMMAND "${CMAKE_COMMAND}" --build "${top}/example")
run(FOLDER "${top}/elsewhere" COMMAND "${CMAKE_CTEST_COMMAND}" --test-dir "${top}/example" --output-on-failure
    PRINTS "100% tests passed")
