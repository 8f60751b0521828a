// The times and the memory of a scenario on a calibrated platform, for seeksim plan --platform.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "harness/calibration/step_memory.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness::calibration {

struct ScenarioTimes {
  Platform platform;
  ModelShape model;
  StepLayout layout;
  StepTime time;
  StepMemory memory;  // of one GPU at its peak
  std::vector<StepCollective> collectives;

  double mfu() const { return calibration::mfu(model, layout, platform, time.us()); }
};

// What of a scenario the model of times does not know (experts, offload, a family of models of one's own); empty:
// nothing.
std::string unknown_part(const Scenario& scenario);

// Of a scenario without such a part. Where the platform names no stack: eager at stage 3, plain otherwise. Where it
// names no NVLink domain: a node, of at most 8 GPUs.
ScenarioTimes scenario_times(const Scenario& scenario, Platform platform);

// What a GPU holds at its peak, part by part, with what CUDA and NCCL take beside it.
struct MemoryLine {
  const char* name;
  double bytes;
  const char* what;
};
std::vector<MemoryLine> memory_lines(const ScenarioTimes& times);

// For a person: the step, where its time goes, its collectives alone, and what is assumed.
std::string text(const ScenarioTimes& times);
nlohmann::ordered_json json(const ScenarioTimes& times);

}  // namespace seeksim::harness::calibration
