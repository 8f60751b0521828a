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

namespace {

// The rules that can concern one rank, by what they act on.
struct RulesOfRank {
  std::vector<RuleState*> blocking, values, memory, files;
  std::vector<Straggler*> slow;
  TransportRules transport;
};

struct Wrappers {
  Wrappers(int rank, const Seams& inner, RulesOfRank rules, CombinedFates& combined, const FaultPlan::Watcher& watcher)
      : host(rank, inner.clock, std::move(rules.blocking), watcher),
        memory(rank, inner.clock, rules.memory),
        transport(rank, inner.transport, inner.clock, host, memory, std::move(rules.transport), combined),
        device(rank, inner.device, inner.clock, host, std::move(rules.slow), std::move(rules.values), memory,
               !rules.memory.empty() || !rules.files.empty()),
        storage(rank, inner.storage, inner.clock, rules.files, memory.last),
        control(inner.control, host) {}
  HostFaults host;
  MemoryFaults memory;
  FaultyTransport transport;
  FaultyDevice device;
  FaultyStorage storage;
  FaultyControlPlane control;
};

bool is_timed_crash(const Rule& rule) { return rule.kind == FaultKind::rank_crash && is_timed(rule.when); }

bool concerns(const Rule& rule, int rank) { return !rule.when.rank || *rule.when.rank == rank; }

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
  std::vector<const RuleState*> per_message;
  CombinedFates combined;
  Watcher watcher;
  std::deque<Wrappers> wrappers;

  void add(const Rule& rule, std::uint64_t seed);
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
  if (is_slow(rule.kind)) stragglers.try_emplace(state.number(), state);
  if (is_blocking(rule.kind) && !is_timed_crash(rule)) blocking.push_back(&state);
  // Also a hang or a death on the way into the second half of a sum, which a native sum does not have.
  const bool in_gather = is_blocking(rule.kind) && rule.when.op == runtime::OpKind::all_gather;
  if (is_message(state.rule()) || is_link(rule.kind) || mode == Mode::during || mode == Mode::after || in_gather) {
    per_message.push_back(&state);
  }
}

TransportRules FaultPlan::Impl::transport_rules_of(int rank) {
  TransportRules rules;
  for (MessageFault& message : messages) {
    if (concerns(message.state.rule(), rank)) rules.messages.push_back(&message);
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
  const auto pick = [rank](const std::vector<RuleState*>& all) {
    std::vector<RuleState*> some;
    for (RuleState* state : all) {
      if (concerns(state->rule(), rank)) some.push_back(state);
    }
    return some;
  };
  RulesOfRank rules{pick(blocking), pick(values), pick(memory), pick(files), {}, transport_rules_of(rank)};
  for (auto& [number, straggler] : stragglers) {
    if (concerns(states[number].rule(), rank)) rules.slow.push_back(&straggler);
  }
  return rules;
}

Seams FaultPlan::decorate(int rank, Seams inner) {
  RulesOfRank rules = impl_->rules_of(rank);
  const bool can_die = !rules.blocking.empty() || impl_->watcher, files = !rules.files.empty(),
             memory = !rules.memory.empty();
  const bool on_device = can_die || !rules.slow.empty() || !rules.values.empty() || memory || files;
  // A rank that no rule is about still has to answer has_native as the others do.
  const bool on_transport = can_die || !rules.transport.per_message.empty() || !rules.values.empty() || memory;
  if (!on_device && !on_transport) return inner;
  Wrappers& wrappers = impl_->wrappers.emplace_back(rank, inner, std::move(rules), impl_->combined, impl_->watcher);
  return {inner.clock, on_device ? static_cast<runtime::Device&>(wrappers.device) : inner.device,
          on_transport ? static_cast<runtime::Transport&>(wrappers.transport) : inner.transport,
          files ? static_cast<runtime::Storage&>(wrappers.storage) : inner.storage,
          can_die ? static_cast<runtime::ControlPlane&>(wrappers.control) : inner.control};
}

void FaultPlan::watch(Watcher watcher) { impl_->watcher = std::move(watcher); }

std::vector<FaultPlan::TimedCrash> FaultPlan::timed_crashes() const {
  std::vector<TimedCrash> crashes;
  for (const RuleState& state : impl_->states) {
    const Trigger& when = state.rule().when;
    if (is_timed_crash(state.rule()) && state.drawn_at_start())
      crashes.push_back({*when.rank, *when.at_ns, state.number()});
  }
  return crashes;
}

void FaultPlan::fired(std::size_t rule, TimeNs now, int rank) { impl_->states.at(rule).record(now, rank, nullptr); }

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
