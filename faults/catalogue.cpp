// Names of kinds, modes and sites, and what is unset in a rule.
#include "faults/catalogue.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

#include "faults/trigger.h"

namespace seeksim::faults {

using runtime::kSecond;

namespace {

constexpr std::array<std::string_view, std::size_t(FaultKind::count_)> kKinds = {"collective_timeout",
                                                                                 "link_drop",
                                                                                 "slow_link",
                                                                                 "straggler",
                                                                                 "rank_crash",
                                                                                 "message_drop",
                                                                                 "message_corrupt",
                                                                                 "nan_inject",
                                                                                 "inf_inject",
                                                                                 "overflow",
                                                                                 "bit_flip",
                                                                                 "zero_tile",
                                                                                 "loss_spike",
                                                                                 "oom",
                                                                                 "pinned_alloc_failure",
                                                                                 "nvme_read_error",
                                                                                 "nvme_short_read",
                                                                                 "nvme_write_error",
                                                                                 "nvme_torn_write",
                                                                                 "disk_full",
                                                                                 "slow_disk",
                                                                                 "node_crash",
                                                                                 "kernel_hang",
                                                                                 "device_error",
                                                                                 "pause",
                                                                                 "clock_skew",
                                                                                 "data_stall",
                                                                                 "data_error",
                                                                                 "preemption_notice",
                                                                                 "collective_mismatch",
                                                                                 "zombie_message",
                                                                                 "partition",
                                                                                 "store_death",
                                                                                 "init_failure",
                                                                                 "checkpoint_corrupt",
                                                                                 "lost_checkpoint",
                                                                                 "stale_gradient"};

constexpr std::array<std::pair<Site, std::string_view>, 8> kSites = {
    {{Site::activation, "activation"},
     {Site::activation_gradient, "activation_gradient"},
     {Site::loss, "loss"},
     {Site::parameter, "parameter"},
     {Site::gradient, "gradient"},
     {Site::reduced_gradient, "reduced_gradient"},
     {Site::optimizer_state, "optimizer_state"},
     {Site::message, "message"}}};

constexpr std::array<std::pair<Mode, std::string_view>, 24> kModes = {{{Mode::never, "never"},
                                                                       {Mode::late, "late"},
                                                                       {Mode::transient, "transient"},
                                                                       {Mode::permanent, "permanent"},
                                                                       {Mode::constant, "constant"},
                                                                       {Mode::periodic, "periodic"},
                                                                       {Mode::ramp, "ramp"},
                                                                       {Mode::before, "before"},
                                                                       {Mode::during, "during"},
                                                                       {Mode::after, "after"},
                                                                       {Mode::op, "op"},
                                                                       {Mode::count, "count"},
                                                                       {Mode::dtype, "dtype"},
                                                                       {Mode::swap_order, "swap_order"},
                                                                       {Mode::skip, "skip"},
                                                                       {Mode::count0, "count0"},
                                                                       {Mode::wrong_nranks, "wrong_nranks"},
                                                                       {Mode::dup_rank, "dup_rank"},
                                                                       {Mode::truncate, "truncate"},
                                                                       {Mode::flip, "flip"},
                                                                       {Mode::missing, "missing"},
                                                                       {Mode::delayed_apply, "delayed_apply"},
                                                                       {Mode::dup_apply, "dup_apply"},
                                                                       {Mode::drop, "drop"}}};

std::vector<FaultInfo> make_catalogue() {
  std::vector<FaultInfo> all;
  for (const auto& family : {faults_of_ranks(), faults_of_links(), faults_of_values(), faults_of_storage()})
    all.insert(all.end(), family.begin(), family.end());
  std::sort(all.begin(), all.end(), [](const FaultInfo& a, const FaultInfo& b) { return a.kind < b.kind; });
  return all;
}

}  // namespace

std::string_view name(FaultKind kind) { return kind < FaultKind::count_ ? kKinds[std::size_t(kind)] : "unknown"; }

FaultKind fault_kind(std::string_view name) {
  return FaultKind(std::find(kKinds.begin(), kKinds.end(), name) - kKinds.begin());
}

std::string_view name(Mode mode) {
  for (const auto& [known, text] : kModes) {
    if (known == mode) return text;
  }
  return "unset";
}

Mode mode(std::string_view name) {
  for (const auto& [known, text] : kModes) {
    if (text == name) return known;
  }
  return Mode::unset;
}

std::string_view name(Site site) {
  for (const auto& [known, text] : kSites) {
    if (known == site) return text;
  }
  return "unset";
}

Site site(std::string_view name) {
  for (const auto& [known, text] : kSites) {
    if (text == name) return known;
  }
  return Site::unset;
}

std::optional<ProcessEnding> process_ending(std::string_view signal) {
  if (signal.empty() || signal == "kill") return ProcessEnding{};
  if (signal == "segv") return ProcessEnding{ProcessEnd::segv};
  if (signal == "abrt") return ProcessEnding{ProcessEnd::abrt};
  constexpr std::string_view kExit = "exit:";
  if (!signal.starts_with(kExit)) return std::nullopt;
  const std::string_view digits = signal.substr(kExit.size());
  int status = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), status);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  if (!whole || status < 0 || status > 255 || std::to_string(status) != digits) return std::nullopt;
  return ProcessEnding{ProcessEnd::exit, status};
}

