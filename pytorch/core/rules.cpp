#include "pytorch/core/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <mutex>
#include <stdexcept>

#include "faults/pace.h"
#include "faults/trigger.h"
#include "runtime/seams/enum_names.h"

namespace seeksim::pytorch {
namespace {

using faults::FaultKind;
using faults::Mode;
using faults::Rule;
using faults::Site;
using runtime::OpKind;
using runtime::Phase;

constexpr runtime::EnumNames<Act> kActs({{Act::collective, "collective"},
                                         {Act::activation, "activation"},
                                         {Act::activation_gradient, "activation_gradient"},
                                         {Act::loss, "loss"},
                                         {Act::parameter, "parameter"},
                                         {Act::gradient, "gradient"},
                                         {Act::reduced_gradient, "reduced_gradient"},
                                         {Act::optimizer_state, "optimizer_state"},
                                         {Act::batch, "batch"},
                                         {Act::save, "save"},
                                         {Act::allocation, "allocation"},
                                         {Act::work, "work"},
                                         {Act::step, "step"},
                                         {Act::library_call, "library_call"}});

}  // namespace

OpKind catalogue_op(OpName op) {
  switch (op) {
    case OpName::all_reduce:
    case OpName::reduce:
      return OpKind::all_reduce;
    case OpName::broadcast:
    case OpName::scatter:
      return OpKind::broadcast;
    case OpName::all_gather:
    case OpName::gather:
    case OpName::all_to_all:
      return OpKind::all_gather;
    case OpName::reduce_scatter:
      return OpKind::reduce_scatter;
    case OpName::send:
      return OpKind::send;
    case OpName::recv:
      return OpKind::recv;
    case OpName::barrier:
    case OpName::count_:
      break;
  }
  return OpKind::barrier;
}

Phase catalogue_phase(StepPhase phase) {
  switch (phase) {
    case StepPhase::data:
      return Phase::data;
    case StepPhase::forward:
      return Phase::forward;
    case StepPhase::backward:
      return Phase::backward;
    case StepPhase::optimizer:
      return Phase::optimizer;
    case StepPhase::checkpoint:
      return Phase::checkpoint;
    case StepPhase::init:
    case StepPhase::count_:
      break;
  }
  return Phase::init;
}

namespace {

bool is_saving(FaultKind kind) {
  return kind == FaultKind::nvme_write_error || kind == FaultKind::disk_full || kind == FaultKind::checkpoint_corrupt;
}

// It begins at its first match, and lasts.
bool lasts(FaultKind kind) { return kind == FaultKind::straggler || kind == FaultKind::slow_link; }

// The act at which a rule strikes.
Act act_of(const Rule& rule) {
  if (faults::is_data(rule.kind)) return Act::batch;
  if (is_saving(rule.kind)) return Act::save;
  if (rule.kind == FaultKind::straggler) return Act::work;
  if (rule.kind == FaultKind::store_death) return Act::step;
  if (rule.kind == FaultKind::device_error) return Act::library_call;
  if (rule.kind == FaultKind::oom && !rule.when.tensor.empty()) return Act::allocation;
  if (!faults::is_value(rule.kind) || faults::is_message(rule)) return Act::collective;
  // The catalogue means what a kernel of backward wrote. Without a name it is seen where it enters or leaves a sum.
  const bool summed = rule.site == Site::gradient || rule.site == Site::reduced_gradient;
  return summed && rule.when.tensor.empty() ? Act::collective : act(faults::name(rule.site));
}

// The catalogue's operation that an act is, for this rule; count_: the rule does not strike there.
OpKind operation(const Rule& rule, const std::string& path, const Situation& s) {
  if (act_of(rule) != s.act) return OpKind::count_;
  switch (s.act) {
    case Act::batch:
      return OpKind::data_load;
    case Act::save:
      if (s.name.find(path) == std::string::npos) return OpKind::count_;
      return rule.kind == FaultKind::checkpoint_corrupt ? OpKind::storage_sync : OpKind::storage_write;
    case Act::allocation:
      return OpKind::allocate;
    case Act::collective:
      break;
    default:  // of these a call of the library: see Impl::One
      return OpKind::compute;
  }
  if (rule.kind == FaultKind::oom) return OpKind::allocate;  // a collective may need memory
  if (faults::is_value(rule.kind) && !faults::is_message(rule))
    return s.sums && s.phase == StepPhase::backward ? OpKind::compute : OpKind::count_;
  if (rule.kind == FaultKind::message_corrupt && rule.mode == Mode::dup_apply && !s.sums) return OpKind::count_;
  return catalogue_op(s.op);
}

// Whether what this rank gives to a collective goes over the rule's link.
bool over_link(const Rule& rule, int rank, const Situation& s) {
  const auto is_member = [&](int end) {
    return s.peer >= 0 ? end == rank || end == s.peer : std::find(s.ranks.begin(), s.ranks.end(), end) != s.ranks.end();
  };
  const bool gives = s.op != OpName::recv && (rank == *rule.from || (rule.both_directions && rank == *rule.to));
  return gives && is_member(*rule.from) && is_member(*rule.to);
}

// How much longer an act takes, `elapsed` after the slowness began.
std::int64_t delay_of(const Rule& rule, const Situation& s, std::int64_t elapsed_ns) {
  if (rule.kind == FaultKind::straggler)
    return std::int64_t((faults::pace_after(rule, elapsed_ns) - 1) * double(s.worked_ns));
  const double plain_s = double(s.bytes) / kLinkBytesPerSecond;
  return rule.delay_ns + std::int64_t(1e9 * plain_s * (1 / rule.factor - 1));
}

}  // namespace

std::string_view name(Act value) { return kActs.of(value); }
Act act(std::string_view word) { return kActs.named(word); }

std::string does_not_apply(const Rule& given) {
  const Rule rule = faults::with_defaults(given);
  switch (rule.kind) {
    case FaultKind::collective_timeout:
    case FaultKind::rank_crash:
    case FaultKind::message_drop:
    case FaultKind::pause:
    case FaultKind::oom:
    case FaultKind::bit_flip:
    case FaultKind::nan_inject:
    case FaultKind::inf_inject:
    case FaultKind::overflow:
    case FaultKind::zero_tile:
    case FaultKind::straggler:
    case FaultKind::slow_link:
    case FaultKind::clock_skew:
    case FaultKind::store_death:
    case FaultKind::data_stall:
    case FaultKind::data_error:
    case FaultKind::nvme_write_error:
    case FaultKind::disk_full:
    case FaultKind::checkpoint_corrupt:
    case FaultKind::device_error:
      return "";
    case FaultKind::collective_mismatch:
      return rule.mode == Mode::swap_order ? "mode swap_order does not apply to scripts yet" : "";
    case FaultKind::message_corrupt:
      return rule.checksum && rule.mode != Mode::dup_apply
                 ? "message_corrupt needs \"checksum\": false: nothing in torch would notice it"
                 : "";
    default:
      return fmt::format("{} does not apply to scripts yet", faults::name(rule.kind));
  }
}

// In the catalogue a kernel fails, whatever it is for. A script's is one of the communication library.
static Rule as_kernel(Rule rule) {
  if (rule.kind == FaultKind::device_error) rule.when.op.reset();
  return rule;
}

std::vector<faults::Problem> problems_of(const Rule& given, int ranks) {
  Rule rule = given;
  std::vector<faults::Problem> own;
  if (rule.kind == FaultKind::data_error && rule.mode != Mode::unset) {
    if (rule.mode != Mode::skip && rule.mode != Mode::dup_apply)
      own.push_back({"mode", "data_error has skip, dup_apply, or none: the loader raises an error"});
    rule.mode = Mode::unset;
  }
  if (rule.kind == FaultKind::device_error && rule.mode != Mode::unset) {
    if (rule.mode != Mode::never)
      own.push_back({"mode", "device_error has never, or none: the library reports an error"});
    rule.mode = Mode::unset;
  }
  rule = as_kernel(rule);
  if (rule.kind == FaultKind::message_corrupt && rule.mode == Mode::dup_apply) rule.mode = Mode::unset;
  if (rule.kind == FaultKind::store_death) {
    // In the catalogue it happens at a time. A script loses its store with a step, and on the rank that a rule names.
    if (rule.when.rank && (*rule.when.rank < 0 || *rule.when.rank >= ranks))
      own.push_back({"rank", fmt::format("there is no rank {}", *rule.when.rank)});
    rule.when = {};
    rule.when.at_ns = 0;
  }
  std::vector<faults::Problem> found = faults::problems(rule, std::vector<int>(std::size_t(std::max(ranks, 1)), 0));
  found.insert(found.end(), own.begin(), own.end());
  return found;
}

struct Rules::Impl {
  struct One {
    One(const Rule& rule, std::size_t number, std::uint64_t seed, int twin)
        : state(as_kernel(rule), number, seed, twin), path(rule.path), called(rule.when.op) {}
    faults::RuleState state;
    std::string path;              // as it was given: the catalogue's default is a name of the runtime's own files
    std::optional<OpKind> called;  // device_error: of the library
    std::int64_t begun_ns = -1;    // of a rule that lasts
  };
  std::mutex mutex;
  std::deque<One> rules;
  int rank = 0;
  int attempt = 0;

