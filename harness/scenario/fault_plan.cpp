#include "harness/scenario/fault_plan.h"

namespace seeksim::harness {

using faults::FaultKind;

const std::vector<std::pair<FaultKind, double>>& drawable() {
  static const std::vector<std::pair<FaultKind, double>> all = {
      {FaultKind::rank_crash, 1},       {FaultKind::collective_timeout, 1},
      {FaultKind::link_drop, 1},        {FaultKind::slow_link, 1},
      {FaultKind::straggler, 1},        {FaultKind::message_drop, 1},
      {FaultKind::message_corrupt, 1},  {FaultKind::oom, 1},
      {FaultKind::nvme_read_error, 1},  {FaultKind::nvme_short_read, 1},
      {FaultKind::nvme_write_error, 1}, {FaultKind::slow_disk, 1}};
  return all;
}

const std::vector<std::pair<FaultKind, double>>& field_weights() {
  static const std::vector<std::pair<FaultKind, double>> weights = {
      // GPU 148, its memory 72, SRAM and system processor 36, software 54, host 32, power, board, CPU and the like 13
      {FaultKind::rank_crash, 355},       {FaultKind::link_drop, 42},  // switch or cable 35, NIC 7
      {FaultKind::collective_timeout, 7},                              // NCCL's watchdog
      {FaultKind::straggler, 6},                                       // thermal interface and sensor
      {FaultKind::message_corrupt, 6},                                 // silent corruption, where a checksum sees it
      {FaultKind::slow_disk, 3},                                       // SSD
  };
  return weights;
}

}  // namespace seeksim::harness
