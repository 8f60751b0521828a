# The Debian package of the program: the target "deb" makes seeksim_<version>_<architecture>.deb in the build folder.
# Component "program": what a user runs. Headers and libraries for projects that link seeksim come with `cmake --install`.

# Completion and the manual page are what the program itself prints.
set(shell_files "${PROJECT_BINARY_DIR}/shell_files")
set(make_shell_files "mkdir -p '${shell_files}' && cd '${shell_files}'")
foreach(shell bash zsh fish)
  string(APPEND make_shell_files " && '$<TARGET_FILE:seeksim>' completion ${shell} > seeksim.${shell}")
endforeach()
string(APPEND make_shell_files " && '$<TARGET_FILE:seeksim>' man | gzip -9n > seeksim.1.gz"
  " && gzip -9nc '${CMAKE_CURRENT_SOURCE_DIR}/cmake/debian/changelog' > changelog.gz")
add_custom_target(shell_files COMMAND sh -c "${make_shell_files}" DEPENDS seeksim VERBATIM
                  COMMENT "Completion and the manual page")

set(shared "${CMAKE_INSTALL_DATAROOTDIR}")
foreach(file IN ITEMS "seeksim.bash|bash-completion/completions|seeksim" "seeksim.zsh|zsh/vendor-completions|_seeksim"
                      "seeksim.fish|fish/vendor_completions.d|seeksim.fish" "seeksim.1.gz|man/man1|seeksim.1.gz"
                      "changelog.gz|doc/seeksim|changelog.gz")
  string(REPLACE "|" ";" file "${file}")
  list(GET file 0 made)
  list(GET file 1 folder)
  list(GET file 2 name)
  install(FILES "${shell_files}/${made}" DESTINATION "${shared}/${folder}" RENAME "${name}" COMPONENT program OPTIONAL)
endforeach()
install(FILES cmake/debian/copyright README.md DESTINATION "${shared}/doc/seeksim" COMPONENT program)

# `seeksim torch` compiles its backend against the user's torch: the sources that pytorch/python/seeksim_torch/build.py
# lists, with their headers, as they lie in the tree. torch finds the Python part by the entry point of its dist-info.
install(DIRECTORY pytorch/python pytorch/tools pytorch/core pytorch/backend pytorch/preload DESTINATION "${shared}/seeksim/pytorch"
        COMPONENT program FILES_MATCHING PATTERN "*.py" PATTERN "*.cpp" PATTERN "*.h" PATTERN "METADATA"
        PATTERN "entry_points.txt" PATTERN "__pycache__" EXCLUDE)
install(DIRECTORY kernels faults DESTINATION "${shared}/seeksim" COMPONENT program
        FILES_MATCHING PATTERN "*.h" PATTERN "*.inl" PATTERN "cuda" EXCLUDE PATTERN "emulated" EXCLUDE)
install(DIRECTORY runtime/seams DESTINATION "${shared}/seeksim/runtime" COMPONENT program
        FILES_MATCHING PATTERN "*.h" PATTERN "*.inl" PATTERN "op.cpp" PATTERN "buffer.cpp" PATTERN "error.cpp")
install(FILES kernels/check.cpp DESTINATION "${shared}/seeksim/kernels" COMPONENT program)
install(FILES faults/trigger.cpp faults/catalogue.cpp faults/pace.cpp faults/rule_text.cpp faults/rule_review.cpp
        DESTINATION "${shared}/seeksim/faults" COMPONENT program)
install(DIRECTORY examples/pytorch DESTINATION "${shared}/seeksim/examples" COMPONENT program)

set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL program)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_CONTACT "The seeksim developers <maintainers@seeksim.invalid>")
set(CPACK_DEBIAN_PACKAGE_NAME seeksim)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "openmpi-bin")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "python3, g++, libfmt-dev, nlohmann-json3-dev")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "fault injection and correctness checks for distributed training")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "seeksim runs real distributed training of language models (ZeRO 1 to 3,
pipeline, tensor and data parallelism, offload, mixed precision) on
simulated ranks, on processes or on GPUs. It injects faults, and checks
that the result equals the fault-free run on one rank, bit for bit, and
that recovery behaves. PyTorch scripts run under the same faults.")
include(CPack)

find_program(SEEKSIM_SHLIBDEPS dpkg-shlibdeps)
mark_as_advanced(SEEKSIM_SHLIBDEPS)
if(SEEKSIM_SHLIBDEPS)
  add_custom_target(deb COMMAND "${CMAKE_CPACK_COMMAND}" -G DEB WORKING_DIRECTORY "${PROJECT_BINARY_DIR}"
                    DEPENDS seeksim shell_files VERBATIM COMMENT "The Debian package")
endif()