  // Whether the rule is about this rank, and this start of the job.
  bool is_here(const Rule& rule) const {
    return (!rule.when.rank || *rule.when.rank == rank) && (!rule.when.attempt || *rule.when.attempt == attempt);
  }

  std::optional<Hit> hit(One& one, const Situation& s, const runtime::Op& op) {
    const Rule& rule = one.state.rule();
    Hit hit{std::int32_t(one.state.number()), 0, &rule, true, 0};
    if (!is_here(rule)) return std::nullopt;
    if (rule.kind == FaultKind::slow_link && !over_link(rule, rank, s)) return std::nullopt;
    if (rule.kind == FaultKind::store_death) {
      if (one.state.status().fired > 0 || s.step < rule.when.step.value_or(0)) return std::nullopt;
      one.state.record(0, rank, nullptr);
    } else if (!lasts(rule.kind) || one.begun_ns < 0) {
      if (!one.state.asks(op, 0)) return std::nullopt;
      one.state.record(0, rank, nullptr);
      one.begun_ns = s.now_ns;
    } else {
      if (rule.when.phase && *rule.when.phase != op.phase) return std::nullopt;
      hit.begins = false;
    }
    hit.firing = std::int32_t(one.state.status().fired);
    if (lasts(rule.kind)) hit.delay_ns = delay_of(rule, s, s.now_ns - one.begun_ns);
    return hit;
  }
};

Rules::Rules(std::vector<Rule> rules, std::uint64_t seed, int rank, int ranks, const std::vector<std::uint64_t>& fired,
             int attempt)
    : impl_(std::make_unique<Impl>()) {
  impl_->rank = rank;
  impl_->attempt = attempt;
  std::map<std::string, int> twins;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    for (const faults::Problem& p : problems_of(rules[i], ranks)) {
      throw std::invalid_argument(fmt::format("plan.json: faults: rule {}: {}: {}", i, p.key, p.what));
    }
    Impl::One& one = impl_->rules.emplace_back(rules[i], i, seed, twins[faults::text(rules[i])]++);
    if (i >= fired.size() || lasts(rules[i].kind)) continue;
    for (std::uint64_t n = 0; n < fired[i]; ++n) one.state.record(0, rank, nullptr);
  }
}
Rules::~Rules() = default;

