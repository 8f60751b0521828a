// Detection of the instruction set, and the contract's self-test. The only file of kernels/ that reads the environment.
#include "kernels/isa.h"

#include <cpuid.h>
#include <immintrin.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "kernels/isa/table.h"

namespace seeksim::kernels {
namespace {

constexpr std::array kAll = {Isa::scalar, Isa::avx2, Isa::avx512};
Isa chosen_isa = Isa::scalar;
bool is_chosen = false;

Isa best() {
  if (!cpu_has(Isa::scalar))
    throw std::runtime_error(
        "this CPU lacks AVX2, FMA or F16C, which seeksim's arithmetic needs (any x86-64 CPU since about 2013 has them; "
        "in a virtual machine, pass the host's CPU model through)");
  return cpu_has(Isa::avx512) ? Isa::avx512 : Isa::avx2;
}

Isa checked(Isa isa) {
  best();
  if (cpu_has(isa)) return isa;
  throw std::runtime_error(std::string("instruction set ") + name(isa) +
                           " was forced, but this CPU lacks it; the best here is " + name(best()) +
                           " (unset SEEKSIM_ISA, or set it to that)");
}

Isa from_environment() {
  const char* const wanted = std::getenv("SEEKSIM_ISA");
  if (wanted == nullptr || *wanted == '\0') return best();
  for (Isa isa : kAll)
    if (std::strcmp(wanted, name(isa)) == 0) return checked(isa);
  throw std::runtime_error(std::string("SEEKSIM_ISA=") + wanted + " is not one of scalar, avx2, avx512");
}

}  // namespace

const char* name(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return "scalar";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
  }
  return "?";
}

bool cpu_has(Isa isa) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  const bool least = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c;
  if (isa != Isa::avx512) return least;  // scalar code uses the fma and half conversion instructions too
  return least && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

Isa active_isa() {
  if (!is_chosen) {
    chosen_isa = from_environment();
    is_chosen = true;
  }
  return chosen_isa;
}

void force_isa(Isa isa) {
  chosen_isa = checked(isa);
  is_chosen = true;
}

const ProductTable& products() {
  switch (active_isa()) {
    case Isa::scalar:
      return products_scalar();
    case Isa::avx2:
      return products_avx2();
    case Isa::avx512:
      break;
  }
  return products_avx512();
}

const ElementTable& elements() {
  switch (active_isa()) {
    case Isa::scalar:
      return elements_scalar();
    case Isa::avx2:
      return elements_avx2();
    case Isa::avx512:
      break;
  }
  return elements_avx512();
}

std::string self_test() {
  // volatile: tests what this machine computes, not what the compiler folds.
  volatile float one_ulp_up = 0x1.001p0F, minus_square = -0x1.002p0F;
  if (one_ulp_up * one_ulp_up + minus_square != 0.0F)
    return "a * b + c was contracted into an fma: build with -ffp-contract=off";
  volatile float smallest_normal = 0x1p-126F, half = 0.5F, denormal = 0x1p-149F;
  if (smallest_normal * half == 0.0F || denormal + denormal != 0x1p-148F)
    return "denormals are flushed to zero: some library was linked with -ffast-math or -Ofast (MXCSR has FTZ or DAZ "
           "set)";
  volatile float one = 1.0F, tie = 0x1p-24F, above = 0x1.000002p0F;
  if (one + tie != 1.0F || above + tie != 0x1.000004p0F)
    return "rounding is not to nearest even: something changed MXCSR";
  volatile float three = 3.0F, two = 2.0F, ten = 10.0F;
  if (one / three != 0x1.555556p-2F || ten / three != 0x1.aaaaaap1F)
    return "division is not correctly rounded: build without -ffast-math";
  const __m128 root = _mm_sqrt_ss(_mm_set_ss(two));
  if (_mm_cvtss_f32(root) != 0x1.6a09e6p0F) return "sqrt is not correctly rounded";
  if (!float_environment_ok())
    return "MXCSR is not 0x1f80: flush-to-zero, denormals-are-zero, rounding or traps were changed";
  return "";
}

bool float_environment_ok() {
  constexpr unsigned kStickyFlags = 0x3fU;
  return (_mm_getcsr() & ~kStickyFlags) == 0x1f80U;
}

}  // namespace seeksim::kernels
