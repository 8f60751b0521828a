// seeksim plan: which configuration fits into the memory of a device? Predicted by dry runs without values.
#pragma once

#include <string>
#include <vector>

#include "harness/verdict/exit_status.h"

namespace seeksim::harness {

struct PlanArguments {
  std::string file;  // a scenario, or a ds_config.json
  std::vector<std::string> sets;
  std::vector<std::string> autos;  // --auto
  int gpus = 0;                    // 0: as the scenario says
  int nodes = 0;                   // 0: as the scenario says, else 8 GPUs a node
  std::string memory;              // "80GB"; empty: as the scenario says
  std::string model;               // a name, a config.json or its folder, or sizes; empty: as the scenario says
  std::string report, html;
  std::string ledger = "seeksim";  // which says what fits: seeksim, deepspeed
  bool all = false;
  std::string platform;                   // h100,stack=fused: times of a calibrated platform; empty: none
  std::vector<std::string> nccl_tests;    // outputs of nccl-tests on it
  std::vector<std::string> torch_traces;  // traces of torch.profiler on it
};

// 80GB, 79.1GiB: bytes. Throws BadInput.
std::size_t bytes_of(const std::string& text);

// Exit status 1 where nothing fits. Throws BadInput with all problems.
ExitStatus plan_command(const PlanArguments& arguments);

}  // namespace seeksim::harness