std::vector<Rules::Hit> Rules::at(const Situation& s) {
  runtime::Op op;
  op.phase = s.act == Act::batch ? Phase::data : s.act == Act::save ? Phase::checkpoint : catalogue_phase(s.phase);
  op.rank = impl_->rank;
  op.peer = s.peer;
  op.micro_batch = s.micro_batch;
  op.step = s.step;
  op.tensor = s.name.c_str();
  std::vector<Hit> hits;
  std::lock_guard lock(impl_->mutex);
  for (Impl::One& one : impl_->rules) {
    op.kind = operation(one.state.rule(), one.path, s);
    if (op.kind == OpKind::count_) continue;
    if (s.act == Act::library_call && one.called && *one.called != catalogue_op(s.op)) continue;
    if (const auto hit = impl_->hit(one, s, op)) hits.push_back(*hit);
  }
  return hits;
}

std::vector<Act> Rules::acts() const {
  std::vector<Act> all;
  for (const Impl::One& one : impl_->rules) {
    const Rule& rule = one.state.rule();
    const Act act = act_of(rule);
    if (impl_->is_here(rule) && rule.kind != FaultKind::clock_skew &&
        std::find(all.begin(), all.end(), act) == all.end())
      all.push_back(act);
  }
  return all;
}

std::vector<Rules::Hit> Rules::conditions() {
  std::vector<Hit> hits;
  for (Impl::One& one : impl_->rules) {
    const Rule& rule = one.state.rule();
    if (rule.kind != FaultKind::clock_skew || !impl_->is_here(rule)) continue;
    one.state.record(0, impl_->rank, nullptr);
    hits.push_back({std::int32_t(one.state.number()), 1, &rule, true, 0});
  }
  return hits;
}

int result_of(const std::vector<Rules::Hit>& hits) {
  constexpr int kUnhandledCudaError = 1;  // ncclUnhandledCudaError
  int result = 0;
  for (const Rules::Hit& hit : hits) {
    if (hit.rule->kind == FaultKind::device_error) result = hit.rule->mode == Mode::never ? -1 : kUnhandledCudaError;
  }
  return result;
}

}  // namespace seeksim::pytorch
