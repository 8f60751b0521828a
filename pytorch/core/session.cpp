#include "pytorch/core/session.h"

namespace seeksim::pytorch {
namespace {

std::vector<faults::Rule> rules_of(const std::vector<RuleKeys>& all) {
  std::vector<faults::Rule> rules;
  for (const RuleKeys& keys : all) rules.push_back(rule_of(keys));
  return rules;
}

std::vector<std::uint64_t> fired_before(const SessionSettings& settings) {
  std::vector<std::uint64_t> fired(settings.rules.size(), 0);
  for (const std::string& path : settings.earlier_records) {
    for (const FaultEntry& fault : read_record(path).faults)
      if (fault.rule >= 0 && std::size_t(fault.rule) < fired.size()) ++fired[std::size_t(fault.rule)];
  }
  return fired;
}

}  // namespace

Session::Session(SessionSettings settings)
    : settings_(std::move(settings)),
      rules_(rules_of(settings_.rules), settings_.seed, settings_.start.rank, settings_.start.world,
             fired_before(settings_), settings_.attempt),
      record_(settings_.record_path, settings_.start) {}

void Session::now(std::int64_t step, std::int32_t micro_batch, StepPhase phase) {
  const bool begins = phase != phase_ || step != step_ || micro_batch != micro_batch_;
  step_ = step;
  micro_batch_ = micro_batch;
  phase_ = phase;
  if (begins) record_.add(PhaseEntry{phase, micro_batch, step, monotonic_ns()});
  record_.now(step, micro_batch, phase);
}

std::vector<Rules::Hit> Session::rules_at(Situation situation) {
  if (situation.act != Act::work) situation.phase = phase_;  // there it is the phase that has ended
  situation.step = step_;
  situation.micro_batch = micro_batch_;
  situation.now_ns = monotonic_ns();
  return rules_.at(situation);
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
