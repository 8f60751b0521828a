// GEMM and attention for scalar; compiled with its own flags (cmake/SeeksimFlags.cmake goes by the file's name).
#define SEEKSIM_PRODUCT_TABLE products_scalar
#include "kernels/isa/products_main.inl"
