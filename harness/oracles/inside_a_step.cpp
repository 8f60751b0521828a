// Each judge says first what it does when there was nothing to look at.
#include "harness/oracles/inside_a_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "harness/oracles/compression.h"
#include "harness/oracles/formulas.h"
#include "harness/scenario/variants.h"
#include "runtime/layout/parameters.h"
#include "runtime/layout/partition.h"

namespace seeksim::harness {
namespace {

using How = RankRecord::How;
using runtime::Index;
using runtime::MemoryTag;
using runtime::OpKind;
using runtime::Parameters;
using runtime::ShardInfo;

bool sharded(const Evidence& e) { return e.scenario.train.layout.zero.stage > 0; }

bool several_finished(const Evidence& e) {
  return !e.run.steps.empty() && std::count_if(e.run.ranks.begin(), e.run.ranks.end(),
                                               [](const RankRecord& rank) { return rank.how == How::finished; }) > 1;
}

std::string text(ShardInfo shard) { return fmt::format("[{}, {})", shard.offset, shard.offset + shard.size); }

// ---- partition -----------------------------------------------------------------------------------------------------

// Ranges of one space, with the rank that owns them: why they do not make it up exactly once; empty: they do.
std::string not_a_partition(std::vector<std::pair<ShardInfo, int>> ranges, Index size, const char* space) {
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.first.offset < b.first.offset; });
  Index end = 0;
  int before = -1;
  for (const auto& [range, rank] : ranges) {
    if (range.size == 0) continue;
    if (range.offset < end) {
      return fmt::format("elements {} of the {} have two owners: rank {} and rank {}",
                         text({range.offset, std::min(end, range.offset + range.size) - range.offset}), space, before,
                         rank);
    }
    if (range.offset > end)
      return fmt::format("elements {} of the {} have no owner", text({end, range.offset - end}), space);
    end = range.offset + range.size;
    before = rank;
  }
  if (end != size) return fmt::format("shards of the {} end at {}, and there are {} elements", space, end, size);
  return "";
}

std::string off_the_blocks(const Parameters& parameters, const TrueShards& shards) {
  for (const Index bound : {shards.told.own.offset, shards.told.own.offset + shards.told.own.size}) {
    for (const runtime::ParameterInfo* p : parameters.trainable()) {
      if (bound < p->offset || bound >= p->offset + p->size) continue;
      if (runtime::Partition::is_bound(*p, bound - p->offset)) continue;
      return fmt::format("the shard of rank {} {} cuts a {} of {}", shards.rank, text(shards.told.own),
                         p->undivided ? "matrix" : "norm block", p->name);
    }
  }
  return "";
}

// What one rank says of itself.
std::string not_consistent(const Parameters& parameters, const TrueShards& shards) {
  for (const Index elements : shards.told.elements) {
    if (elements == shards.told.own.size) continue;
    return fmt::format("rank {} holds {} elements for its shard {}", shards.rank, elements, text(shards.told.own));
  }
  Index owned = 0;
  for (const ShardInfo& range : shards.told.gradients) owned += range.size;
  const Index own_end = shards.told.own.offset + shards.told.own.size;
  const Index head = parameters.shares_head()
                         ? std::max<Index>(0, std::min(own_end, parameters.wte().size) -
                                                  std::min(shards.told.own.offset, parameters.wte().size))
                         : 0;
  const Index loss = shards.told.position + 1 == shards.told.members ? 1 : 0;
  if (owned == shards.told.own.size + head + loss) return "";
  return fmt::format(
      "rank {} owns {} gradients: {} of its shard, {} of the head's share and {} of the loss are its own", shards.rank,
      owned, shards.told.own.size, head, loss);
}

