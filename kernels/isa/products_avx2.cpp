// GEMM and attention for avx2; compiled with its own flags (cmake/SeeksimFlags.cmake goes by the file's name).
#define SEEKSIM_PRODUCT_TABLE products_avx2
#include "kernels/isa/products_main.inl"
