# The wheel for pip: the target "wheel" makes seeksim-<version>-py3-none-manylinux_*.whl in the build folder. Python is
# needed for this target alone.
if(SEEKSIM_PYTHON3)
  add_custom_target(wheel COMMAND "${SEEKSIM_PYTHON3}" "${PROJECT_SOURCE_DIR}/pack/make_wheel.py" "${PROJECT_BINARY_DIR}"
                    DEPENDS seeksim shell_files VERBATIM COMMENT "The wheel")
endif()
