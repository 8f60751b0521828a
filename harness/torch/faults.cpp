#include "harness/torch/faults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

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
  const faults::Rule plain;
  std::vector<std::string> keys;
  const auto has = [&](bool given, const char* key) {
    if (given) keys.emplace_back(key);
  };
  has(rule.when.node.has_value(), "node");
  has(rule.when.peer.has_value(), "peer");
  has(rule.when.micro_batch.has_value(), "micro_batch");
  has(rule.when.layer.has_value(), "layer");
  has(!rule.when.tensor.empty(), "tensor");
  has(rule.when.op.has_value(), "op");
  has(rule.when.at_ns.has_value(), "at_s");
  has(rule.returns_ns != plain.returns_ns, "returns_s");
  has(rule.bytes != plain.bytes, "bytes");
  has(!rule.tag.empty(), "tag");
  return keys;
}

}  // namespace

const std::vector<TorchFault>& torch_faults() {
  // The trigger, which all kinds share, and what a kind takes beside it.
  const auto keys = [](std::initializer_list<std::string_view> more) {
    std::vector<std::string_view> all = {"rank", "step", "micro_batch", "op", "phase", "call", "probability", "count"};
    all.insert(all.end(), more);
    return all;
  };
  static const std::vector<TorchFault> rows = {
      {FaultKind::collective_timeout,
       keys({"mode", "delay_s"}),
       {Mode::never, Mode::late},
       {},
       "never: the rank stays out of a collective for good, as if its process hung. late: it joins after delay_s"},
      {FaultKind::pause, keys({"delay_s"}), {}, {}, "the rank sleeps for delay_s before it joins a collective"},
      {FaultKind::rank_crash,
       keys({"mode", "signal"}),
       {Mode::before, Mode::during, Mode::after},
       {},
       "the process ends before, during or after a collective: by a signal, or with an exit status"},
      {FaultKind::message_drop, keys({}), {}, {}, "the rank joins, and its contribution never arrives"},
      {FaultKind::message_corrupt,
       keys({"bit", "checksum"}),
       {},
       {},
       "a bit of what the others see of its contribution flips; its own tensor keeps it"},
      {FaultKind::collective_mismatch,
       keys({"mode"}),
       {Mode::op, Mode::count, Mode::dtype, Mode::skip, Mode::count0},
       {},
       "the rank means another operation, count or type than the others, or leaves the collective out"},
      {FaultKind::bit_flip,
       keys({"site", "element", "bit"}),
       {},
       {Site::gradient, Site::reduced_gradient, Site::message},
       "a bit flips: in what the rank gives to a sum in backward, in what it gets from it, or on the way"},
      {FaultKind::nan_inject,
       keys({"site", "element"}),
       {},
       {Site::gradient, Site::reduced_gradient},
       "a number that the rank gives to a sum in backward, or gets from it, becomes NaN"},
      {FaultKind::inf_inject,
       keys({"site", "element", "negative"}),
       {},
       {Site::gradient, Site::reduced_gradient},
       "the same, with infinity"},
      {FaultKind::overflow,
       keys({"site", "element", "value", "negative"}),
       {},
       {Site::gradient, Site::reduced_gradient},
       "the same, with a number that fp16 cannot hold"},
      {FaultKind::zero_tile,
       keys({"site", "element", "elements"}),
       {},
       {Site::gradient, Site::reduced_gradient},
       "the same, with a run of zeros"},
      {FaultKind::oom, keys({}), {}, {}, "the collective raises torch.OutOfMemoryError on the rank"},
  };
  return rows;
}

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
  std::vector<faults::Problem> found = faults::problems(given, std::vector<int>(std::size_t(ranks), 0));
  const auto require = [&](bool fine, const char* key, const std::string& what) {
    if (!fine) found.push_back({key, what});
  };
  for (const std::string& key : keys_in(given)) {
    const bool known = std::find(row->keys.begin(), row->keys.end(), key) != row->keys.end();
    require(known, key.c_str(), "has no meaning for a script. Leave it out.");
  }
  const auto is_among = [](const auto& list, auto value) {
    return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
  };
  require(is_among(row->modes, rule.mode), "mode",
          fmt::format("{} is not done to scripts yet", faults::name(rule.mode)));
  require(is_among(row->sites, rule.site), "site",
          fmt::format("{} is not reached in scripts yet", faults::name(rule.site)));
  return found;
}

bool keeps_out(const faults::Rule& rule) {
  const faults::Rule whole = faults::with_defaults(rule);
  return whole.kind == FaultKind::collective_timeout && whole.mode == Mode::never;
}

}  // namespace seeksim::harness::torch
