#include "tests/fuzz/targets.h"

namespace seeksim::fuzz {

std::span<const Target> targets() {
  static constexpr Target kTargets[] = {
      {"safetensors", take_safetensors},
      {"manifest", take_manifest, true},
      {"golden", take_golden, true},
      {"hostfile", take_hostfile, true},
      {"ds_config", take_ds_config, true},
      {"pickle_dump", take_pickle_dump},
      {"json_dump", take_json_dump, true},
      {"log", take_log, true},
      {"scenario", take_scenario, true},
      {"set", take_set, true},
      {"schedule_string", take_schedule_string, true},
      {"control_frames", take_control_frames},
      {"message", take_message},
      {"tcp_stream", take_tcp_stream},
      {"relay_frames", take_relay_frames},
      {"report", take_report},
      {"nccl_tests", take_nccl_tests, true},
      {"torch_trace", take_torch_trace, true},
  };
  return kTargets;
}

}  // namespace seeksim::fuzz
