// Elementwise and row kernels for avx512; compiled with its own flags (cmake/SeeksimFlags.cmake goes by the file's
// name).
#define SEEKSIM_ELEMENT_TABLE elements_avx512
#include "kernels/isa/elements_main.inl"