std::string copies_differ(const Evidence& e, const std::vector<const TrueShards*>& members) {
  const std::vector<int> nodes = node_of(e.scenario.world);
  std::vector<std::set<const TrueShards*>> keepers(members.size());
  for (const TrueShards* keeper : members) {
    for (const auto& [of, shard] : keeper->told.copies) {
      const TrueShards* owner = members[std::size_t(of)];
      if (!keepers[std::size_t(of)].insert(keeper).second)
        return fmt::format("rank {} keeps two copies of rank {}'s shard", keeper->rank, owner->rank);
      if (owner->told.own == shard) continue;
      return fmt::format("rank {} keeps a copy of {}, and rank {} owns {}", keeper->rank, text(shard), owner->rank,
                         text(owner->told.own));
    }
  }
  for (std::size_t of = 0; of < members.size(); ++of) {
    const int home = nodes[std::size_t(members[of]->rank)];
    const auto is_home = [&](const TrueShards* member) { return nodes[std::size_t(member->rank)] == home; };
    const bool elsewhere = std::any_of(members.begin(), members.end(), [&](const TrueShards* member) {
      return !is_home(member) && !keepers[of].contains(member);
    });
    for (const TrueShards* keeper : keepers[of]) {
      if (keeper != members[of] && !(is_home(keeper) && elsewhere)) continue;
      return fmt::format("the copy of rank {}'s shard is on rank {} and would be lost with it", members[of]->rank,
                         keeper->rank);
    }
    if (keepers[of].size() == keepers.front().size()) continue;
    return fmt::format("rank {}'s shard has {} copies, and rank {}'s has {}", members.front()->rank,
                       keepers.front().size(), members[of]->rank, keepers[of].size());
  }
  return "";
}

// ---- budgets -------------------------------------------------------------------------------------------------------

// asked: the scenario names the check, and its reader wants the formulas.
Finding against(const std::vector<BudgetLine>& budget, const std::map<std::string, double>& measured, bool asked) {
  std::string held, names;
  for (const BudgetLine& line : budget) {
    const auto it = measured.find(line.name);
    const double bytes = it == measured.end() ? 0 : it->second;
    const bool over = bytes > line.bytes + line.slack, under = !line.at_most && bytes < line.bytes - line.slack;
    if (over || under) {
      return bad(fmt::format("{}: {:.0f} bytes instead of {}{:.0f} ({}; {:.0f} are granted for blocks)", line.name,
                             bytes, line.at_most ? "at most " : "", line.bytes, line.formula, line.slack));
    }
    if (bytes <= 0) continue;
    held += fmt::format("{}{} {:.0f} = {}", held.empty() ? "" : "; ", line.name, bytes, line.formula);
    names += fmt::format("{}{}", names.empty() ? "" : ", ", line.name);
  }
  if (held.empty()) return good("nothing is needed and nothing was used");
  return good(asked ? held : "what ZeRO's formulas say: " + names);
}

bool asks_for(const Scenario& scenario, const char* check) {
  return std::any_of(scenario.checks.begin(), scenario.checks.end(),
                     [&](const CheckSpec& spec) { return spec.name == check; });
}

// Bytes may be right in any number of pieces. Empty: there are no more than that.
std::string too_many_calls(const std::vector<BudgetLine>& budget, const std::vector<sim::CommUse>& comm) {
  for (const BudgetLine& line : budget) {
    for (std::size_t kind = 0; kind < comm.size(); ++kind) {
      if (line.name != name(runtime::OpKind(kind)) || double(comm[kind].calls) <= line.bytes) continue;
      return fmt::format("{}: {} calls instead of at most {:.0f} ({})", line.name, comm[kind].calls, line.bytes,
                         line.formula);
    }
  }
  return "";
}

// What was used, as if gathers had travelled in one go: formulas know nothing of rounds (world.all_gather).
std::vector<sim::CommUse> in_one_go(const Scenario& scenario, std::span<const sim::CommUse> comm) {
  std::vector<sim::CommUse> used(comm.begin(), comm.end());
  const runtime::ParallelPlan& parallel = scenario.train.layout.parallel;
  const int members = std::max(data_size(scenario), parallel.ranks());
  if (parallel.gather_rule == nullptr || members < 2) return used;
  const runtime::GatherCost cost = cost_of(*parallel.gather_rule, members);
  for (const OpKind kind : {OpKind::all_gather, OpKind::publish, OpKind::param_gather}) {
    sim::CommUse& use = used[std::size_t(kind)];
    use.calls = (use.calls + cost.rounds - 1) / cost.rounds;
    use.bytes_sent_per_rank_max = use.bytes_sent_per_rank_max * (members - 1) / std::max(cost.shards_sent_max, 1);
  }
  return used;
}

