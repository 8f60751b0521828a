#include "harness/loading/faults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/input/schema.h"
#include "harness/input/seconds.h"

namespace seeksim::harness {
namespace {

using faults::FaultInfo;
using faults::FaultKind;
using faults::Rule;

template <class Enum>
std::vector<std::string> names() {
  std::vector<std::string> all;
  for (int i = 0; i < int(Enum::count_); ++i) all.emplace_back(name(Enum(i)));
  return all;
}

std::optional<int> small(const Reader& reader, const char* key) {
  if (!reader.has(key)) return std::nullopt;
  return int(std::clamp<std::int64_t>(reader.integer(key, -1), -1, 1 << 30));
}

void read_trigger(const Reader& reader, Rule& rule) {
  faults::Trigger& when = rule.when;
  when.rank = small(reader, "rank");
  when.node = small(reader, "node");
  when.peer = small(reader, "peer");
  when.micro_batch = small(reader, "micro_batch");
  when.layer = small(reader, "layer");
  when.tensor = reader.text("tensor");
  if (reader.has("step")) when.step = reader.integer("step", 0);
  if (reader.has("sample")) when.sample = reader.integer("sample", 0);
  if (reader.has("call")) when.call = reader.natural("call", 1);
  if (reader.has("at_s")) when.at_ns = read_seconds(reader, "at_s", 0);
  when.probability = reader.number("probability", 1.0);
  if (const std::string op = reader.text("op"); !op.empty()) {
    when.op = runtime::op_kind(op);
    if (*when.op == runtime::OpKind::count_) {
      when.op.reset();
      reader.problem("op", fmt::format("there is no operation {}", in_quotes(op)),
                     did_you_mean(op, names<runtime::OpKind>()));
    }
  }
  if (const std::string phase = reader.text("phase"); !phase.empty()) {
    when.phase = runtime::phase(phase);
    if (*when.phase == runtime::Phase::count_) {
      when.phase.reset();
      reader.problem("phase", fmt::format("there is no phase {}", in_quotes(phase)),
                     did_you_mean(phase, names<runtime::Phase>()));
    }
  }
}

void read_link(const Reader& reader, Rule& rule) {
  rule.both_directions = reader.flag("both_directions", true);
  if (!reader.has("link")) return;
  const Reader link = reader.child("link");
  const Json* nodes = link.find("nodes");
  if (nodes != nullptr && (link.has("from") || link.has("to"))) {
    reader.problem("link", "names both ranks and nodes", "Give {\"from\", \"to\"} or {\"nodes\"}.");
  }
  if (nodes != nullptr) {
    if (!nodes->is_array() || nodes->size() != 2 || !(*nodes)[0].is_number_integer() ||
        !(*nodes)[1].is_number_integer()) {
      return;  // the schema said so
    }
    rule.nodes = true;
    rule.from = int((*nodes)[0].get<std::int64_t>());
    rule.to = int((*nodes)[1].get<std::int64_t>());
    return;
  }
  rule.from = small(link, "from");
  rule.to = small(link, "to");
}

std::vector<std::vector<int>> read_sides(const Reader& reader) {
  std::vector<std::vector<int>> sides;
  const Json* given = reader.find("sides");
  if (given == nullptr || !given->is_array()) return sides;
  for (const Json& side : *given) {
    std::vector<int>& ranks = sides.emplace_back();
    for (const Json& rank : side.is_array() ? side : Json::array())
      ranks.push_back(rank.is_number_integer() ? int(std::clamp<std::int64_t>(rank.get<std::int64_t>(), -1, 1 << 30))
                                               : -1);
  }
  return sides;
}

Rule read_rule(const Reader& reader, FaultKind kind) {
  Rule rule;
  rule.kind = kind;
  read_trigger(reader, rule);
  read_link(reader, rule);
  rule.count = small(reader, "count").value_or(1);
  rule.mode = faults::mode(reader.text("mode"));
  rule.delay_ns = read_seconds(reader, "delay_s", 0);
  rule.returns_ns = read_seconds(reader, "returns_s", 0);
  rule.signal = reader.text("signal");
  rule.down_ns = read_seconds(reader, "down_s", 0);
  rule.up_ns = read_seconds(reader, "up_s", 0);
  rule.cycles = small(reader, "cycles").value_or(1);
  rule.factor = reader.number("factor", 1.0);
  rule.period_ns = read_seconds(reader, "period_s", 0);
  rule.duty = reader.number("duty", 0.1);
  rule.ramp_ns = read_seconds(reader, "ramp_s", 0);
  rule.bit = reader.natural("bit", 0);
  rule.checksum = reader.flag("checksum", true);
  rule.site = faults::site(reader.text("site"));
  rule.element = reader.natural("element", 0);
  rule.elements = small(reader, "elements").value_or(256);
  rule.value = reader.number("value", rule.value);
  rule.negative = reader.flag("negative", false);
  rule.token = small(reader, "token").value_or(0);
  rule.tag = reader.text("tag");
  rule.bytes = reader.natural("bytes", 0);
  rule.path = reader.text("path");
  rule.cool_ns = read_seconds(reader, "cool_s", 0);
  rule.loss = reader.number("loss", 1.0);
  rule.lose_local_storage = reader.flag("lose_local_storage", true);
  rule.code = small(reader, "code").value_or(rule.code);
  rule.sticky = reader.flag("sticky", true);
  rule.offset_ns = read_seconds(reader, "offset_s", 0);
  rule.drift_ppm = reader.number("drift_ppm", 0);
  rule.notice_ns = read_seconds(reader, "notice_s", 0);
  rule.cancelled = reader.number("cancelled", 0);
  rule.sides = read_sides(reader);
  rule.store_side = small(reader, "store_side");
  rule.staleness = small(reader, "staleness").value_or(1);
  return rule;
}

bool known_to_schema(const std::string& key) {
  return scenario_schema()["properties"]["faults"]["items"]["properties"].contains(key);
}

// Keys that the kind has no use for. Returns them, so that nothing else is said about them.
std::set<std::string> refuse_foreign_keys(const Reader& reader, const FaultInfo& info) {
  std::set<std::string> foreign;
  for (const auto& [key, value] : reader.value()->items()) {
    const bool known = known_to_schema(key);  // else it was reported as unknown already
    const bool fits =
        key == "kind" || std::find(info.parameters.begin(), info.parameters.end(), key) != info.parameters.end();
    if (fits || !known) continue;
    foreign.insert(key);
    reader.problem(key.c_str(), fmt::format("means nothing for {}", name(info.kind)),
                   fmt::format("Its keys: {}.", fmt::join(info.parameters, ", ")));
  }
  return foreign;
}

void read_one(const Reader& reader, const std::vector<int>& nodes, std::vector<Rule>& rules) {
  const std::string word = reader.text("kind");
  if (reader.value() == nullptr || word.empty()) return;  // the schema said so
  const FaultKind kind = faults::fault_kind(word);
  if (kind == FaultKind::count_) {
    reader.problem("kind", fmt::format("there is no fault {}", in_quotes(word)),
                   did_you_mean(word, names<FaultKind>()) + " `seeksim list faults` describes them.");
    return;
  }
  const FaultInfo* info = nullptr;
  for (const FaultInfo& one : faults::catalogue()) {
    if (one.kind == kind) info = &one;
  }
  const std::set<std::string> foreign = refuse_foreign_keys(reader, *info);
  const Rule rule = read_rule(reader, kind);
  if (!nodes.empty()) {
    std::set<std::string> said = foreign;
    for (const faults::Problem& problem : faults::problems(rule, nodes)) {
      if (said.insert(problem.key).second) reader.problem(problem.key.c_str(), problem.what, "");
    }
  }
  rules.push_back(rule);
}

}  // namespace

std::vector<faults::Rule> read_faults(const Reader& scenario, const std::vector<int>& nodes) {
  std::vector<Rule> rules;
  const Json* list = scenario.find("faults");
  if (list == nullptr || !list->is_array()) return rules;
  for (std::size_t i = 0; i < list->size(); ++i) {
    read_one(Reader((*list)[i], scenario.at("faults") + '/' + std::to_string(i), scenario.findings()), nodes, rules);
  }
  return rules;
}

Json to_json(const faults::Rule& rule) { return Json::parse(faults::text(rule)); }

}  // namespace seeksim::harness
