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
  }
  return data;
}

Json dropout_json(const runtime::DropoutPlan& plan) {
  if (plan.embedding == plan.attention && plan.attention == plan.residual) return plan.embedding;
  return {{"embedding", plan.embedding}, {"attention", plan.attention}, {"residual", plan.residual}};
}

}  // namespace seeksim::harness