// Why formulas do not apply to this run.
std::string no_budget(const Evidence& e) {
  if (const runtime::ModelPlan& model = e.scenario.train.definition.model; model.own != nullptr)
    return fmt::format("there are no formulas for models of the family {}", model.family);
  if (e.run.ranks.empty() || e.run.end != sim::WorldEnd::finished) return "the run did not finish";
  for (const RankRecord& rank : e.run.ranks) {
    if (rank.how != How::finished && rank.how != How::spare) return "not every rank finished";
  }
  return "";
}

// Whether a real machine or network, which needs no fault rule, explains that a rank waited: both sides came and a
// message between them did not, or those who did not come are gone with their processes.
bool was_lost(const RunRecord& run, const runtime::Diagnosis& found) {
  const auto is_gone = [&](int rank) { return run.ranks[std::size_t(rank)].how == How::died; };
  return found.verdict == runtime::Verdict::link ||
         (!found.culprits.empty() && std::all_of(found.culprits.begin(), found.culprits.end(), is_gone));
}

}  // namespace

Finding collectives_match(const Evidence& e, const std::string&) {
  if (!e.run.agreement.mismatches.empty()) return bad(e.run.agreement.mismatches.front());
  // Without a fault, a rank that waits in vain means that another left a collective out. A queue that the schedule
  // slows down a thousandfold may make its rank late, as a fault does.
  const bool nothing_delays = e.scenario.faults.empty() && e.scenario.world.schedule.slow.empty();
  for (const Recovery& r : e.run.detection.recoveries) {
    const bool in_vain = r.error == runtime::ErrorKind::timeout && is_collective(r.op.kind);
    if (nothing_delays && in_vain && !was_lost(e.run, r.diagnosis)) {
      return bad(fmt::format("rank {} waited without success in {} at {}: {}", r.first_rank, describe(r.op), r.op.site,
                             r.diagnosis.text));
    }
  }
  if (e.run.agreement.collectives_compared == 0) return blind("no two ranks met in a collective");
  return good(fmt::format("{} contributions to collectives matched", e.run.agreement.collectives_compared));
}

Finding replicas_equal(const Evidence& e, const std::string&) {
  if (!e.run.agreement.replica_differences.empty()) {
    const ReplicaDifference& d = e.run.agreement.replica_differences.front();
    return bad(fmt::format("step {}: rank {} and rank {} differ in {}", d.step, d.rank, d.other, d.what));
  }
  if (e.run.agreement.replica_comparisons == 0) return blind("no two ranks reported the same step");
  return good(fmt::format("{} comparisons of parameters, copies and counters", e.run.agreement.replica_comparisons));
}

Finding partition(const Evidence& e, const std::string&) {
  if (e.run.agreement.shards.empty()) return blind("nothing is sharded");
  const runtime::Definition& d = e.scenario.train.definition;
  const runtime::ParallelPlan& parallel = e.scenario.train.layout.parallel;
  // Each part of the model, a stage's of a tensor way, is cut among those who hold it, or among each shard group.
  std::map<std::tuple<std::uint32_t, int, int>, std::vector<const TrueShards*>> worlds;
  for (const TrueShards& shards : e.run.agreement.shards)
    worlds[{shards.told.epoch, shards.told.part, shards.told.group}].push_back(&shards);
  std::size_t whole = 0;
  Index elements = 0;
  for (auto& [world, members] : worlds) {
    const auto [epoch, part, group] = world;
    const Parameters parameters(d.model, d.optimizer,
                                runtime::model_part(d.model, parallel, part / parallel.ways(), part % parallel.ways()));
    // Where a member was lost before its report, there is nothing to judge.
    if (int(members.size()) != members.front()->told.members) continue;
    std::sort(members.begin(), members.end(),
              [](const TrueShards* a, const TrueShards* b) { return a->told.position < b->told.position; });
    ++whole;
    if (epoch == std::get<0>(worlds.begin()->first) && group == 0) elements += parameters.trainable_size();
    std::vector<std::pair<ShardInfo, int>> own, gradients;
    std::string wrong;
    for (const TrueShards* shards : members) {
      own.emplace_back(shards->told.own, shards->rank);
      for (const ShardInfo& range : shards->told.gradients) gradients.emplace_back(range, shards->rank);
    }
    wrong = not_a_partition(std::move(own), parameters.trainable_size(), "parameters");
    if (wrong.empty()) wrong = not_a_partition(std::move(gradients), parameters.gradient_size(), "gradients");
    for (const TrueShards* shards : members) {
      if (wrong.empty()) wrong = off_the_blocks(parameters, *shards);
      if (wrong.empty()) wrong = not_consistent(parameters, *shards);
    }
    if (wrong.empty()) wrong = copies_differ(e, members);
    if (!wrong.empty()) return bad(fmt::format("epoch {}: {}", epoch, wrong));
  }
  if (whole == 0) return blind("in no epoch did all members report their shards");
  return good(
      fmt::format("{} elements owned once each, in {} world{} of ranks", elements, whole, whole == 1 ? "" : "s"));
}

