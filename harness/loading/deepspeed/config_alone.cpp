#include "harness/loading/deepspeed/config_alone.h"

#include <algorithm>

#include "harness/input/schema.h"
#include "harness/loading/deepspeed/activation_checkpointing.h"
#include "harness/loading/deepspeed/auto_values.h"
#include "harness/loading/deepspeed/deepspeed.h"
#include "harness/loading/deepspeed/forms.h"
#include "harness/loading/deepspeed/precision.h"

namespace seeksim::harness {
namespace {

// A schedule needs a number of steps where the Trainer would know it.
constexpr std::int64_t kSteps = 10'000;

const Json& schema() {
  static const Json schema =
      shapes::object_with({{"deepspeed", deepspeed_keys().shape()}, {"auto", auto_keys().shape()}}).schema();
  return schema;
}

// "deepspeed.fp16.enabled" -> "fp16.enabled"
std::string in_the_file(const std::string& path) {
  constexpr std::string_view kSection = "deepspeed";
  if (!path.starts_with(kSection)) return path;
  return path.size() > kSection.size() + 1 ? path.substr(kSection.size() + 1) : "";
}

}  // namespace

ConfigReading read_config_alone(Document document, std::int64_t ranks) {
  ConfigReading reading;
  document.json()["steps"] = kSteps;
  Forms forms = bring_to_form(document);
  reading.notes = forms.notes;
  Findings findings(document);
  for (Problem& problem : forms.problems) findings.add(std::move(problem));
  for (const SchemaProblem& problem : explain(schema(), document.json()))
    findings.add(problem.pointer, problem.what, problem.next);
  Scenario scenario;
  scenario.strict_deepspeed = true;
  const Reader top(document.json(), "", findings);
  const Reader section = top.child("deepspeed");
  read_deepspeed(section, int(std::clamp<std::int64_t>(ranks, 0, 1 << 24)), scenario);
  read_precision(section, top, scenario);
  read_checkpointing(top, scenario);
  reading.config = document.json().at("deepspeed");
  reading.problems = as_written(findings.take(), forms, document);
  for (Problem& problem : reading.problems) problem.path = in_the_file(problem.path);
  return reading;
}

}  // namespace seeksim::harness
