// The claims that the simulator and real back ends must both keep: C1 to C15 about communicators
// (claims_of_communicators.cpp), and every collective of ours with exact inputs. A claim is one body, which each rank
// runs with its own seams. If only one kind of world can keep it, it says why.
#pragma once

#include <bit>
#include <string>
#include <vector>

#include "runtime/host/host_writes.h"
#include "tests/sim/sim_test.h"

namespace seeksim::conformance {

using namespace seeksim::sim;  // what all tests of seams share

// Device memory is read and written by copies, since on a GPU the host cannot touch it. These hide those of tests/sim.
inline BufferPtr floats(Rank& rank, std::size_t n, float value = 0) {
  BufferPtr buffer = rank.device.allocate(n * sizeof(float), MemoryTag::scratch, "test");
  const std::vector<float> values(n, value);
  kernels::write_values(buffer->lane, values.data(), vec<float>(*buffer).get());
  runtime::settle(*buffer);
  return buffer;
}
inline std::uint32_t word(const BufferPtr& buffer, std::size_t i) {
  std::uint32_t held = 0;
  kernels::copy_bytes(buffer->lane, buffer->data + i * sizeof held, &held, sizeof held);
  return held;
}
inline float at(const BufferPtr& buffer, std::size_t i) { return std::bit_cast<float>(word(buffer, i)); }
inline void set(const BufferPtr& buffer, std::size_t i, float value) {
  kernels::copy_bytes(buffer->lane, &value, buffer->data + i * sizeof value, sizeof value);
  runtime::settle(*buffer);
}
inline std::vector<float> all_of(const BufferPtr& buffer) {
  std::vector<float> values(buffer->bytes / sizeof(float));
  kernels::copy_bytes(buffer->lane, buffer->data, values.data(), buffer->bytes);
  return values;
}
inline void set_all(const BufferPtr& buffer, const std::vector<float>& values) {
  kernels::copy_bytes(buffer->lane, values.data(), buffer->data, values.size() * sizeof(float));
  runtime::settle(*buffer);
}

// Distinguishes one run of a claim from earlier ones over the same wires.
struct Site {
  std::uint64_t first_id = 1;  // of its communicators
};

enum class Ends { all_return, in_a_deadlock };

struct Claim {
  const char* name;
  int ranks;
  void (*body)(Rank& rank, const Site& site);
  const char* only_simulated = nullptr;  // why processes cannot keep it
  Ends ends = Ends::all_return;
  bool one_node = false;                 // simulated: all ranks inside one, not one a node
  int killed = -1;                       // simulated: this rank is gone after a second
  bool is_false = false;                 // planted: each arm must find that it does not hold
  const char* not_over_nccl = nullptr;   // why processes can keep it, and processes with NCCL cannot
  const char* only_over_nccl = nullptr;  // why only processes with NCCL can keep it
};

std::vector<Claim> claims_of_communicators();
std::vector<Claim> claims_of_collectives();
std::vector<Claim> all_claims();

// ---- what bodies share ---------------------------------------------------------------------------------------------

inline constexpr runtime::TimeNs kPatience = 60 * kSecond;          // what comes at all comes within this
inline constexpr runtime::TimeNs kImpatience = 300 * kMillisecond;  // how long to wait for what never comes
inline runtime::TimeNs soon(Rank& rank) { return rank.clock.now() + kImpatience; }
inline runtime::TimeNs at_last(Rank& rank) { return rank.clock.now() + kPatience; }

inline Comm comm_of(Rank& rank, const Site& site, std::vector<int> members, std::uint64_t which = 0) {
  return make_comm(rank, std::move(members), site.first_id + which, 0, at_last(rank));
}
inline Comm comm_of(Rank& rank, const Site& site) { return comm_of(rank, site, everybody(rank)); }

}  // namespace seeksim::conformance
