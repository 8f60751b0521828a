// The lists. They are the program's, like the tables of built-in checks and faults; a run only reads them.
#include "harness/loading/extensions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "harness/input/problem.h"
#include "harness/scenario/recovery_words.h"

namespace seeksim::harness {
namespace {

template <class Rule>
using Named = std::map<std::string, std::shared_ptr<const Rule>>;

// The catalogue of checks points into them.
std::map<std::string, OwnCheck>& checks() {
  static std::map<std::string, OwnCheck> all;
  return all;
}
std::map<std::string, MakeFault>& faults() {
  static std::map<std::string, MakeFault> all;
  return all;
}
template <class Rule>
Named<Rule>& all_of() {
  static Named<Rule> all;
  return all;
}

template <class Map>
std::vector<std::string> keys_of(const Map& map) {
  std::vector<std::string> names;
  for (const auto& [name, value] : map) names.push_back(name);
  return names;
}

template <class Rule>
void add(const char* what, const std::string& name, std::shared_ptr<const Rule> rule, bool built_in) {
  refuse_name(what, name, built_in || all_of<Rule>().contains(name));
  if (rule == nullptr) throw std::invalid_argument(fmt::format("{} {} is null", what, in_quotes(name)));
  all_of<Rule>()[name] = std::move(rule);
}

template <class Rule>
std::shared_ptr<const Rule> named(const std::string& name) {
  const auto found = all_of<Rule>().find(name);
  return found == all_of<Rule>().end() ? nullptr : found->second;
}

}  // namespace

void refuse_name(const char* what, const std::string& name, bool taken) {
  const bool fine = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
  if (!fine) throw std::invalid_argument(fmt::format("{} {}: use letters, digits and _", what, in_quotes(name)));
  if (taken) throw std::invalid_argument(fmt::format("there is a {} {} already", what, in_quotes(name)));
}

void add_check(OwnCheck check) {
  const auto is_its_name = [&check](const CheckInfo& one) { return check.name == one.name; };
  const auto& known = check_catalogue();
  refuse_name("check", check.name, check.name == "finished" || std::any_of(known.begin(), known.end(), is_its_name));
  if (!check.look) throw std::invalid_argument("check " + in_quotes(check.name) + " has no function that checks");
  const OwnCheck& kept = checks()[check.name] = std::move(check);
  add_to_catalogue({.name = kept.name.c_str(),
                    .argument = kept.argument.c_str(),
                    .needs = kept.needs_golden ? Needs::golden : Needs::nothing,
                    .wrong = [&kept](const std::string& argument, int ranks) -> std::string {
                      if (kept.wrong) return kept.wrong(argument, ranks);
                      return kept.argument.empty() ? want_none(argument, ranks) : "";
                    },
                    .judge = kept.look,
                    .of_values = !kept.of_shapes,
                    .description = kept.summary.c_str()});
}

const OwnCheck* own_check(const std::string& name) {
  const auto found = checks().find(name);
  return found == checks().end() ? nullptr : &found->second;
}

void add_fault(const std::string& name, MakeFault make) {
  refuse_name("fault", name, faults().contains(name));
  if (!make) throw std::invalid_argument("fault " + in_quotes(name) + " has no function that makes it");
  faults()[name] = std::move(make);
}
std::vector<std::string> own_fault_names() { return keys_of(faults()); }

std::unique_ptr<OwnFault> make_own_fault(const OwnFaultSpec& spec, std::uint64_t seed) {
  const auto found = faults().find(spec.name);
  if (found == faults().end()) {
    const std::vector<std::string> names = own_fault_names();
    throw std::invalid_argument(fmt::format("this program has no fault {} of its own; {}", in_quotes(spec.name),
                                            names.empty() ? "add_fault (harness/loading/extensions.h) adds one"
                                                          : fmt::format("it has {}", fmt::join(names, ", "))));
  }
  std::unique_ptr<OwnFault> made = found->second(Json::parse(spec.parameters), seed);
  if (made == nullptr) throw std::invalid_argument(fmt::format("{} made nothing", spec.name));
  return made;
}

OwnFaults::OwnFaults(const Scenario& scenario) {
  for (const OwnFaultSpec& spec : scenario.own_faults)
    made_.push_back(make_own_fault(spec, scenario.world.seed + 7919 * (made_.size() + 1)));
}

runtime::Seams OwnFaults::decorate(int rank, const runtime::Seams& inner) {
  runtime::Seams seams = inner;
  for (const std::unique_ptr<OwnFault>& own : made_) {
    const runtime::Seams wrapped = own->decorate(rank, seams);
    std::destroy_at(&seams);  // it holds references
    std::construct_at(&seams, wrapped);
  }
  return seams;
}

std::vector<std::uint64_t> OwnFaults::fired() const {
  std::vector<std::uint64_t> all;
  for (const std::unique_ptr<OwnFault>& own : made_) all.push_back(own->fired());
  return all;
}

void add_family(const std::string& name, std::shared_ptr<const runtime::ModelFamily> family) {
  add("family", name, std::move(family), name == "gpt2" || name == "llama");
}
std::shared_ptr<const runtime::ModelFamily> own_family(const std::string& name) {
  return named<runtime::ModelFamily>(name);
}
std::vector<std::string> own_family_names() { return keys_of(all_of<runtime::ModelFamily>()); }

void add_schedule(const std::string& name, std::shared_ptr<const runtime::ScheduleRule> rule) {
  const bool built_in = runtime::pipeline_schedule(name) != runtime::PipelineSchedule::count_;
  add("schedule", name, std::move(rule), built_in);
}
std::shared_ptr<const runtime::ScheduleRule> own_schedule(const std::string& name) {
  return named<runtime::ScheduleRule>(name);
}
std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (int i = 0; i < int(runtime::PipelineSchedule::own); ++i)
    names.emplace_back(runtime::name(runtime::PipelineSchedule(i)));
  for (const auto& [name, rule] : all_of<runtime::ScheduleRule>()) names.push_back(name);
  return names;
}

void add_collective(const std::string& name, std::shared_ptr<const runtime::GatherRule> rule) {
  add("collective", name, std::move(rule), name == "direct" || runtime::built_in_gather(name) != nullptr);
}
std::shared_ptr<const runtime::GatherRule> own_gather(const std::string& name) {
  return named<runtime::GatherRule>(name);
}
std::vector<std::string> own_gather_names() { return keys_of(all_of<runtime::GatherRule>()); }

void add_placement(const std::string& name, std::shared_ptr<const runtime::PlacementRule> rule) {
  add("placement", name, std::move(rule), name == "even");
}
std::shared_ptr<const runtime::PlacementRule> own_placement(const std::string& name) {
  return named<runtime::PlacementRule>(name);
}
std::vector<std::string> own_placement_names() { return keys_of(all_of<runtime::PlacementRule>()); }

void add_recovery_policy(const std::string& name, std::shared_ptr<const runtime::RecoveryRule> rule) {
  const bool built_in = std::any_of(std::begin(kRecoveryPolicies), std::end(kRecoveryPolicies),
                                    [&](const auto& one) { return name == one.second; });
  add("recovery policy", name, std::move(rule), built_in);
}
std::shared_ptr<const runtime::RecoveryRule> own_recovery_policy(const std::string& name) {
  return named<runtime::RecoveryRule>(name);
}
std::vector<std::string> own_recovery_policy_names() { return keys_of(all_of<runtime::RecoveryRule>()); }

}  // namespace seeksim::harness
