# Finds what the project uses and remembers it for the table that the configure step prints last. What is required is
# installed by ./seeksim; the names of the Debian packages are in both places.

set(SEEKSIM_FOUND_TABLE "")
set(SEEKSIM_MISSING_REQUIRED "")

# One row of the table. <need> is "required" or what the project goes without.
function(seeksim_row name found detail package need)
  string(LENGTH "${name}" length)
  math(EXPR pad "18 - ${length}")
  string(REPEAT " " ${pad} spaces)
  if(found)
    set(row "  found      ${name}${spaces}${detail}")
  else()
    set(row "  NOT FOUND  ${name}${spaces}${need}; comes with ${package}")
    if(need STREQUAL "required")
      set(SEEKSIM_MISSING_REQUIRED ${SEEKSIM_MISSING_REQUIRED} ${package} PARENT_SCOPE)
    endif()
  endif()
  set(SEEKSIM_FOUND_TABLE ${SEEKSIM_FOUND_TABLE} "${row}" PARENT_SCOPE)
endfunction()

function(seeksim_print_dependencies)
  message(STATUS "seeksim ${PROJECT_VERSION}: ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, ${SEEKSIM_OPT}")
  foreach(row IN LISTS SEEKSIM_FOUND_TABLE)
    message(STATUS "${row}")
  endforeach()
endfunction()

include(SeeksimPlainLibrary)

# ---- required ----------------------------------------------------------------------------------------------------

# Static: fewer files to load at start, which counts when a whole scenario takes 15 ms.
set(Boost_USE_STATIC_LIBS ON)
find_package(Boost 1.81 QUIET COMPONENTS fiber context)
seeksim_row("Boost.Fiber" "${Boost_FOUND}" "${Boost_VERSION_STRING}" "libboost-fiber1.81-dev" "required")

find_package(nlohmann_json QUIET)
seeksim_row("nlohmann/json" "${nlohmann_json_FOUND}" "${nlohmann_json_VERSION}" "nlohmann-json3-dev" "required")

find_package(CLI11 QUIET)
seeksim_row("CLI11" "${CLI11_FOUND}" "${CLI11_VERSION}" "libcli11-dev" "required")

find_package(fmt QUIET)
seeksim_row("fmt" "${fmt_FOUND}" "${fmt_VERSION}" "libfmt-dev" "required")

find_package(pugixml QUIET)
seeksim_row("pugixml" "${pugixml_FOUND}" "${pugixml_VERSION}" "libpugixml-dev" "required")

seeksim_find_plain(seeksim_xxhash "xxhash.h" "xxhash")
seeksim_row("xxHash" "${seeksim_xxhash_LIBRARY}" "${seeksim_xxhash_INCLUDE}" "libxxhash-dev" "required")


# With it, users' own tests draw scenarios (harness/testing/); our tests need it.
seeksim_find_plain(seeksim_rapidcheck "rapidcheck.h" "rapidcheck")
set(rapidcheck_need "no seeksim::testing")
if(SEEKSIM_TESTS)
  set(rapidcheck_need "required")
  find_package(GTest QUIET)
  seeksim_row("GoogleTest" "${GTest_FOUND}" "${GTest_VERSION}" "libgtest-dev" "required")
endif()
seeksim_row("rapidcheck" "${seeksim_rapidcheck_LIBRARY}" "${seeksim_rapidcheck_INCLUDE}" "librapidcheck-dev"
            "${rapidcheck_need}")

# ---- found, not required -------------------------------------------------------------------------------------------

# MPI is loaded by the program when it is needed; only the header has to be here, and it has to be Open MPI's, whose
# handles the program looks up in the library.
find_package(MPI QUIET COMPONENTS CXX)
set(SEEKSIM_MPI FALSE)
if(MPI_CXX_FOUND)
  include(CheckCXXSymbolExists)
  set(CMAKE_REQUIRED_INCLUDES ${MPI_CXX_INCLUDE_DIRS})
  set(CMAKE_REQUIRED_DEFINITIONS -DOMPI_SKIP_MPICXX=1)
  check_cxx_symbol_exists(OPEN_MPI mpi.h SEEKSIM_MPI_IS_OPEN)
  unset(CMAKE_REQUIRED_INCLUDES)
  unset(CMAKE_REQUIRED_DEFINITIONS)
  set(SEEKSIM_MPI ${SEEKSIM_MPI_IS_OPEN})
endif()
seeksim_row("MPI" "${SEEKSIM_MPI}" "${MPI_CXX_VERSION}, Open MPI" "libopenmpi-dev openmpi-bin (Open MPI)"
            "no --backend mpi")

