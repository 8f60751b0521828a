// FaultPlan: sorts the rules by what they act on, and builds for each rank the wrappers that can concern it.
#include "faults/plan.h"

#include <map>
#include <stdexcept>
#include <string>

#include "faults/fates.h"
#include "faults/faulty_control.h"
#include "faults/faulty_device.h"
#include "faults/faulty_storage.h"
#include "faults/faulty_transport.h"

namespace seeksim::faults {

using runtime::Seams;

// The rules that can concern one rank, by what they act on.
struct RulesOfRank {
  std::vector<RuleState*> blocking, values, memory, files, hangs, clocks, notices;
  std::vector<Straggler*> slow;
  TransportRules transport;
};

// In no anonymous namespace: FaultPlan::Impl holds them.
struct Wrappers {
  Wrappers(int rank, const Seams& inner, RulesOfRank rules, CombinedFates& combined, const FaultPlan::Watcher& watcher,
           std::function<void(const RuleState&)> machine_dies)
      : clock(rank, inner.clock, std::move(rules.clocks)),
        host(rank, inner.clock, std::move(rules.blocking), watcher, std::move(machine_dies)),
        memory(rank, inner.clock, rules.memory),
        transport(rank, inner.transport, inner.clock, clock, host, memory, std::move(rules.transport), combined),
        device(rank, inner.device, inner.clock, clock, host, std::move(rules.slow), std::move(rules.hangs),
               std::move(rules.values), memory, !rules.memory.empty() || !rules.files.empty()),
        storage(rank, inner.storage, inner.clock, rules.files, memory.last),
        control(rank, inner.control, inner.clock, clock, host, std::move(rules.notices)) {}
  FaultyClock clock;
  HostFaults host;
  MemoryFaults memory;
  FaultyTransport transport;
  FaultyDevice device;
  FaultyStorage storage;
  FaultyControlPlane control;
};

namespace {

bool is_timed_crash(const Rule& rule) {
  return (rule.kind == FaultKind::rank_crash || rule.kind == FaultKind::node_crash) && is_timed(rule.when);
}

void refuse_problems(const std::vector<Rule>& rules, const std::vector<int>& node_of) {
  std::string all;
  for (const Rule& rule : rules) {
    for (const Problem& problem : problems(rule, node_of)) {
      all += "\n  " + text(rule) + ": \"" + problem.key + "\": " + problem.what;
    }
  }
  if (!all.empty()) throw std::invalid_argument("these faults cannot be:" + all);
}

}  // namespace

struct FaultPlan::Impl {
  std::vector<int> node_of;
  std::deque<RuleState> states;      // deques: wrappers hold addresses
  std::map<std::string, int> texts;  // of those: how often each is there
  std::deque<MessageFault> messages;
  std::deque<LinkFault> links;
  std::map<std::size_t, Straggler> stragglers;  // by rule
  std::vector<RuleState*> blocking;
  std::vector<RuleState*> values;
  std::vector<RuleState*> memory;
  std::vector<RuleState*> files;
  std::vector<RuleState*> hangs;
  std::vector<RuleState*> clocks;
  std::vector<RuleState*> notices;
  std::vector<RuleState*> mismatches;
  std::vector<RuleState*> inits;
  Killer killer;
  std::vector<const RuleState*> per_message;
  CombinedFates combined;
  Watcher watcher;
  std::deque<Wrappers> wrappers;

