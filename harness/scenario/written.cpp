#include "harness/scenario/written.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness {

Json data_json(const Scenario& scenario) {
  Json data = Json::object();
  if (scenario.train.definition.data.synthetic) {
    data["synthetic"] = true;
  } else if (!scenario.given.batches.empty()) {
    data["batches"] = scenario.given.batches;
  } else {
    data["text"] = scenario.train.definition.data.text;
    if (const std::int64_t held = scenario.train.definition.data.held_out_bytes; held > 0)
      data["held_out_bytes"] = held;
  }
  return data;
}

Json dropout_json(const runtime::DropoutPlan& plan) {
  if (plan.embedding == plan.attention && plan.attention == plan.residual) return plan.embedding;
  return {{"embedding", plan.embedding}, {"attention", plan.attention}, {"residual", plan.residual}};
}

}  // namespace seeksim::harness