# CUDA is nvcc, and the headers and the static runtime library beside it: with that the program has no dependency more, and
# runs where no driver is. All of it lies where nvcc does.
find_program(SEEKSIM_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda/bin)
option(SEEKSIM_WITH_CUDA "Use CUDA where nvcc is found" ON)
set(nvcc_version "")
set(SEEKSIM_CUDA FALSE)
if(SEEKSIM_NVCC)
  execute_process(COMMAND "${SEEKSIM_NVCC}" --version OUTPUT_VARIABLE nvcc_text ERROR_QUIET)
  if(nvcc_text MATCHES "release ([0-9.]+)")
    set(SEEKSIM_NVCC_VERSION "${CMAKE_MATCH_1}")
    set(nvcc_version "${CMAKE_MATCH_1}, ")
  endif()
  get_filename_component(nvcc_real "${SEEKSIM_NVCC}" REALPATH)
  get_filename_component(cuda_bin "${nvcc_real}" DIRECTORY)
  get_filename_component(cuda_home "${cuda_bin}" DIRECTORY)
  set(SEEKSIM_CUDA_HOME "${cuda_home}")
  find_path(SEEKSIM_CUDA_INCLUDE cuda_runtime.h HINTS "${cuda_home}" PATH_SUFFIXES include targets/x86_64-linux/include)
  find_library(SEEKSIM_CUDART_LIBRARY cudart_static HINTS "${cuda_home}"
               PATH_SUFFIXES lib64 lib targets/x86_64-linux/lib)
  mark_as_advanced(SEEKSIM_CUDA_INCLUDE SEEKSIM_CUDART_LIBRARY)
  if(SEEKSIM_WITH_CUDA AND SEEKSIM_CUDA_INCLUDE AND SEEKSIM_CUDART_LIBRARY)
    set(SEEKSIM_CUDA TRUE)
    add_library(seeksim_cudart INTERFACE IMPORTED GLOBAL)
    target_include_directories(seeksim_cudart SYSTEM INTERFACE "${SEEKSIM_CUDA_INCLUDE}")
    target_link_libraries(seeksim_cudart INTERFACE "${SEEKSIM_CUDART_LIBRARY}" dl rt pthread)
  endif()
endif()
seeksim_row("CUDA (nvcc)" "${SEEKSIM_CUDA}" "${nvcc_version}${SEEKSIM_NVCC}"
            "NVIDIA's cuda-nvcc and cuda-cudart-dev, or nvidia-cuda-toolkit" "no --device cuda")

# cuBLASLt, too, is loaded when it is needed; only the header has to be here.
set(SEEKSIM_CUBLASLT FALSE)
if(SEEKSIM_CUDA AND EXISTS "${SEEKSIM_CUDA_INCLUDE}/cublasLt.h")
  set(SEEKSIM_CUBLASLT TRUE)
endif()
seeksim_row("cuBLASLt" "${SEEKSIM_CUBLASLT}" "${SEEKSIM_CUDA_INCLUDE}" "NVIDIA's libcublas-dev"
            "no \"numerics\": \"fast\" with --device cuda")

# NCCL is loaded by the program when it is needed; only the header has to be here. 2.28 has what is used of it.
find_path(SEEKSIM_NCCL_INCLUDE nccl.h HINTS ENV NCCL_HOME "${cuda_home}" PATH_SUFFIXES include
                                            targets/x86_64-linux/include)
mark_as_advanced(SEEKSIM_NCCL_INCLUDE)
set(SEEKSIM_NCCL FALSE)
set(nccl_version "")
if(SEEKSIM_NCCL_INCLUDE)
  file(STRINGS "${SEEKSIM_NCCL_INCLUDE}/nccl.h" nccl_text REGEX "#define NCCL_(MAJOR|MINOR) ")
  string(REGEX REPLACE "[^0-9]*([0-9]+)[^0-9]+([0-9]+).*" "\\1.\\2" nccl_version "${nccl_text}")
  if(SEEKSIM_CUDA AND nccl_version VERSION_GREATER_EQUAL 2.28)
    set(SEEKSIM_NCCL TRUE)
  endif()
endif()
seeksim_row("NCCL" "${SEEKSIM_NCCL}" "${nccl_version}, ${SEEKSIM_NCCL_INCLUDE}" "NVIDIA's libnccl-dev, 2.28 or newer"
            "no --backend nccl")

find_package(benchmark QUIET)
seeksim_row("Google Benchmark" "${benchmark_FOUND}" "${benchmark_VERSION}" "libbenchmark-dev" "no benchmarks")

find_library(SEEKSIM_OPENBLAS_LIBRARY openblas)
find_path(SEEKSIM_OPENBLAS_INCLUDE openblas/cblas.h cblas.h PATH_SUFFIXES x86_64-linux-gnu)
mark_as_advanced(SEEKSIM_OPENBLAS_LIBRARY SEEKSIM_OPENBLAS_INCLUDE)
seeksim_row("OpenBLAS" "${SEEKSIM_OPENBLAS_LIBRARY}" "${SEEKSIM_OPENBLAS_LIBRARY}" "libopenblas-dev"
            "benchmarks compare with nothing")

# For the wheel and the Python package's tests.
find_program(SEEKSIM_PYTHON3 python3)
mark_as_advanced(SEEKSIM_PYTHON3)
seeksim_row("Python" "${SEEKSIM_PYTHON3}" "${SEEKSIM_PYTHON3}" "python3" "no wheel, no seeksim torch")

if(SEEKSIM_MISSING_REQUIRED)
  seeksim_print_dependencies()
  list(JOIN SEEKSIM_MISSING_REQUIRED " " packages)
  message(FATAL_ERROR "seeksim needs packages that are missing. On Debian 12:\n"
                      "  sudo apt-get install -y ${packages}")
endif()
