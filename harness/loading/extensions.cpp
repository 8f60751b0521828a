// The three lists. They are the program's, like the tables of built-in checks and faults; a run only reads them.
#include "harness/loading/extensions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "harness/input/problem.h"

namespace seeksim::harness {
namespace {

using Families = std::map<std::string, std::shared_ptr<const runtime::ModelFamily>>;

// The catalogue of checks points into them.
std::map<std::string, OwnCheck>& checks() {
  static std::map<std::string, OwnCheck> all;
  return all;
}
std::map<std::string, MakeFault>& faults() {
  static std::map<std::string, MakeFault> all;
  return all;
}
Families& families() {
  static Families all;
  return all;
}

void refuse_name(const char* what, const std::string& name, bool taken) {
  const bool fine = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
  if (!fine) throw std::invalid_argument(fmt::format("{} {}: use letters, digits and _", what, in_quotes(name)));
  if (taken) throw std::invalid_argument(fmt::format("there is a {} {} already", what, in_quotes(name)));
}

template <class Map>
std::vector<std::string> keys_of(const Map& map) {
  std::vector<std::string> names;
  for (const auto& [name, value] : map) names.push_back(name);
  return names;
}

}  // namespace

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
  refuse_name("family", name, name == "gpt2" || name == "llama" || families().contains(name));
  if (family == nullptr) throw std::invalid_argument("family " + in_quotes(name) + " is null");
  families()[name] = std::move(family);
}
std::shared_ptr<const runtime::ModelFamily> own_family(const std::string& name) {
  const auto found = families().find(name);
  return found == families().end() ? nullptr : found->second;
}
std::vector<std::string> own_family_names() { return keys_of(families()); }

}  // namespace seeksim::harness
