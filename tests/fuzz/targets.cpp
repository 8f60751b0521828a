#include "tests/fuzz/targets.h"

namespace seeksim::fuzz {

std::span<const Target> targets() {
  static constexpr Target kTargets[] = {
      {"safetensors", take_safetensors},
      {"manifest", take_manifest},
      {"golden", take_golden},
      {"hostfile", take_hostfile},
      {"ds_config", take_ds_config},
      {"pickle_dump", take_pickle_dump},
      {"json_dump", take_json_dump},
      {"log", take_log},
      {"scenario", take_scenario},
      {"set", take_set},
      {"schedule_string", take_schedule_string},
      {"control_frames", take_control_frames},
      {"message", take_message},
      {"tcp_stream", take_tcp_stream},
      {"report", take_report},
  };
  return kTargets;
}

}  // namespace seeksim::fuzz
