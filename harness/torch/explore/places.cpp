#include "harness/torch/explore/places.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "faults/trigger.h"
#include "harness/torch/check/folder_of_runs.h"
#include "pytorch/core/rules.h"

namespace seeksim::harness::torch {
namespace {

using faults::FaultKind;
using faults::Mode;
using faults::Rule;
using Where = ExploredFault::Where;

constexpr double kNs = 1e9;

template <class T>
const T& one_of(const std::vector<T>& all, sim::Random& random) {
  return all[random.below(std::uint32_t(all.size()))];
}

runtime::TimeNs between_s(double least, double most, sim::Random& random) {
  return runtime::TimeNs(kNs * (least + (most - least) * random.unit()));
}

// What the rule says beside its place.
void draw_strength(Rule& rule, sim::Random& random) {
  switch (rule.kind) {
    case FaultKind::pause:
    case FaultKind::data_stall:
      rule.delay_ns = between_s(0.02, 0.6, random);
      break;
    case FaultKind::collective_timeout:
      if (rule.mode == Mode::late) rule.delay_ns = between_s(0.05, 1, random);
      break;
    case FaultKind::straggler:
      rule.factor = 1.5 + 3 * random.unit();
      break;
    case FaultKind::slow_link:
      rule.factor = 1;
      rule.delay_ns = between_s(0.002, 0.03, random);  // of each collective
      break;
    case FaultKind::clock_skew:
      rule.offset_ns = between_s(-86400, 86400, random);
      break;
    case FaultKind::checkpoint_corrupt:
      rule.bit = random.next() >> 40;
      break;
    default:
      break;
  }
}

}  // namespace

const std::vector<ExploredFault>& explored_faults() {
  static const std::vector<ExploredFault> rows = {
      {FaultKind::pause, Mode::unset, Promise::same_bits, Where::collective},
      {FaultKind::collective_timeout, Mode::late, Promise::same_bits, Where::collective},
      {FaultKind::straggler, Mode::constant, Promise::same_bits, Where::step},
      {FaultKind::slow_link, Mode::unset, Promise::same_bits, Where::link},
      {FaultKind::data_stall, Mode::unset, Promise::same_bits, Where::batch},
      {FaultKind::clock_skew, Mode::unset, Promise::same_bits, Where::always},
      {FaultKind::rank_crash, Mode::before, Promise::ends, Where::collective},
      {FaultKind::rank_crash, Mode::during, Promise::ends, Where::collective},
      {FaultKind::rank_crash, Mode::after, Promise::ends, Where::collective},
      {FaultKind::collective_timeout, Mode::never, Promise::ends, Where::collective},
      {FaultKind::message_drop, Mode::unset, Promise::ends, Where::collective},
      {FaultKind::oom, Mode::unset, Promise::ends, Where::collective},
      {FaultKind::store_death, Mode::unset, Promise::ends, Where::step},
      {FaultKind::data_error, Mode::unset, Promise::ends, Where::batch},
      {FaultKind::nvme_write_error, Mode::unset, Promise::ends, Where::save},
      {FaultKind::disk_full, Mode::unset, Promise::ends, Where::save},
      {FaultKind::checkpoint_corrupt, Mode::truncate, Promise::goes_on, Where::save},
      {FaultKind::checkpoint_corrupt, Mode::missing, Promise::goes_on, Where::save},
  };
  return rows;
}

Promise promise_of(const std::vector<Rule>& rules) {
  Promise weakest = Promise::same_bits;
  for (const Rule& given : rules) {
    const Rule rule = faults::with_defaults(given);
    for (const ExploredFault& row : explored_faults()) {
      if (row.kind == rule.kind && (row.mode == Mode::unset || row.mode == rule.mode))
        weakest = std::max(weakest, row.promise);
    }
  }
  return weakest;
}

Places::Places(const TorchRun& undisturbed, bool goes_on)
    : ranks_(undisturbed.scenario.torch.ranks), steps_(steps_of(undisturbed)), goes_on_(goes_on) {
  for (const RankRun& run : undisturbed.ranks) {
    if (!run.record) continue;
    std::map<std::tuple<std::int64_t, runtime::Phase, runtime::OpKind>, std::uint64_t> seen;
    for (const pytorch::CallEntry& entry : run.record->calls) {
      Call call{run.rank, entry.step, pytorch::catalogue_op(entry.op), pytorch::catalogue_phase(entry.phase), 0, 0};
      call.of_kind = ++seen[{call.step, call.phase, call.op}];
      call.of_all = ++seen[{call.step, call.phase, runtime::OpKind::count_}];
      calls_.push_back(call);
    }
    bool loads = false;
    for (const pytorch::SightEntry& sight : run.record->sights) {
      loads |= sight.kind == pytorch::SightKind::batch;
      if (sight.kind == pytorch::SightKind::saved) saves_.push_back({run.rank, sight.step});
    }
    if (loads) loading_.push_back(run.rank);
  }
  for (const ExploredFault& row : explored_faults()) {
    if (has_place(row)) rows_.push_back(&row);
  }
}

bool Places::has_place(const ExploredFault& row) const {
  if (row.promise == Promise::goes_on && !goes_on_) return false;
  switch (row.where) {
    case Where::collective:
      return !calls_.empty();
    case Where::link:
      return ranks_ > 1 && !calls_.empty();
    case Where::batch:
      return !loading_.empty();
    case Where::save:
      return !saves_.empty() && (row.promise != Promise::goes_on || !calls_.empty());
    default:
      return steps_ > 0;
  }
}

const Places::Call* Places::call_after(std::int64_t step, sim::Random& random) const {
  std::vector<const Call*> later;
  for (const Call& call : calls_) {
    if (call.step > step) later.push_back(&call);
  }
  return later.empty() ? nullptr : one_of(later, random);
}

void Places::strike(Rule& rule, const Call& call) {
  rule.when.rank = call.rank;
  rule.when.step = call.step;
  rule.when.phase = call.phase;
  // To a rule about memory each collective is an allocation.
  const bool of_kind = rule.kind != FaultKind::oom;
  if (of_kind) rule.when.op = call.op;
  rule.when.call = of_kind ? call.of_kind : call.of_all;
}

std::vector<Rule> Places::draw(const ExploredFault& row, sim::Random& random) const {
  Rule rule;
  rule.kind = row.kind;
  rule.mode = row.mode;
  switch (row.where) {
    case Where::collective: {
      Rule named = rule;
      std::vector<const Call*> fit;
      for (const Call& call : calls_) {
        if (rule.kind == FaultKind::oom || faults::can_concern(named, call.op)) fit.push_back(&call);
      }
      if (fit.empty()) return {};
      strike(rule, *one_of(fit, random));
      break;
    }
    case Where::link:
      rule.from = int(random.below(std::uint32_t(ranks_)));
      rule.to = (*rule.from + 1 + int(random.below(std::uint32_t(ranks_ - 1)))) % ranks_;
      rule.when.step = std::int64_t(random.below(std::uint32_t(steps_)));
      break;
    case Where::batch:
      rule.when.rank = one_of(loading_, random);
      rule.when.step = std::int64_t(random.below(std::uint32_t(steps_)));
      break;
    case Where::save: {
      const Save& save = one_of(saves_, random);
      rule.when.rank = save.rank;
      rule.when.step = save.step;
      break;
    }
    case Where::step:
      rule.when.step = std::int64_t(random.below(std::uint32_t(steps_)));
      [[fallthrough]];
    case Where::always:
      rule.when.rank = int(random.below(std::uint32_t(ranks_)));
      break;
  }
  draw_strength(rule, random);
  if (row.promise != Promise::goes_on) return {rule};
  const Call* const call = call_after(*rule.when.step, random);
  if (call == nullptr) return {};  // saved last of all: nobody is left to go on
  Rule crash;
  crash.kind = FaultKind::rank_crash;
  crash.mode = Mode::before;
  strike(crash, *call);
  return {rule, crash};
}

std::vector<Rule> Places::draw_again(sim::Random& random) const {
  constexpr std::int64_t kFirstSteps = 2;
  const std::vector<std::pair<FaultKind, Mode>> kinds = {{FaultKind::rank_crash, Mode::before},
                                                         {FaultKind::rank_crash, Mode::after},
                                                         {FaultKind::collective_timeout, Mode::never},
                                                         {FaultKind::oom, Mode::unset}};
  std::vector<const Call*> early;
  for (const Call& call : calls_) {
    if (call.step < kFirstSteps) early.push_back(&call);
  }
  if (early.empty()) return {};
  Rule rule;
  std::tie(rule.kind, rule.mode) = one_of(kinds, random);
  strike(rule, *one_of(early, random));
  rule.when.attempt = 1;
  return {rule};
}

}  // namespace seeksim::harness::torch
