# The preset `fuzz`: one program, `fuzz`, with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer, in which the
# environment variable SEEKSIM_FUZZ_TARGET chooses the parser (tests/fuzz/targets.h). tests/fuzz/run.py builds and runs it.
#
# Only the rooms that read what strangers write are compiled here. All else comes out of the archives of an ordinary
# build, which is compiled once and not twice.

if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "The fuzzers need Clang and its compiler-rt: apt-get install clang-16 libclang-rt-16-dev")
endif()
set(SEEKSIM_FUZZ_REST "${PROJECT_SOURCE_DIR}/build/release" CACHE PATH "The ordinary build whose archives are used")

set(read_by_parsers "")
foreach(pattern IN ITEMS tests/fuzz/targets.cpp tests/fuzz/files.cpp tests/fuzz/dumps.cpp tests/fuzz/scenarios.cpp
        tests/fuzz/network.cpp tests/fuzz/mutated_text.cpp tests/support/fuzz_driver.cpp
        runtime/files/bounded_json.cpp runtime/files/safetensors.cpp runtime/checkpoint/checkpoint_format.cpp
        runtime/backend/control/control_frame.cpp runtime/backend/wire/bytes.cpp runtime/backend/wire/tcp_wire.cpp
        runtime/backend/messages/*.cpp
        harness/analyse/dump.cpp harness/analyse/pickle.cpp harness/analyse/log_lines.cpp harness/analyse/logs.cpp
        harness/analyse/hang.cpp harness/calibration/curves.cpp harness/calibration/torch_trace.cpp
        harness/doctor/lint_config.cpp harness/doctor/lint_hostfile.cpp
        harness/export/flight_recorder_reader.cpp harness/input/document.cpp harness/input/ds_config_text.cpp
        harness/input/json_text.cpp harness/loading/load.cpp harness/loading/schedule_string.cpp
        harness/loading/sweep.cpp harness/processes/process_run.cpp harness/processes/told.cpp
        harness/record/golden.cpp harness/scenario/sweep.cpp
        harness/torch/hosts/mirror.cpp harness/torch/hosts/relay_frames.cpp harness/torch/hosts/relay_loop.cpp
        harness/torch/hosts/host_files.cpp)
  file(GLOB found "${PROJECT_SOURCE_DIR}/${pattern}")
  if(NOT found)
    message(FATAL_ERROR "cmake/SeeksimFuzz.cmake names ${pattern}, and there is no such file")
  endif()
  list(APPEND read_by_parsers ${found})
endforeach()

add_executable(fuzz ${read_by_parsers})
target_include_directories(fuzz PRIVATE "${PROJECT_SOURCE_DIR}")
set(sanitizers -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all)
target_compile_options(fuzz PRIVATE ${sanitizers} -fno-sanitize=null,object-size,vptr -gline-tables-only -Wno-unknown-warning-option)
target_compile_options(fuzz PRIVATE -ffunction-sections -fdata-sections)
# Archives whose sources were joined (SEEKSIM_UNITY) hold what is compiled here once more: the first one counts.
target_link_options(fuzz PRIVATE ${sanitizers} -Wl,--gc-sections -Wl,--allow-multiple-definition)
# What chooses inputs reaches no edge of a parser.
set_source_files_properties("${PROJECT_SOURCE_DIR}/tests/fuzz/mutated_text.cpp"
  "${PROJECT_SOURCE_DIR}/tests/support/fuzz_driver.cpp" PROPERTIES COMPILE_OPTIONS "-fno-sanitize=fuzzer")
set(archives "")
foreach(library IN ITEMS harness/libseeksim_harness.a reference/libseeksim_reference.a pytorch/libseeksim_pytorch.a
        sim/libseeksim_sim.a faults/libseeksim_faults.a runtime/backend/libseeksim_backend.a runtime/libseeksim_runtime.a
        kernels/libseeksim_kernels.a)
  list(APPEND archives "${SEEKSIM_FUZZ_REST}/${library}")
endforeach()
# What joined sources of these archives need where the ordinary build has a CUDA toolkit.
foreach(library IN ITEMS kernels/cuda/libseeksim_emulator.a kernels/cuda/libseeksim_cuda.a)
  if(EXISTS "${SEEKSIM_FUZZ_REST}/${library}")
    list(APPEND archives "${SEEKSIM_FUZZ_REST}/${library}")
  endif()
endforeach()
find_package(CUDAToolkit QUIET)
if(CUDAToolkit_FOUND)
  list(APPEND archives CUDA::cudart_static)
endif()
target_link_libraries(fuzz PRIVATE -Wl,--start-group ${archives} -Wl,--end-group Boost::fiber Boost::context fmt::fmt
                                   nlohmann_json::nlohmann_json pugixml::pugixml seeksim_xxhash dl)
