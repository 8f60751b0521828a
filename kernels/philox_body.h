// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC'11), host and device.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define SEEKSIM_PHILOX_HD static __host__ __device__ __forceinline__
#else
#define SEEKSIM_PHILOX_HD static inline __attribute__((always_inline))
#endif

namespace seeksim::kernels {

// c: the counter on entry, four random words on return.
SEEKSIM_PHILOX_HD void philox_body(std::uint32_t (&c)[4], std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * c[2];
    const auto c1 = c[1], c3 = c[3];
    c[0] = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ key0;
    c[1] = static_cast<std::uint32_t>(p1);
    c[2] = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ key1;
    c[3] = static_cast<std::uint32_t>(p0);
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
}

}  // namespace seeksim::kernels