  void add(const Rule& rule, std::uint64_t seed);
  bool concerns(const Rule& rule, int rank) const {
    if (rule.when.node && node_of[std::size_t(rank)] != *rule.when.node) return false;
    return !rule.when.rank || *rule.when.rank == rank;
  }
  std::vector<int> concerned(const Rule& rule) const {
    std::vector<int> ranks;
    for (int rank = 0; rank < int(node_of.size()); ++rank)
      if (concerns(rule, rank)) ranks.push_back(rank);
    return ranks;
  }
  void machine_dies(const RuleState& state);
  TransportRules transport_rules_of(int rank);
  RulesOfRank rules_of(int rank);
};

void FaultPlan::Impl::add(const Rule& rule, std::uint64_t seed) {
  const auto equal = texts.find(text(rule));
  RuleState& state = states.emplace_back(rule, states.size(), seed, equal == texts.end() ? 0 : equal->second);
  ++texts[state.status().text];
  const Mode mode = state.rule().mode;
  if (is_value(rule.kind) && !is_message(state.rule())) values.push_back(&state);
  if (is_message(state.rule())) messages.emplace_back(state);
  if (is_link(rule.kind)) links.emplace_back(state, node_of);
  if (is_memory(rule.kind)) memory.push_back(&state);
  if (is_file(rule.kind)) files.push_back(&state);
  if (rule.kind == FaultKind::kernel_hang) hangs.push_back(&state);
  if (rule.kind == FaultKind::clock_skew) clocks.push_back(&state);
  if (rule.kind == FaultKind::preemption_notice) notices.push_back(&state);
  if (rule.kind == FaultKind::collective_mismatch) mismatches.push_back(&state);
  if (rule.kind == FaultKind::init_failure) inits.push_back(&state);
  if (is_slow(rule.kind)) stragglers.try_emplace(state.number(), state);
  if (is_blocking(rule.kind) && !is_timed_crash(rule)) blocking.push_back(&state);
  // Or a hang or a death on the way into the second half of a sum, which a native sum does not have.
  const bool in_gather = is_blocking(rule.kind) && rule.when.op == runtime::OpKind::all_gather;
  const bool brings_other = rule.kind == FaultKind::collective_mismatch;
  if (brings_other || is_message(state.rule()) || is_link(rule.kind) || mode == Mode::during || mode == Mode::after ||
      in_gather) {
    per_message.push_back(&state);
  }
}

TransportRules FaultPlan::Impl::transport_rules_of(int rank) {
  TransportRules rules;
  for (MessageFault& message : messages) {
    if (concerns(message.state.rule(), rank)) rules.messages.push_back(&message);
  }
  for (RuleState* state : mismatches) {
    if (concerns(state->rule(), rank)) rules.mismatches.push_back(state);
  }
  for (RuleState* state : inits) {
    if (concerns(state->rule(), rank)) rules.inits.push_back(state);
  }
  for (LinkFault& link : links) {
    for (int peer = 0; peer < int(node_of.size()); ++peer) {
      if (peer == rank || !link.covers(rank, peer)) continue;
      rules.links.push_back(&link);
      break;
    }
  }
  rules.per_message = per_message;
  return rules;
}

FaultPlan::FaultPlan(std::vector<Rule> rules, std::uint64_t seed, std::vector<int> node_of)
    : impl_(std::make_unique<Impl>()) {
  refuse_problems(rules, node_of);
  impl_->node_of = std::move(node_of);
  for (const Rule& rule : rules) impl_->add(rule, seed);
}

FaultPlan::~FaultPlan() = default;

RulesOfRank FaultPlan::Impl::rules_of(int rank) {
  const auto pick = [this, rank](const std::vector<RuleState*>& all) {
    std::vector<RuleState*> some;
    for (RuleState* state : all) {
      if (concerns(state->rule(), rank)) some.push_back(state);
    }
    return some;
  };
  RulesOfRank rules{pick(blocking), pick(values), pick(memory),
                    pick(files),    pick(hangs),  pick(clocks),
                    pick(notices),  {},           transport_rules_of(rank)};
  for (auto& [number, straggler] : stragglers) {
    if (concerns(states[number].rule(), rank)) rules.slow.push_back(&straggler);
  }
  return rules;
}

Seams FaultPlan::decorate(int rank, Seams inner) {
  RulesOfRank rules = impl_->rules_of(rank);
  const bool skewed = !rules.clocks.empty(), told = !rules.notices.empty();
  const bool can_die = !rules.blocking.empty() || skewed || impl_->watcher, files = !rules.files.empty(),
             memory = !rules.memory.empty();
  const bool on_device =
      can_die || !rules.slow.empty() || !rules.hangs.empty() || !rules.values.empty() || memory || files;
  // A rank without rules still has to answer has_native as the others do.
  const bool on_transport = can_die || !rules.transport.per_message.empty() || !rules.transport.inits.empty() ||
                            !rules.values.empty() || memory;
  if (!on_device && !on_transport && !told) return inner;
  Wrappers& wrappers = impl_->wrappers.emplace_back(rank, inner, std::move(rules), impl_->combined, impl_->watcher,
                                                    [this](const RuleState& state) { impl_->machine_dies(state); });
  return {skewed ? static_cast<runtime::Clock&>(wrappers.clock) : inner.clock,
          on_device ? static_cast<runtime::Device&>(wrappers.device) : inner.device,
          on_transport ? static_cast<runtime::Transport&>(wrappers.transport) : inner.transport,
          files ? static_cast<runtime::Storage&>(wrappers.storage) : inner.storage,
          can_die || told ? static_cast<runtime::ControlPlane&>(wrappers.control) : inner.control};
}

// The rank that came first dies by itself; killing it again does no harm.
void FaultPlan::Impl::machine_dies(const RuleState& state) {
  for (const int rank : concerned(state.rule())) {
    states.at(state.number()).also_hit(rank);
    if (killer) killer(rank, state.rule().lose_local_storage);
  }
}

void FaultPlan::watch(Watcher watcher) { impl_->watcher = std::move(watcher); }

std::vector<FaultPlan::TimedCrash> FaultPlan::timed_crashes() const {
  std::vector<TimedCrash> crashes;
  for (const RuleState& state : impl_->states) {
    const Rule& rule = state.rule();
    const bool told = rule.kind == FaultKind::preemption_notice;
    const bool happens = told ? !is_called_off(state) : is_timed_crash(rule) && state.drawn_at_start();
    if (!happens) continue;
    const bool lose = rule.kind == FaultKind::node_crash && rule.lose_local_storage;
    for (const int rank : impl_->concerned(rule))
      crashes.push_back({rank, told ? gone_at(rule) : *rule.when.at_ns, state.number(), lose});
  }
  return crashes;
}

std::vector<FaultPlan::ControlOutage> FaultPlan::control_outages() const {
  std::vector<ControlOutage> outages;
  for (const RuleState& state : impl_->states) {
    const Rule& rule = state.rule();
    if (!is_of_the_control_plane(rule.kind) || !state.drawn_at_start()) continue;
    const TimeNs from = *rule.when.at_ns;
    const TimeNs until = rule.down_ns > 0 ? runtime::later(from, rule.down_ns) : runtime::kForever;
    const bool all = rule.kind == FaultKind::store_death;
    ControlOutage out{{}, from, until, all, {}, state.number()};
    out.ranks = all ? impl_->concerned(rule) : rule.sides[std::size_t(1 - rule.store_side.value_or(0))];
    if (!all && !rule.store_side) out.others = rule.sides[0];
    outages.push_back(std::move(out));
  }
  return outages;
}

void FaultPlan::kills_through(Killer killer) { impl_->killer = std::move(killer); }

// A rule that kills several ranks at one time fires once.
void FaultPlan::fired(std::size_t rule, TimeNs now, int rank) {
  RuleState& state = impl_->states.at(rule);
  const RuleStatus& status = state.status();
  const FaultKind kind = state.rule().kind;
  const bool of_several =
      kind == FaultKind::node_crash || kind == FaultKind::preemption_notice || is_of_the_control_plane(kind);
  const bool same = of_several && status.fired > 0;
  if (same)
    state.also_hit(rank);
  else
    state.record(now, rank, nullptr);
}

std::vector<RuleStatus> FaultPlan::status() const {
  impl_->combined.pass_on_touches();
  for (LinkFault& link : impl_->links) link.record_what_the_transport_saw();
  std::vector<RuleStatus> all;
  for (const RuleState& state : impl_->states) all.push_back(state.status());
  return all;
}

void FaultPlan::on_fired(Listener listener) {
  for (RuleState& state : impl_->states) state.on_fired(listener);
}

}  // namespace seeksim::faults