Finding memory_formula(const Evidence& e, const std::string&) {
  if (const std::string why = no_budget(e); !why.empty()) return blind(why);
  std::map<std::string, double> peaks;
  for (std::size_t tag = 0; tag < e.run.memory.peak_by_tag.size(); ++tag)
    peaks[std::string(name(runtime::MemoryTag(tag)))] = double(e.run.memory.peak_by_tag[tag]);
  for (std::size_t tag = 0; tag < e.run.memory.host_peak_by_tag.size(); ++tag)
    peaks["host " + std::string(name(runtime::MemoryTag(tag)))] = double(e.run.memory.host_peak_by_tag[tag]);
  return against(memory_budget(e.scenario), peaks, asks_for(e.scenario, "memory_formula"));
}

namespace {

// "120,31.4,16.6,1.9": one number, or one a stage.
std::vector<std::string> by_stage(const std::string& text) {
  std::vector<std::string> numbers;
  std::istringstream parts(text);
  for (std::string number; std::getline(parts, number, ',');) numbers.push_back(number);
  return numbers;
}

// Half a unit of the last digit that is written: 0.05 for "31.4".
double rounding_of(const std::string& number) {
  const std::size_t point = std::min(number.find('.'), number.size());
  double half = 0.5;
  for (std::size_t digit = point + 1; digit < number.size(); ++digit) half /= 10;
  return half;
}

}  // namespace

std::string want_gigabytes(const std::string& text, int) {
  const std::vector<std::string> numbers = by_stage(text);
  const bool plain = std::all_of(numbers.begin(), numbers.end(), [](const std::string& number) {
    double value = 0;
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), value, std::chars_format::fixed);
    return error == std::errc() && end == number.data() + number.size() && value >= 0;
  });
  return plain && (numbers.size() == 1 || numbers.size() == 4) ? "" : "takes one number, or four, of stages 0 to 3";
}

// For each kind, the bytes of the rank that has most, as the memory ledger saw it.
Finding model_state(const Evidence& e, const std::string& gigabytes) {
  if (const std::string why = no_budget(e); !why.empty()) return blind(why);
  const std::vector<std::string> numbers = by_stage(gigabytes);
  const std::string& wanted = numbers.size() == 1 ? numbers[0] : numbers.at(e.scenario.train.layout.zero.stage);
  double bytes = 0;
  for (const MemoryTag tag : {MemoryTag::parameters, MemoryTag::gradients, MemoryTag::optimizer})
    bytes += double(e.run.memory.peak_by_tag.at(std::size_t(tag)));
  const runtime::Definition& d = e.scenario.train.definition;
  const Parameters parameters(d.model, d.optimizer);
  const std::string detail =
      fmt::format("{:.4f} GB a rank for {} parameters on {} ranks at stage {}; {} GB stated", bytes / 1e9,
                  parameters.size(), e.scenario.world.ranks(), e.scenario.train.layout.zero.stage, wanted);
  return std::fabs(bytes / 1e9 - std::stod(wanted)) <= rounding_of(wanted) ? good(detail) : bad(detail);
}

