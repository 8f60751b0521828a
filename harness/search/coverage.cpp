#include "harness/search/coverage.h"

#include <fmt/format.h>

#include <algorithm>

#include <nlohmann/json.hpp>

namespace seeksim::harness {
namespace {

std::string place(faults::FaultKind kind, runtime::OpKind op, runtime::Phase phase) {
  if (op == runtime::OpKind::count_) return fmt::format("{} at a time", name(kind));
  return fmt::format("{} in {} of {}", name(kind), name(op), name(phase));
}

}  // namespace

Coverage::Act Coverage::act(const runtime::Op& op) { return std::uint32_t(op.kind) << 8 | std::uint32_t(op.phase); }

void Coverage::see(const runtime::Op& op) {
  const Act now = act(op);
  if (last_rank_ >= 0 && op.rank != last_rank_ && now != last_) new_orders_ += orders_.emplace(last_, now).second;
  last_rank_ = op.rank;
  last_ = now;
}

std::size_t Coverage::add_run(const RunRecord& run, const std::vector<faults::Rule>& rules,
                              const std::string& stopped) {
  std::size_t added = std::exchange(new_orders_, 0);
  last_rank_ = -1;
  const auto count = [&added](std::map<std::string, std::uint64_t>& of, const std::string& what) {
    added += of[what]++ == 0;
  };
  for (const FaultDecision& one : run.fault_decisions) {
    if (one.rule < rules.size()) count(struck_, place(rules[one.rule].kind, one.kind, one.phase));
  }
  std::string before;
  for (const Recovery& recovery : run.detection.recoveries) {
    const char* error = recovery.error == runtime::ErrorKind::count_ ? "told" : runtime::name(recovery.error).data();
    const std::string what = fmt::format(
        "{} in {} of {}: {}, {} of {} leave{}{}", error, name(recovery.op.kind), name(recovery.op.phase),
        name(recovery.diagnosis.verdict), recovery.evicted.size(), recovery.evicted.size() + recovery.survivors.size(),
        recovery.layout.empty() ? "" : ", layout", recovery.of_another_mind.empty() ? "" : ", not of one mind");
    count(branches_, what);
    if (!before.empty()) count(branches_, "after another one: " + what);
    before = what;
  }
  if (run.training.undone_steps > 0) count(branches_, "steps are undone");
  for (std::size_t i = 1; i < run.training.attempts.size(); ++i)
    count(branches_, fmt::format("start {} of the job", i + 1));
  if (!run.detection.joins.empty()) count(branches_, fmt::format("{} join", run.detection.joins.size()));
  if (!stopped.empty()) count(branches_, "stop: " + stopped.substr(0, 40));
  return added;
}

std::size_t Coverage::pairs() const {
  std::set<std::pair<Act, Act>> unordered;
  for (const auto& [a, b] : orders_) unordered.emplace(std::min(a, b), std::max(a, b));
  return unordered.size();
}

std::size_t Coverage::pairs_in_both_orders() const {
  std::size_t both = 0;
  for (const auto& [a, b] : orders_) both += a < b && orders_.contains({b, a});
  return both;
}

std::uint64_t Coverage::times_struck(faults::FaultKind kind, runtime::OpKind op, runtime::Phase phase) const {
  const auto found = struck_.find(place(kind, op, phase));
  return found == struck_.end() ? 0 : found->second;
}

Json Coverage::json() const {
  Json json;
  json["struck"] = struck_;
  json["branches"] = branches_;
  json["orders"] = Json::array();
  for (const auto& [a, b] : orders_) json["orders"].push_back({a, b});
  return json;
}

void Coverage::add(const Json& other) {
  for (const Json& one : other["orders"]) orders_.emplace(one[0].get<Act>(), one[1].get<Act>());
  for (const auto& [what, n] : other["struck"].items()) struck_[what] += n.get<std::uint64_t>();
  for (const auto& [what, n] : other["branches"].items()) branches_[what] += n.get<std::uint64_t>();
}

}  // namespace seeksim::harness
