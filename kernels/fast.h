// FastArithmetic: `fast` mode's products and sums. Nothing here has the contract's bits; bound.h says how far from them
// it may be.
//   Products: on a GPU cuBLASLt's, with tensor cores (device_table.h, vendor_gemm). On a CPU, and on a device whose
//   table has none, a kernel of ours that is built as vendors' are: K in tiles, two chains a tile, tiles added up.
//   Sums: as a ring makes them. Each member adds up its own parts; a shard's sum begins with the member behind its
//   owner and goes round. So, as with NCCL, the bits depend on the number of members and on who owns what. If the
//   transport has a library for it (Transport::library_sums), the library makes the sum.
#pragma once

#include <cstdint>

#include "kernels/arithmetic.h"
#include "kernels/fast_way.h"

namespace seeksim::kernels {

class FastArithmetic final : public Arithmetic {
 public:
  explicit FastArithmetic(FastWay way = {}) : way_(way) {}
  void gemm(Lane lane, const AnyGemm& call) override;
  void sum(Lane lane, const SumCall& call, Vec<float> out) override;
  void addend(Lane lane, Vec<float> values) override;
  // Products that went to the host and back, because the vendor's library offers nothing for their shape and place or
  // the device has no such library (the emulated device).
  std::uint64_t products_through_host() const { return through_host_; }

 private:
  FastWay way_;
  std::uint64_t through_host_ = 0;
};

}  // namespace seeksim::kernels
