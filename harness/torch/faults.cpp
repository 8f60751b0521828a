#include "harness/torch/faults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "pytorch/core/rules.h"

namespace seeksim::harness::torch {

using faults::FaultKind;
using faults::Mode;
using faults::Site;

namespace {

const TorchFault* row_of(FaultKind kind) {
  const std::vector<TorchFault>& rows = torch_faults();
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const TorchFault& row) { return row.kind == kind; });
  return found == rows.end() ? nullptr : &*found;
}

// The keys that a rule has beside its kind, as a scenario writes them.
std::vector<std::string> keys_in(const faults::Rule& rule) {
  std::vector<std::string> keys;
  const nlohmann::json written = nlohmann::json::parse(faults::text(rule));
  for (const auto& [key, value] : written.items())
    if (key != "kind") keys.push_back(key);
  return keys;
}

}  // namespace

faults::Rule as_in_torch(faults::Rule rule) {
  const TorchFault* row = row_of(rule.kind);
  if (row != nullptr && !row->sites.empty() && rule.site == Site::unset) rule.site = row->sites.front();
  return rule;
}

std::vector<faults::Problem> problems_in_torch(const faults::Rule& given, int ranks) {
  const TorchFault* row = row_of(given.kind);
  if (row == nullptr) {
    std::vector<std::string_view> names;
    for (const TorchFault& one : torch_faults()) names.push_back(faults::name(one.kind));
    return {{"kind", fmt::format("{} cannot be injected into a script yet. These can: {}.", faults::name(given.kind),
                                 fmt::join(names, ", "))}};
  }
  const faults::Rule rule = faults::with_defaults(given);
  std::vector<faults::Problem> found = pytorch::problems_of(given, ranks);
  const auto require = [&](bool fine, const char* key, const std::string& what) {
    if (!fine) found.push_back({key, what});
  };
  // What a rule says only by default is no key.
  for (const std::string& key : keys_in(given)) {
    const bool known = std::find(row->keys.begin(), row->keys.end(), key) != row->keys.end();
    require(known, key.c_str(), "has no meaning for a script. Leave it out.");
  }
  const auto is_among = [](const auto& list, auto value) {
    return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
  };
  require(rule.mode == Mode::unset || is_among(row->modes, rule.mode), "mode",
          fmt::format("{} is not done to scripts yet", faults::name(rule.mode)));
  require(is_among(row->sites, rule.site), "site",
          fmt::format("{} is not reached in scripts yet", faults::name(rule.site)));
  require(rule.site != Site::loss || rule.when.tensor.empty(), "tensor", "a loss has no name. Leave it out.");
  return found;
}

bool is_key_in_torch(FaultKind kind, std::string_view key) {
  const TorchFault* row = row_of(kind);
  return row != nullptr && std::find(row->keys.begin(), row->keys.end(), key) != row->keys.end();
}

bool keeps_out(const faults::Rule& rule) {
  const faults::Rule whole = faults::with_defaults(rule);
  return whole.kind == FaultKind::collective_timeout && whole.mode == Mode::never;
}

}  // namespace seeksim::harness::torch
