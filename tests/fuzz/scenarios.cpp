// Scenarios, options that change one, and schedule strings.
#include "harness/input/problem.h"
#include "harness/loading/load.h"
#include "harness/loading/schedule_string.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/targets.h"

namespace seeksim::fuzz {

using namespace harness;

namespace {

constexpr std::string_view kSmall = R"({ "name": "small", "why": "Something to change.",
  "model": { "layers": 2, "width": 32, "heads": 4, "context": 16, "vocab": 256 }, "data": { "synthetic": true },
  "world": { "nodes": 2, "ranks_per_node": 2 }, "steps": 4,
  "deepspeed": { "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2 } })";

// What was taken is written back and read again as the same.
void require_the_same_again(const Scenario& scenario) {
  const std::string once = to_json(scenario).dump();
  require(to_json(load_scenario_text(once, scenario.file)).dump() == once, "a scenario that changes when written");
}

}  // namespace

bool take_scenario(std::string_view bytes) try {
  const Scenario scenario = load_scenario_text(bytes, "a.json");
  if (scenario.sweep.empty()) require_the_same_again(scenario);
  rows_of(scenario.sweep, 1);
  return true;
} catch (const BadInput&) {
  return false;
}

// One option a line.
bool take_set(std::string_view bytes) try {
  LoadOptions options;
  while (!bytes.empty() && options.sets.size() < 8) {
    const std::size_t end = bytes.find('\n');
    options.sets.emplace_back(bytes.substr(0, end));
    bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
  }
  rows_of(load_scenario_text(kSmall, "a.json", options).sweep, 1);
  return true;
} catch (const BadInput&) {
  return false;
}

bool take_schedule_string(std::string_view bytes) try {
  static const Scenario kScenario = load_scenario_text(kSmall, "a.json");
  Scenario scenario = kScenario;
  apply_schedule(std::string(bytes), scenario);
  const std::string again = schedule_string(scenario);
  Scenario same = kScenario;
  apply_schedule(again, same);
  require(schedule_string(same) == again, "a schedule that changes when written");
  return true;
} catch (const BadInput&) {
  return false;
}

}  // namespace seeksim::fuzz
