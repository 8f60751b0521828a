// The expression that a compiler may contract, once with the project's flag undone (what g++ does by default) and once
// as the project builds. Named *_avx2.cpp because only a file with FMA enabled can contract.

namespace seeksim::kernels::test {

float contracted_square_difference(float a, float c);
float separate_square_difference(float a, float c);

#pragma GCC push_options
#pragma GCC optimize("O2", "fp-contract=fast")
float contracted_square_difference(float a, float c) {
#if defined(__clang__)
#pragma clang fp contract(fast)
#endif
  return a * a + c;
}
#pragma GCC pop_options

float separate_square_difference(float a, float c) { return a * a + c; }

}  // namespace seeksim::kernels::test
