// What this machine offers to seeksim, found by trying it: the processor and its arithmetic, memory, disks, GPUs, NCCL,
// MPI. Nothing is linked for it: libraries of GPUs are opened where they are there.
#pragma once

#include <string>
#include <vector>

namespace seeksim::harness {

struct Probe {
  enum class State : std::uint8_t {
    good,
    missing,  // something is not there that seeksim can do without
    bad       // seeksim cannot be trusted here
  };
  State state = State::good;
  const char* subject = "";
  std::string text;  // what was found
  std::string next;  // how to get what is missing
};

// Wrong bits are worse than none: asked before anything runs. Throws BadInput.
void check_machine();

std::vector<Probe> probe_processor();
// A file below `folder` is written, synced, renamed, read back and removed, as checkpoints and swap files will be.
Probe probe_storage(const std::string& folder);
std::vector<Probe> probe_gpus();  // driver, devices, peer access, NCCL
// What is said of NCCL: its version as it counts (0: none), and NCCL_MULTI_RANK_GPU_ENABLE, or null.
Probe nccl_probe(int version, const char* sharing);
Probe probe_mpi();
// One rank of a small scenario against the bits that are stored for it.
Probe probe_conformance();

}  // namespace seeksim::harness
