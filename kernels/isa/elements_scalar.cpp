// Elementwise and row kernels for scalar; compiled with its own flags (cmake/SeeksimFlags.cmake goes by the file's
// name).
#define SEEKSIM_ELEMENT_TABLE elements_scalar
#include "kernels/isa/elements_main.inl"
