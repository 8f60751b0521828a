# The flags that every translation unit of the project is compiled with.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# No -DNDEBUG: this program exists to notice what is wrong, so its assertions stay on in every build.
# -g1 keeps file and line in stack traces without making the objects large.
set(CMAKE_CXX_FLAGS_RELEASE "${SEEKSIM_OPT} -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")

# The numeric contract. g++ contracts a*b+c into an fma by default wherever the target has one, so the same source would
# give other bits in an AVX2 file than in a plain one. The two -fno flags only free the compiler from errno and traps,
# which nothing here reads; neither changes a value. Never add -Ofast, -ffast-math or a flag that they imply: one object
# linked with them sets flush-to-zero for the whole process.
add_compile_options(-ffp-contract=off -fno-math-errno -fno-trapping-math)

add_compile_options(-Wall -Wextra -Wshadow=local -Wnon-virtual-dtor -Woverloaded-virtual -Wvla)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  add_compile_options(-Wno-restrict)  # g++ 12 sees overlaps in "text" + std::string that cannot be
endif()
# g++ collects garbage each time its heap has grown by 30 % or more: a tenth of the time that a file takes to compile. It
# begins later here. A file takes a quarter of a gigabyte more.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options("SHELL:--param ggc-min-heapsize=1000000")
endif()
if(SEEKSIM_WERROR)
  # The exceptions are warnings that g++ 12 gives falsely, from inlined library code, at -O2 and above.
  add_compile_options(-Werror -Wno-error=maybe-uninitialized -Wno-error=array-bounds -Wno-error=stringop-overflow)
endif()
if(CMAKE_GENERATOR STREQUAL "Ninja")
  add_compile_options(-fdiagnostics-color=auto)
endif()

if(SEEKSIM_SANITIZE)
  # asan-stack=0: the sanitizer would poison the stack it believes a function runs on. Debian's Boost.Context does not
  # tell it about fiber switches, so that belief is wrong in everything that runs on a fiber. Heap and globals are
  # checked as usual.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
                      "SHELL:--param asan-stack=0")
  add_link_options(-fsanitize=address,undefined)
  # These four are a third of the time that a sanitized file takes to compile. AddressSanitizer sees null pointers, too.
  if(NOT SEEKSIM_SANITIZE_POINTERS)
    add_compile_options(-fno-sanitize=null,alignment,object-size,vptr)
  endif()
endif()

# Libraries that end up unused (MPI in a run that only simulates) must not cost start-up time.
add_link_options(-Wl,--as-needed)

# ccache is used where it is found; it is never needed. An empty -DCMAKE_CXX_COMPILER_LAUNCHER= turns it off.
if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(SEEKSIM_CCACHE ccache)
  if(SEEKSIM_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${SEEKSIM_CCACHE}")
  endif()
endif()

# seeksim_precompile(<target> <header>...): the headers of libraries that most files of the target include, compiled once.
# Sources still name what they include. Not with ccache, which would keep a copy of each precompiled header and miss more.
function(seeksim_precompile target)
  if(SEEKSIM_PCH AND NOT CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache")
    list(TRANSFORM ARGN REPLACE "(.+)" "<\\1>" OUTPUT_VARIABLE headers)
    target_precompile_headers(${target} PRIVATE ${headers})
  endif()
endfunction()

# Instruction sets by file name. Everything else is plain x86-64: a helper inlined into a file that is compiled for
# AVX-512 may be emitted there and then be chosen by the linker for all, so such files hold kernels and nothing else.
#   *_scalar.cpp   the reference loops. -mfma because std::fma would otherwise call libm; -mf16c for half conversions;
#                  no vectorisation, so that they stay a reference that one can read in the disassembly.
#   *_avx2.cpp     *_avx512.cpp
function(seeksim_set_isa_flags)
  foreach(source IN LISTS ARGN)
    if(source MATCHES "_scalar\\.cpp$")
      set_source_files_properties("${source}" PROPERTIES COMPILE_OPTIONS
        "-mfma;-mf16c;-fno-tree-vectorize;-fno-tree-slp-vectorize")
    elseif(source MATCHES "_avx2\\.cpp$")
      set_source_files_properties("${source}" PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
    elseif(source MATCHES "_avx512\\.cpp$")
      set_source_files_properties("${source}" PROPERTIES COMPILE_OPTIONS
        "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx2;-mfma;-mf16c")
    endif()
    if(source MATCHES "_(scalar|avx2|avx512)\\.cpp$")
      set_source_files_properties("${source}" PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()