Finding traffic_formula(const Evidence& e, const std::string&) {
  if (const std::string why = no_budget(e); !why.empty()) return blind(why);
  if (!e.run.detection.recoveries.empty())
    return blind("there is no formula for traffic that was repeated after a failure");
  const std::vector<sim::CommUse> used = in_one_go(e.scenario, e.run.traffic.comm);
  std::map<std::string, double> sent;
  for (std::size_t kind = 0; kind < used.size(); ++kind)
    sent[std::string(name(OpKind(kind)))] = double(used[kind].bytes_sent_per_rank_max);
  const runtime::CompressionPlan& how = e.scenario.train.definition.compression;
  const bool compressed = how.on(), plain = !compressed || how.of_momentum() || how.in_factors();  // all-reduces
  if (!sharded(e) && plain && e.scenario.train.layout.parallel.alone())
    sent["all_reduce"] += sent["all_gather"];  // its second half, where it travels message by message
  std::int64_t applied = 0;
  for (const runtime::StepRecord& step : e.run.steps) applied += step.skipped ? 0 : 1;
  const std::int64_t steps = std::int64_t(e.run.steps.size());
  const bool apart = e.scenario.train.definition.local_sgd.on();
  const std::string calls = too_many_calls(compressed ? compressed_calls(e)
                                           : apart    ? workers_calls(e.scenario, steps)
                                                      : calls_budget(e.scenario, steps),
                                           used);
  if (!calls.empty()) return bad(calls);
  std::vector<BudgetLine> budget = compressed ? compressed_traffic(e)
                                   : apart    ? workers_traffic(e.scenario, steps, applied)
                                              : traffic_budget(e.scenario, steps, applied);
  // In rounds a rank hands on shards of others, which may be smaller than its own.
  for (BudgetLine& line : budget) {
    line.at_most |= e.scenario.train.layout.parallel.gather_rule != nullptr;
    // Between shard groups the second half, too, is a gather where sums travel message by message: half at most.
    const double missing = line.bytes - sent[line.name];
    if (sharded(e) && line.name == "all_reduce" && sent[line.name] > 0 && missing > 0 && missing <= line.bytes / 2)
      sent[line.name] += std::min(sent["all_gather"], missing);
  }
  return against(budget, sent, asks_for(e.scenario, "traffic_formula"));
}

Finding conservation(const Evidence& e, const std::string&) {
  if (e.conservation && !e.conservation->wrong.empty()) return bad(e.conservation->wrong);
  if (!e.conservation || e.conservation->elements == 0) return blind("no gradients were tagged");
  return good(fmt::format("{} elements of {} step{}, each the sum of all samples", e.conservation->elements,
                          e.conservation->steps, e.conservation->steps == 1 ? "" : "s"));
}

Finding one_history(const Evidence& e, const std::string&) {
  const Commits::Findings& history = e.run.training.history;
  if (!history.wrong.empty()) return bad(history.wrong.front());
  if (history.compared == 0) return blind("no step was committed by two ranks");
  return good(fmt::format("{} commits; every member committed each step exactly once", history.commits));
}

bool collectives_to_match(const Evidence& e) {
  const runtime::Definition& d = e.scenario.train.definition;
  const bool meets = !d.local_sgd.on() || d.local_sgd.meetings(d.steps) + d.evaluation.count(d.steps) > 0;
  const bool told = several_finished(e) && e.run.compares_collectives && meets;
  return told || !e.run.agreement.mismatches.empty() || e.run.agreement.collectives_compared > 0;
}

// Ranks of one replica each hold a part of the model: there is nothing that two of them should have alike.
// Nor has anybody an equal where all but one replica were lost before the first step ended.
bool replicas_to_compare(const Evidence& e) {
  const bool compared = e.run.detection.recoveries.empty() || e.run.agreement.replica_comparisons > 0;
  const bool replicated = several_finished(e) && compared && data_size(e.scenario) > 1 && e.run.has_values;
  return replicated || !e.run.agreement.replica_differences.empty();
}

