#include "harness/loading/deepspeed/monitors.h"

#include <fmt/format.h>

namespace seeksim::harness {

using namespace shapes;

const Keys<Monitor>& monitor_keys() {
  static const Keys<Monitor> keys = {
      {"enabled", at(&Monitor::enabled), flag(), kNoBit, "false: nothing is written."},
      {"output_path", at(&Monitor::output_path), text(), kNoBit,
       "A folder below the working folder. A run writes nothing outside of that."},
      {"job_name", at(&Monitor::job_name), text(), kNoBit, "A folder below output_path, for the files."},
  };
  return keys;
}

namespace {

void read_one(const Reader& deepspeed, const char* key, Monitor& monitor, Scenario& scenario) {
  monitor_keys().read(deepspeed.child(key), monitor);
  if (!monitor.enabled) return;
  const std::string folder = folder_of(monitor);
  if (!folder.empty()) {
    scenario.notes.push_back(fmt::format("{} writes files to {}", key, folder));
    return;
  }
  scenario.notes.push_back(
      fmt::format("{} writes nothing: its folder is not below the working folder (--set "
                  "deepspeed.{}.output_path=logs writes there)",
                  key, key));
}

}  // namespace

void read_monitors(const Reader& deepspeed, Scenario& scenario) {
  read_one(deepspeed, "tensorboard", scenario.watched.monitors.tensorboard, scenario);
  read_one(deepspeed, "csv_monitor", scenario.watched.monitors.csv, scenario);
}

void write_monitors(const Scenario& scenario, Json& deepspeed) {
  const Monitors& monitors = scenario.watched.monitors;
  if (monitors.tensorboard.enabled) deepspeed["tensorboard"] = monitor_keys().written(monitors.tensorboard);
  if (monitors.csv.enabled) deepspeed["csv_monitor"] = monitor_keys().written(monitors.csv);
}

}  // namespace seeksim::harness
