# What ./seeksim pack puts into its folder (pack/make.sh): the program, and the tests and benchmarks that a GPU needs,
# with the shared libraries that they link but glibc's. CUDA's runtime is linked statically; the driver, NCCL, cuBLASLt
# and MPI are opened at run time, where they are. Component "pack_standin": the same on the stand-in for a GPU.
set(pack_programs seeksim gpu_checks)
set(pack_of_others "^/lib(64)?/ld-" "ld-linux" "/lib(c|m|dl|rt|pthread|resolv|util|nsl)\\.so")
set_target_properties(${pack_programs} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
install(TARGETS ${pack_programs} RUNTIME_DEPENDENCY_SET seeksim_pack_libraries
        RUNTIME DESTINATION bin COMPONENT pack EXCLUDE_FROM_ALL)
install(RUNTIME_DEPENDENCY_SET seeksim_pack_libraries POST_EXCLUDE_REGEXES ${pack_of_others}
        LIBRARY DESTINATION lib COMPONENT pack EXCLUDE_FROM_ALL)
if(TARGET seeksim_standin)
  set(standin_programs seeksim_standin test_backend_standin test_conformance_standin)
  set_target_properties(${standin_programs} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
  install(TARGETS ${standin_programs} RUNTIME DESTINATION standin COMPONENT pack_standin EXCLUDE_FROM_ALL)
endif()
