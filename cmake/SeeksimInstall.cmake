# cmake --install: the program, the libraries with their headers, scenarios and goldens, and the package that
# find_package(seeksim) reads. tests/package/ proves it with a project of its own.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/seeksim")
set(libraries seeksim_kernels seeksim_runtime seeksim_backend seeksim_faults seeksim_sim seeksim_pytorch
              seeksim_reference seeksim_harness)
foreach(optional seeksim_emulator seeksim_cuda seeksim_testing)
  if(TARGET ${optional})
    list(APPEND libraries ${optional})
  endif()
endforeach()

install(TARGETS seeksim RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT program)
install(TARGETS ${libraries} EXPORT seeksim-targets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
# Includes are written as from the source tree's top.
install(DIRECTORY kernels runtime faults sim pytorch reference harness DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/seeksim"
        FILES_MATCHING PATTERN "*.h" PATTERN "*.inl")
# What users include: <seeksim/seeksim.h>.
install(FILES harness/seeksim.h DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/seeksim")
# Where the program looks when it runs from <prefix>/bin (harness/input/files.cpp).
install(DIRECTORY scenarios golden DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/seeksim" COMPONENT program)

# What links seeksim has the numeric contract compiled into inline functions of its headers: the same flags.
target_compile_options(seeksim_kernels INTERFACE "$<INSTALL_INTERFACE:-ffp-contract=off>")
target_compile_features(seeksim_kernels PUBLIC cxx_std_20)

install(EXPORT seeksim-targets NAMESPACE seeksim:: DESTINATION "${package_folder}")
configure_package_config_file(cmake/seeksim-config.cmake.in "${PROJECT_BINARY_DIR}/seeksim-config.cmake"
                              INSTALL_DESTINATION "${package_folder}")
# The interface of a young library changes with every minor version.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/seeksim-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/seeksim-config.cmake" "${PROJECT_BINARY_DIR}/seeksim-config-version.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/SeeksimPlainLibrary.cmake"
        DESTINATION "${package_folder}")