const std::vector<FaultInfo>& catalogue() {
  static const std::vector<FaultInfo> table = make_catalogue();
  return table;
}

Rule with_defaults(Rule rule) {
  if (rule.kind < FaultKind::count_ && rule.site == Site::unset && !info(rule.kind).sites.empty())
    rule.site = info(rule.kind).sites.front();
  switch (rule.kind) {
    case FaultKind::collective_timeout:
      if (rule.mode == Mode::unset) rule.mode = Mode::never;
      break;
    case FaultKind::link_drop:
      if (rule.mode == Mode::unset) rule.mode = rule.down_ns > 0 ? Mode::transient : Mode::permanent;
      if (rule.mode == Mode::transient && rule.down_ns == 0) rule.down_ns = kSecond;
      if (rule.mode == Mode::transient && rule.up_ns == 0) rule.up_ns = 10 * kSecond;
      break;
    case FaultKind::slow_link:
      if (rule.factor == 1.0 && rule.delay_ns == 0) rule.factor = 0.5;
      break;
    case FaultKind::straggler:
    case FaultKind::slow_disk:
      if (rule.mode == Mode::unset) {
        rule.mode = rule.period_ns > 0 ? Mode::periodic : rule.ramp_ns > 0 ? Mode::ramp : Mode::constant;
      }
      if (rule.factor == 1.0)
        rule.factor = rule.mode == Mode::constant   ? (rule.kind == FaultKind::straggler ? 1.1 : 10.0)
                      : rule.mode == Mode::periodic ? 2.0
                                                    : 1.5;
      if (rule.mode == Mode::periodic && rule.period_ns == 0) rule.period_ns = 60 * kSecond;
      if (rule.mode == Mode::ramp && rule.ramp_ns == 0) rule.ramp_ns = 300 * kSecond;
      break;
    case FaultKind::rank_crash:
      if (rule.mode == Mode::unset) rule.mode = Mode::before;
      break;
    case FaultKind::lost_checkpoint:
      if (rule.path.empty()) rule.path = "manifest.json";
      if (!rule.when.op) rule.when.op = runtime::OpKind::storage_rename;
      break;
    case FaultKind::checkpoint_corrupt:
      if (rule.path.empty()) rule.path = "rank-";
      if (!rule.when.op) rule.when.op = runtime::OpKind::storage_sync;
      [[fallthrough]];
    case FaultKind::collective_mismatch:
    case FaultKind::init_failure:
    case FaultKind::stale_gradient:
      if (rule.mode == Mode::unset) rule.mode = info(rule.kind).modes.front();
      break;
    default:
      break;
  }
  return rule;
}

}  // namespace seeksim::faults
