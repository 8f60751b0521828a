#include "harness/archive/kept_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "harness/input/json_text.h"

namespace seeksim::harness {
namespace {

// What two results are compared by, in the order in which people ask.
constexpr const char* kRows[] = {"state",           "verdict",      "exit_code", "stopped",
                                 "steps_committed", "resumed_from", "backend",   "device"};

std::string shown(const Json* value) {
  return value == nullptr ? "" : value->dump(-1, ' ', false, Json::error_handler_t::replace);
}

const Json* found(const Json& object, const std::string& key) {
  const auto at = object.find(key);
  return at == object.end() ? nullptr : &*at;
}

void compare(const std::string& what, const Json* a, const Json* b, std::vector<KeptDifference>& into) {
  if (shown(a) != shown(b)) into.push_back({what, shown(a), shown(b)});
}

std::vector<KeptDifference> configurations(const Json& a, const Json& b) {
  std::vector<KeptDifference> all;
  const Json left = a.flatten(), right = b.flatten();
  std::set<std::string> keys;
  for (const Json* side : {&left, &right}) {
    for (const auto& [key, value] : side->items()) keys.insert(key);
  }
  for (const std::string& key : keys) {
    if (key == "/name" || key == "/why" || key == "/$schema") continue;
    compare(dotted(key), found(left, key), found(right, key), all);
  }
  return all;
}

// The first step in which a number of the steps differs.
void compare_steps(const char* key, const Json& a, const Json& b, std::vector<KeptDifference>& into) {
  const Json *left = found(a, key), *right = found(b, key);
  if (left == nullptr || right == nullptr || !left->is_array() || !right->is_array()) return;
  for (std::size_t i = 0; i < std::min(left->size(), right->size()); ++i) {
    if (shown(&(*left)[i]) == shown(&(*right)[i])) continue;
    into.push_back({fmt::format("{}, from step {} on", key, i), shown(&(*left)[i]), shown(&(*right)[i])});
    return;
  }
}

void compare_figures(const Json& a, const Json& b, std::vector<KeptDifference>& into) {
  const Json *left = found(a, "figures"), *right = found(b, "figures");
  if (left == nullptr || right == nullptr || !left->is_object() || !right->is_object()) return;
  for (const auto& [name, value] : left->items()) {
    if (name != "wall_s") compare(name, &value, found(*right, name), into);
  }
}

}  // namespace

KeptDiff kept_diff(const KeptRun& a, const KeptRun& b) {
  KeptDiff diff;
  diff.configuration = configurations(a.scenario, b.scenario);
  compare("program", found(a.run, "program"), found(b.run, "program"), diff.program);
  for (const char* row : kRows) compare(row, found(a.run, row), found(b.run, row), diff.result);
  compare_steps("loss", a.run, b.run, diff.result);
  compare_steps("grad_norm", a.run, b.run, diff.result);
  compare("params_digest", found(a.run, "params_digest"), found(b.run, "params_digest"), diff.result);
  compare_figures(a.run, b.run, diff.result);
  return diff;
}

Json to_json(const KeptDiff& diff) {
  const auto rows = [](const std::vector<KeptDifference>& all) {
    Json list = Json::array();
    for (const KeptDifference& one : all)
      list.push_back({{"what", one.what},
                      {"a", one.a.empty() ? Json(nullptr) : Json::parse(one.a)},
                      {"b", one.b.empty() ? Json(nullptr) : Json::parse(one.b)}});
    return list;
  };
  return {{"schema", "seeksim-runs-diff-1"},
          {"configuration", rows(diff.configuration)},
          {"program", rows(diff.program)},
          {"result", rows(diff.result)}};
}

}  // namespace seeksim::harness
