#include "harness/torch/hunt/known.h"

#include "harness/torch/hunt/shrink.h"

namespace seeksim::harness::torch {

const std::vector<KnownFinding>& known_findings() {
  static const std::vector<KnownFinding> all = {
      {"zero3-unused-layer", {{"wrapper", {"zero3"}}, {"branch", {"step", "late"}}}},
      {"zero-offload-unused-layer", {{"wrapper", {"zero1", "zero2"}}, {"branch", {"step"}}, {"offload", {"on"}}}},
      {"zero-offload-unused-layer", {{"wrapper", {"zero2", "zero3"}}, {"branch", {"early"}}, {"offload", {"on"}}}},
      {"zero-offload-unused-layer", {{"wrapper", {"zero2"}}, {"branch", {"late"}}, {"offload", {"on"}}}},
      {"zero1-overlap-unused-layer", {{"wrapper", {"zero1"}}, {"branch", {"early"}}, {"overlap", {"true"}}}},
      {"zero3-reused-block", {{"wrapper", {"zero3"}}, {"reused", {"on"}}, {"recompute", {"reentrant"}}}},
      {"fsdp1-channels-last", {{"wrapper", {"fsdp1"}}, {"strided", {"on"}}, {"strategy", {"none"}}}},
      {"fsdp1-channels-last", {{"wrapper", {"fsdp1"}}, {"strided", {"on"}}, {"np", {"1"}}}},
      {"fsdp2-reentrant", {{"wrapper", {"fsdp2", "hsdp"}}, {"reused", {"on"}}, {"recompute", {"reentrant"}}}},
      {"fsdp2-reentrant", {{"wrapper", {"fsdp2", "hsdp"}}, {"forwards", {"2"}}, {"recompute", {"reentrant"}}}},
  };
  return all;
}

KnownFinding known_by(const Case& found) {
  KnownFinding known;
  known.name = case_text(found);
  for (const auto& [name, value] : needed(found)) known.when[name] = {value};
  return known;
}

KnownFinding known_by(const std::string& text) { return known_by(case_of(text)); }

bool covers(const KnownFinding& known, const Case& drawn) { return Rule{known.when, Grade::bits, ""}.covers(drawn); }

bool explains(const KnownFinding& known, const Case& drawn, const std::function<bool(const Case&)>& red) {
  if (!covers(known, drawn)) return false;
  Case without = drawn;
  for (const auto& [name, values] : known.when) {
    if (name != "wrapper") without[name] = feature(name).values.front();
  }
  without = normal(without);
  return without == drawn || !cannot_be(without).empty() || !red(without);
}

}  // namespace seeksim::harness::torch