bool formulas_apply(const Evidence& e) {
  const runtime::RecoveryPlan& recovery = e.scenario.train.recovery;
  const bool disturbed = !e.scenario.faults.empty() || !e.scenario.own_faults.empty() ||
                         !e.run.detection.recoveries.empty() || !e.run.detection.joins.empty() ||
                         e.run.training.attempts.size() > 1 || e.run.training.resumed_from > 0;
  const runtime::ParallelPlan& parallel = e.scenario.train.layout.parallel;
  return no_budget(e).empty() && !disturbed && parallel.pipeline * parallel.tensor == 1 && recovery.spares == 0 &&
         !recovery.grow && !e.run.steps.empty();
}

bool shards_to_judge(const Evidence& e) {
  return !e.run.agreement.shards.empty() || (several_finished(e) && sharded(e));
}

bool commits_to_compare(const Evidence& e) {
  return e.run.training.history.compared > 0 || !e.run.training.history.wrong.empty();
}

// ---- pipelines -----------------------------------------------------------------------------------------------------

using runtime::ParallelPlan;
using runtime::PipelineSchedule;

double measured_bubble(const RunRecord& run) {
  double sum = 0;
  int steps = 0;
  for (std::size_t step = run.traffic.passes.size() > 1 ? 1 : 0; step < run.traffic.passes.size(); ++step, ++steps)
    sum += run.traffic.passes[step].bubble();
  return steps > 0 ? sum / steps : 0;
}

Finding bubble_formula(const Evidence& e, const std::string& percent) {
  const ParallelPlan& plan = e.scenario.train.layout.parallel;
  if (plan.pipeline == 1 || e.run.traffic.passes.empty()) return blind("there is no pipeline, or no step was made");
  if (plan.schedule == PipelineSchedule::zero_bubble) return blind("the zero_bubble schedule has a different formula");
  if (plan.schedule_rule != nullptr) return blind("no formula knows the schedule " + plan.own_schedule);
  if (!e.run.detection.recoveries.empty()) return blind("there is no formula for a step that was run again");
  const double p = plan.pipeline, v = plan.virtual_stages, m = micro_batches_of_replica(e.scenario);
  const double formula = (p - 1) / (v * m + p - 1), measured = measured_bubble(e.run);
  const std::string detail = fmt::format(
      "{:.3f} % of the stages' time, and (p-1)/(v*m+p-1) is {:.3f} % for {} stages, {} micro-batches, {} "
      "piece{} a stage",
      100 * measured, 100 * formula, p, m, v, v == 1 ? "" : "s");
  return std::fabs(measured - formula) <= formula * std::stod(percent) / 100 ? good(detail) : bad(detail);
}

Finding live_activations(const Evidence& e, const std::string&) {
  const ParallelPlan& plan = e.scenario.train.layout.parallel;
  const bool stated = plan.schedule == PipelineSchedule::one_f_one_b || plan.schedule == PipelineSchedule::gpipe;
  if (e.run.traffic.pipeline.empty() || !stated) return blind("no rank reported a 1F1B or GPipe pipeline");
  std::string held;
  for (std::size_t rank = 0; rank < e.run.traffic.pipeline.size(); ++rank) {
    const runtime::PipelineRecord& told = e.run.traffic.pipeline[rank];
    if (told.in_flight.empty() || told.micro_batches == 0) continue;
    const bool all = plan.schedule == PipelineSchedule::gpipe;
    const int wanted = all ? told.micro_batches : std::min(plan.pipeline - told.stage, told.micro_batches);
    if (told.in_flight.front() != wanted) {
      return bad(fmt::format("stage {} (rank {}) holds the activations of {} micro-batches; {} says {}", told.stage,
                             rank, told.in_flight.front(), all ? "GPipe" : "1F1B", wanted));
    }
    held += fmt::format("{}{}", held.empty() ? "" : ", ", wanted);
  }
  return held.empty() ? blind("no rank has micro-batches") : good("micro-batches held, by rank: " + held);
}

}  // namespace seeksim::harness
