#include "pytorch/core/session.h"

namespace seeksim::pytorch {
namespace {

std::vector<faults::Rule> rules_of(const std::vector<RuleKeys>& all) {
  std::vector<faults::Rule> rules;
  for (const RuleKeys& keys : all) rules.push_back(rule_of(keys));
  return rules;
}

}  // namespace

Session::Session(SessionSettings settings)
    : settings_(std::move(settings)),
      rules_(rules_of(settings_.rules), settings_.seed, settings_.start.rank, settings_.start.world),
      record_(settings_.record_path, settings_.start) {}

void Session::now(std::int64_t step, std::int32_t micro_batch, StepPhase phase) {
  step_ = step;
  micro_batch_ = micro_batch;
  phase_ = phase;
  record_.now(step, micro_batch, phase);
}

std::vector<Rules::Hit> Session::rules_at(OpName op, std::int32_t peer, bool sums) {
  return rules_.at({op, phase_, step_, micro_batch_, peer, sums});
}

void Session::fired(const Rules::Hit& hit, std::int32_t call, const std::string& text) {
  FaultEntry entry;
  entry.rule = hit.index;
  entry.firing = hit.firing;
  entry.call = call;
  entry.step = step_;
  entry.text = record_.text(text);
  entry.time_ns = monotonic_ns();
  record_.add(entry);
}

}  // namespace seeksim::pytorch
