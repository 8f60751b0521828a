// What a machine is, for the times of collectives and steps: GPUs, NVLink domains, adapters, a stack of software, and
// the constants that were fitted to published measurements (docs/calibration.md).
#pragma once

#include <string>
#include <vector>

#include "harness/calibration/curves.h"

namespace seeksim::harness::calibration {

// One member a row of constants.inl.
struct Constants {
#define SEEKSIM_FIXED(name, value, text) double name = value;
#define SEEKSIM_FITTED(name, value, start, text) double name = value;
#include "harness/calibration/constants.inl"
#undef SEEKSIM_FIXED
#undef SEEKSIM_FITTED
};

struct ConstantRow {
  const char* name;
  double Constants::*member;
  bool fitted = false;
  double start = 0;  // where the fit begins
  const char* text;
};
const std::vector<ConstantRow>& constant_rows();

enum class Gpu { h100, a100 };
enum class Network { ib, hdr8, hdr4, efa32, efa4 };
// Who calls the kernels: Megatron's fused layers, torch.compile, fused attention and norms alone, or none of these.
enum class Stack { fused, compiled, plain, eager };

struct Platform {
  Gpu gpu = Gpu::h100;
  Network network = Network::ib;
  Stack stack = Stack::plain;
  int node = 8;                 // GPUs of an NVLink domain
  double oversubscription = 1;  // of the switches above a leaf
  int leaf = 32;                // nodes below one leaf
  int watts = 700;              // of a GPU: 700 or 500
  bool stack_named = false;     // platform_of was told the stack
  bool node_named = false;      // and the domain
  std::vector<Curve> curves;    // measured, in place of the model where collective, ranks and nodes are the same
  Constants constants;

  double peak_flops_per_us() const;           // dense, bf16
  double memory_bytes_per_us() const;         // of one GPU
  double nvlink_bytes_per_us() const;         // of one GPU, one direction, as wired
  double ring_bytes_per_us() const;           // what a ring makes of it
  double wire_bytes_per_us(int nodes) const;  // of a node's adapters together, as NCCL gets it across so many nodes
  double hop_us() const;                      // between nodes, LL
  double ramp_us() const;                     // between nodes, Simple: for which a chunk is worth cutting
  bool has_nvls() const { return gpu == Gpu::h100; }
  // Whether LL and LL128 may cross nodes, whose data carry flags: AWS's plugin allows Simple alone on P4d and P4de,
  // whose adapters deliver out of order (aws/aws-ofi-nccl#76 and #280).
  bool has_flags_on_the_wire() const { return network != Network::efa4; }
};

// "h100", "a100,network=hdr8,stack=eager,oversubscription=2,leaf=16,node=8,watts=500". Throws BadInput; `option` names
// the place in its message.
Platform platform_of(const std::string& text, const std::string& option);
// What platform_of understands, without the constants.
std::string text(const Platform& platform);

const char* name(Gpu gpu);
const char* name(Network network);
const char* name(Stack stack);

}  // namespace seeksim::harness::calibration
