// The catalogue out of the rows of faults.inl, names of kinds, modes and sites, and the defaults of a rule.
#include "faults/catalogue.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "runtime/seams/enum_names.h"

namespace seeksim::faults {

using runtime::kSecond;

namespace {

constexpr runtime::EnumNames<Site> kSites({{Site::unset, "unset"},
                                           {Site::activation, "activation"},
                                           {Site::activation_gradient, "activation_gradient"},
                                           {Site::loss, "loss"},
                                           {Site::parameter, "parameter"},
                                           {Site::gradient, "gradient"},
                                           {Site::reduced_gradient, "reduced_gradient"},
                                           {Site::optimizer_state, "optimizer_state"},
                                           {Site::message, "message"}});
constexpr runtime::EnumNames<Mode> kModes({{Mode::unset, "unset"},
                                           {Mode::never, "never"},
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
                                           {Mode::drop, "drop"}});

template <class... Key>
std::vector<std::string_view> keys(Key... all) {
  return {all...};
}
template <class Value, class... More>
std::vector<Value> list(Value first, More... more) {
  return {first, more...};
}

const std::vector<FaultInfo>& rows() {
  static const std::vector<FaultInfo> all = {
#define SEEKSIM_FAULT(id, ...) FaultInfo{.kind = FaultKind::id, .name = #id, __VA_ARGS__},
#include "faults/faults.inl"
#undef SEEKSIM_FAULT
  };
  return all;
}

}  // namespace

std::string_view name(FaultKind kind) { return kind < FaultKind::count_ ? info(kind).name : "unknown"; }

FaultKind fault_kind(std::string_view name) {
  const auto row = std::ranges::find(rows(), name, &FaultInfo::name);
  return row == rows().end() ? FaultKind::count_ : row->kind;
}

std::string_view name(Mode mode) { return kModes.of(mode, "unset"); }

Mode mode(std::string_view name) {
  const Mode known = kModes.named(name);
  return known == Mode::count_ ? Mode::unset : known;
}

std::string_view name(Site site) { return kSites.of(site, "unset"); }

Site site(std::string_view name) {
  const Site known = kSites.named(name);
  return known == Site::count_ ? Site::unset : known;
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

const std::vector<FaultInfo>& catalogue() { return rows(); }

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
