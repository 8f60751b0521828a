// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC'11), host and device,
// for one counter or a vector of them.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define SEEKSIM_PHILOX_HD static __host__ __device__ __forceinline__
#else
#define SEEKSIM_PHILOX_HD static inline __attribute__((always_inline))
#endif

namespace seeksim::kernels {

// One counter: the integer operations that the rounds need. isa/dropout.inl has the same for vectors.
struct OneCounter {
  using U = std::uint32_t;
  SEEKSIM_PHILOX_HD void multiply(U a, std::uint32_t b, U& high, U& low) {
    const std::uint64_t product = std::uint64_t{a} * b;
    high = static_cast<U>(product >> 32);
    low = static_cast<U>(product);
  }
  SEEKSIM_PHILOX_HD U ulit(std::uint32_t a) { return a; }
};

// c: the counter on entry, four random words on return.
template <class C>
SEEKSIM_PHILOX_HD void philox_body(typename C::U (&c)[4], std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    typename C::U high0, low0, high1, low1;
    C::multiply(c[0], 0xD2511F53U, high0, low0);
    C::multiply(c[2], 0xCD9E8D57U, high1, low1);
    c[0] = high1 ^ c[1] ^ C::ulit(key0);
    c[1] = low1;
    c[2] = high0 ^ c[3] ^ C::ulit(key1);
    c[3] = low0;
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
}

}  // namespace seeksim::kernels
