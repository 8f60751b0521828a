// Each check seen green and seen red, on runs made by hand; and red where it had nothing to look at.
#include "harness/verdict/checks.h"

#include <cmath>
#include <functional>
#include <set>

#include <nlohmann/json.hpp>

#include "harness/loading/extensions.h"
#include "harness/loading/features/fast.h"
#include "harness/oracles/formulas.h"
#include "harness/oracles/reference_steps.h"
#include "runtime/layout/partition.h"
#include "runtime/recovery/train.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;
using How = RankRecord::How;

Golden golden_for(const RunRecord& run) {
  Golden golden = golden_of(run, "key");
  golden.origin = "made by hand";
  return golden;
}

faults::RuleStatus fired(std::uint64_t times) {
  faults::RuleStatus status;
  status.kind = faults::FaultKind::collective_timeout;
  status.text = "{\"kind\": \"collective_timeout\"}";
  status.fired = times;
  return status;
}

// The small scenario's run with the memory and traffic that its formulas ask for.
void as_the_formulas_say(RunRecord& r) {
  for (const BudgetLine& line : memory_budget(small_scenario())) {
    for (std::size_t tag = 0; tag < r.memory.peak_by_tag.size(); ++tag) {
      if (name(runtime::MemoryTag(tag)) == line.name) r.memory.peak_by_tag[tag] = std::size_t(line.bytes);
    }
  }
  for (const BudgetLine& line : traffic_budget(small_scenario(), 4, 4))
    r.traffic.comm[std::size_t(runtime::op_kind(line.name))].bytes_sent_per_rank_max = std::uint64_t(line.bytes);
}

// Stage 1 on 4 ranks, as the runtime cuts it.
void sharded(RunRecord& r) {
  const runtime::Definition d = small_scenario().train.definition;
  const runtime::Parameters parameters(d.model, d.optimizer.decay_all);
  const runtime::Partition partition(parameters, 4);
  for (int rank = 0; rank < 4; ++rank) {
    runtime::ShardRecord told;
    told.members = 4;
    told.position = rank;
    told.own = partition.shard(rank);
    told.elements.assign(4, told.own.size);
    for (const runtime::OwnedRange& range : partition.owned(rank, 0, parameters.gradient_size()))
      told.gradients.push_back({range.offset, range.size});
    told.copies = {{(rank + 2) % 4, partition.shard((rank + 2) % 4)}};
    r.agreement.shards.push_back({rank, told});
  }
}

void laid_out(RunRecord& r) {
  for (RankRecord& rank : r.ranks) {
    rank.layout.micro_batch = 1;
    rank.layout.zero.stage = 3;
  }
}

// A run of 10 s; one step was done again, two checkpoints took half a second each.
void worth_four_steps(RunRecord& r) {
  r.training.undone_steps = 1;
  r.detection.ledger.noticed(3 * runtime::kSecond);
  r.training.checkpoints.resize(2);
  for (Checkpoint& one : r.training.checkpoints) {
    one.complete = true;
    one.blocked_ns = runtime::kSecond / 2;
  }
}

// Rank 2 takes twice as long.
void with_scores(RunRecord& r) {
  for (int rank = 0; rank < 4; ++rank) r.detection.scores[rank] = {2, rank == 2 ? 1.0 : 2.0, rank == 2 ? 0.5 : 1.0};
  r.detection.stragglers = {{3, 2, 0.5, 2, false}};
}

// The scale of four steps.
void scaled(RunRecord& r) {
  for (std::size_t i = 0; i < 4; ++i) r.steps[i].loss_scale = i < 2 ? 8 : 4;
}

// Rank 2 saw it where it was made, rank 0 after the reduction.
void born_at_two(RunRecord& r) {
  Birth late{0, 1, {}}, early{2, 1, {}};
  late.birth.op.phase = runtime::Phase::grad_reduce;
  late.birth.op.tensor = "gradients";
  early.birth.op.phase = runtime::Phase::forward;
  early.birth.op.micro_batch = 0;
  early.birth.op.layer = 1;
  early.birth.op.tensor = "gelu";
  early.birth.buffer = "gelu out";
  early.birth.element = 17;
  r.numbers.births = {late, early};
}

// Rank 1 computed other bits in step 2; in step 3 infinities came out twice.
void run_twice(RunRecord& r) {
  r.numbers.rerun_micro_batches = 8;
  r.numbers.rerun_ranges = 80;
  runtime::RerunRecord hardware, genuine;
  hardware.step = 2;
  hardware.differs = {1, "wte.weight"};
  hardware.nonfinite = {0, "loss"};  // of an attempt that is redone
  genuine.step = 3;
  genuine.epoch = 1;
  genuine.nonfinite = {0, "loss"};
  r.numbers.reruns = {{1, hardware}, {2, genuine}};
}

// A comparison of fast arithmetic with the contract.
FastComparison compared() {
  FastComparison seen;
  seen.audit.report.products = {10, 100, 0, 0.25, {}};
  seen.audit.report.sums = {4, 40, 0, 0.5, {}};
  return seen;
}
FastComparison compared_over() {
  FastComparison seen = compared();
  seen.audit.report.products.over = 1;
  seen.audit.report.first = runtime::OverBound{{}, "product", 4, 4, 8, 1, {1, 2, 1.0f, 1.5f, 0.001, 500}};
  return seen;
}

// Two steps judged by the reference, with so many differences.
ReferenceVerdict by_the_reference(std::size_t differences) {
  ReferenceVerdict verdict;
  verdict.steps = {0, 1};
  verdict.values = verdict.tight = 1000;
  verdict.differences.assign(differences, {1, "gradient", "wte.weight", 7, 0.5, 0.25, 1e-6, 0});
  return verdict;
}

struct Case {
  const char* check;
  bool ok;
  const char* detail;
  std::function<void(RunRecord&)> change;
  std::optional<Conservation> conservation = std::nullopt;
  std::optional<FastComparison> fast = std::nullopt;
  std::optional<ReferenceVerdict> reference = std::nullopt;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"golden:bitwise", true, "0000000000001111", [](RunRecord&) {}},
      {"golden:bitwise", false, "loss of step 2",
       [](RunRecord& r) { r.steps[2].loss = std::nextafter(r.steps[2].loss, 0.0f); }},
      {"golden:bitwise", false, "gradient norm of step 1", [](RunRecord& r) { r.steps[1].grad_norm = 0; }},
      {"golden:bitwise", false, "rank 3: params", [](RunRecord& r) { r.ranks[3].state.params ^= 1; }},
      {"golden:bitwise", false, "rank 2: 1 of 2 tensors differ, the first is ln_f.bias",
       [](RunRecord& r) { r.ranks[2].state.by_tensor[1].second ^= 1; }},
      {"golden:bitwise", false, "optimizer state", [](RunRecord& r) { r.ranks[0].state.optimizer ^= 1; }},
      {"golden:bitwise", false, "data position 31 instead of 32",
       [](RunRecord& r) { r.ranks[1].state.data_position = 31; }},
      {"golden:bitwise", false, "3 optimizer steps instead of 4",
       [](RunRecord& r) { r.ranks[1].state.optimizer_steps = 3; }},
      {"golden:bitwise", false, "loss scale", [](RunRecord& r) { r.ranks[1].state.loss_scale = 2; }},
      {"golden:bitwise", false, "3 steps instead of 4", [](RunRecord& r) { r.steps.pop_back(); }},
      {"golden:bitwise", false, "looked at nothing",
       [](RunRecord& r) {
         for (auto& rank : r.ranks) rank.how = How::stopped;
       }},
      {"golden:bitwise", true, "ranks 0-2",
       [](RunRecord& r) {
         r.ranks[3].how = How::died;
         r.ranks[3].state = {};
       }},
      {"ranks_agree", true, "all 4 ranks", [](RunRecord&) {}},
      {"ranks_agree", false, "rank 1 and rank 0", [](RunRecord& r) { r.ranks[1].state.params ^= 1; }},
      {"ranks_agree", false, "step 1: rank 2",
       [](RunRecord& r) {
         r.training.disagreements.push_back({1, 2, {}, {}});
       }},
      {"ranks_agree", false, "looked at nothing", [](RunRecord& r) { r.ranks.resize(1); }},
      {"ranks_agree", false, "looked at nothing", [](RunRecord& r) { r.training.step_comparisons = 0; }},
      {"faults_fired", true, "fired 2 times", [](RunRecord& r) { r.faults = {fired(2)}; }},
      {"faults_fired", false, "faults.1 never fired",
       [](RunRecord& r) {
         r.faults = {fired(2), fired(0)};
       }},
      {"faults_fired", false, "looked at nothing", [](RunRecord&) {}},
      {"alarms:none", true, "no limit was passed", [](RunRecord&) {}},
      {"alarms:none", false, "alarm loss_max: 101 in step 2, above 100", [](RunRecord& r) { r.steps[2].loss = 101; }},
      {"alarms:loss_max", true, "loss_max: 101", [](RunRecord& r) { r.steps[1].loss = r.steps[3].loss = 101; }},
      {"culprit:2", true, "somebody did something", [](RunRecord& r) { r.detection.recoveries = {recovery_naming({2})}; }},
      {"culprit:2", false, "named instead: 1", [](RunRecord& r) { r.detection.recoveries = {recovery_naming({1})}; }},
      {"culprit:2", false, "named instead: 1,2",
       [](RunRecord& r) {
         r.detection.recoveries = {recovery_naming({1, 2})};
       }},
      {"culprit:2", false, "named instead: nobody", [](RunRecord& r) { r.detection.recoveries = {recovery_naming({})}; }},
      {"culprit:2", false, "named instead: link:2->1",
       [](RunRecord& r) {
         r.detection.recoveries = {recovery_naming({2}, {{2, 1}})};
       }},
      {"culprit:2", false, "named others",
       [](RunRecord& r) {
         r.detection.recoveries = {recovery_naming({2})};
         r.detection.recoveries[0].of_another_mind = {3};
       }},
      {"culprit:2", false, "looked at nothing", [](RunRecord&) {}},
      {"culprit:2,1", true, "",
       [](RunRecord& r) {
         r.detection.recoveries = {recovery_naming({1, 2})};
       }},
      {"culprit:link:1->0", true, "",
       [](RunRecord& r) {
         r.detection.recoveries = {recovery_naming({1, 0}, {{1, 0}})};
       }},
      {"culprit:link:1->0", false, "link:0->1",
       [](RunRecord& r) {
         r.detection.recoveries = {recovery_naming({0, 1}, {{0, 1}})};
       }},
      {"culprit:2", true, "",
       [](RunRecord& r) {
         r.detection.recoveries = {recovery_naming({2}), recovery_naming({1})};
       }},
      {"finishes_within_virtual_s:10", true, "10 s", [](RunRecord&) {}},
      {"finishes_within_virtual_s:9.99", false, "10 s", [](RunRecord&) {}},
      {"finishes_within_virtual_s:10", false, "looked at nothing",
       [](RunRecord& r) { r.end = sim::WorldEnd::deadlock; }},
      {"overlap_at_least:0.25", true, "0.25 of 4e-09 s",
       [](RunRecord& r) { r.traffic.overlap = {.in_flight_ns = 4, .hidden_ns = 1}; }},
      {"overlap_at_least:0.26", false, "0.25 of 4e-09 s",
       [](RunRecord& r) { r.traffic.overlap = {.in_flight_ns = 4, .hidden_ns = 1}; }},
      {"overlap_at_least:0", false, "looked at nothing", [](RunRecord&) {}},
      {"no_recovery", true, "", [](RunRecord&) {}},
      {"no_recovery", false, "somebody", [](RunRecord& r) { r.detection.recoveries = {recovery_naming({2})}; }},
      {"recoveries:1", true, "", [](RunRecord& r) { r.detection.recoveries = {recovery_naming({2})}; }},
      {"recoveries:1", false, "there were 0", [](RunRecord&) {}},
      {"recoveries:0", true, "", [](RunRecord&) {}},
      {"evicted:2", true, "rank 2",
       [](RunRecord& r) {
         r.detection.recoveries = {recovery_naming({2})};
         r.detection.recoveries[0].evicted = {2};
       }},
      {"evicted:2", true, "rank 2", [](RunRecord& r) { r.ranks[2].how = How::died; }},
      {"evicted:2", true, "rank 2", [](RunRecord& r) { r.ranks[2].how = How::evicted; }},
      {"evicted:2", false, "no rank left", [](RunRecord&) {}},
      {"evicted:2", false, "ranks 2, 3", [](RunRecord& r) { r.ranks[2].how = r.ranks[3].how = How::died; }},
      {"evicted:none", true, "no rank left", [](RunRecord&) {}},
      {"joined:2", true, "rank 2", [](RunRecord& r) { r.detection.joins = {{1, 3, {2}}}; }},
      {"joined:2", false, "ranks 2, 3", [](RunRecord& r) { r.detection.joins = {{1, 3, {2}}, {2, 4, {3}}}; }},
      {"joined:2", false, "no rank joined", [](RunRecord&) {}},
      {"evicted:none", false, "rank 0", [](RunRecord& r) { r.ranks[0].how = How::died; }},
      {"steps_lost_at_most:0", true, "0 lost", [](RunRecord& r) { r.detection.recoveries = {recovery_naming({2})}; }},
      {"steps_lost_at_most:1", false, "2 lost",
       [](RunRecord& r) {
         r.detection.recoveries = {recovery_naming({2}), recovery_naming({1})};
         r.detection.recoveries[0].steps_lost = r.detection.recoveries[1].steps_lost = 1;
       }},
      {"steps_lost_at_most:0", false, "looked at nothing", [](RunRecord&) {}},
      {"restarts:0", true, "restarted 0 times", [](RunRecord&) {}},
      {"restarts:2", true, "restarted 2 times", [](RunRecord& r) { r.training.attempts.resize(3); }},
      {"restarts:1", false, "restarted 2 times", [](RunRecord& r) { r.training.attempts.resize(3); }},
      {"checkpoints_valid", true, "1 left of 1",
       [](RunRecord& r) {
         r.training.checkpoints = {{2, true, "", 0, 0, 0, 10}};
         r.training.found_checkpoints = {{2, ""}};
       }},
      {"checkpoints_valid", false, "the one of step 2 has a manifest and a file is missing",
       [](RunRecord& r) {
         r.training.checkpoints = {{2, true, "", 0, 0, 0, 10}};
         r.training.found_checkpoints = {{2, "a file is missing"}};
       }},
      {"checkpoints_valid", false, "1 were complete, but none is left",
       [](RunRecord& r) {
         r.training.checkpoints = {{2, true, "", 0, 0, 0, 10}};
       }},
      {"checkpoints_valid", false, "looked at nothing", [](RunRecord&) {}},
      {"saved_at_end", true, "is complete", [](RunRecord& r) { r.training.checkpoints = {{4, true, "", 0, 0, 0, 1}}; }},
      {"saved_at_end", true, "whole on the disks",
       [](RunRecord& r) {
         r.training.checkpoints = {{4, false, "given up in a recovery", 0, 0, 0, 1}};
         r.training.found_checkpoints = {{4, ""}};
       }},
      {"saved_at_end", false, "never begun", [](RunRecord& r) { r.training.checkpoints = {{3, true, "", 0, 0, 0, 1}}; }},
      {"saved_at_end", false, "no room", [](RunRecord& r) { r.training.checkpoints = {{4, false, "no room", 0, 0, 0, 0}}; }},
      {"loss_falls", true, "5.5 -> 2.5", [](RunRecord&) {}},
      {"loss_falls", false, "5.5 -> 5.5", [](RunRecord& r) { r.steps[3].loss = 5.5f; }},
      {"loss_falls", false, "nan", [](RunRecord& r) { r.steps[3].loss = std::nanf(""); }},
      {"loss_falls", false, "looked at nothing", [](RunRecord& r) { r.steps.resize(1); }},
      {"loss_falls", false, "no step was applied: all 4 were skipped",
       [](RunRecord& r) {
         for (runtime::StepRecord& step : r.steps) step.skipped = true;
       }},
      {"loss_falls", false, "after 4 steps the weights are those of the beginning",
       [](RunRecord& r) {
         for (RankRecord& rank : r.ranks)
           rank.state.by_tensor = runtime::initial_digests(small_scenario().train.definition);
       }},
      {"slowdown_at_least:2", true, "2 times", [](RunRecord&) {}},
      {"slowdown_at_least:2.1", false, "2 times", [](RunRecord&) {}},
      {"slowdown_at_least:2", false, "looked at nothing",
       [](RunRecord& r) { r.end = sim::WorldEnd::out_of_wall_time; }},
      {"no_races", true, "7 device memory accesses",
       [](RunRecord& r) {
         r.races.watched = true;
         r.races.accesses = 7;
       }},
      {"no_races", false, "2 pairs of call sites, first rank 3: this and that",
       [](RunRecord& r) {
         r.races.watched = true;
         r.races.accesses = 7;
         r.races.found = {{3, "this and that", 2}, {3, "something", 1}};
       }},
      {"no_races", false, "looked at nothing: no access", [](RunRecord& r) { r.races.watched = true; }},
      {"no_races", false, "looked at nothing: the race detector was off", [](RunRecord&) {}},
      {"no_poison", true, "9 result values", [](RunRecord& r) { r.numbers.poison_looks = 9; }},
      {"no_poison", false, "element 5",
       [](RunRecord& r) {
         r.numbers.poison_looks = 9;
         r.numbers.poison = {"uninitialised memory reached 'weights', element 5"};
       }},
      {"no_poison", false, "looked at nothing", [](RunRecord&) {}},
      {"collectives_match", true, "12 contributions", [](RunRecord& r) { r.agreement.collectives_compared = 12; }},
      {"collectives_match", false, "rank 1 brought",
       [](RunRecord& r) {
         r.agreement.collectives_compared = 12;
         r.agreement.mismatches = {"rank 1 brought something else"};
       }},
      {"collectives_match", false, "waited without success in all_reduce",
       [](RunRecord& r) {
         r.agreement.collectives_compared = 12;
         r.detection.recoveries = {recovery_naming({1})};
         r.detection.recoveries[0].op.kind = runtime::OpKind::all_reduce;
       }},
      {"collectives_match", false, "looked at nothing", [](RunRecord&) {}},
      {"bubble_formula:2", true, "25.000 % of the stages' time",
       [](RunRecord& r) { r.traffic.passes = {{0, 80, 240, 4}, {0, 80, 240, 4}}; }},
      {"bubble_formula:2", false, "50.000 % of the stages' time",
       [](RunRecord& r) { r.traffic.passes = {{0, 80, 160, 4}, {0, 80, 160, 4}}; }},
      {"bubble_formula:2", false, "looked at nothing", [](RunRecord&) {}},
      {"live_activations", true, "micro-batches held, by rank: 2, 1",
       [](RunRecord& r) { r.traffic.pipeline = {{0, 0, 3, {2}}, {0, 1, 3, {1}}}; }},
      {"live_activations", false, "stage 1 (rank 1) holds the activations of 3 micro-batches; 1F1B says 1",
       [](RunRecord& r) { r.traffic.pipeline = {{0, 0, 3, {2}}, {0, 1, 3, {3}}}; }},
      {"live_activations", false, "looked at nothing", [](RunRecord&) {}},
      {"replicas_equal", true, "12 comparisons", [](RunRecord& r) { r.agreement.replica_comparisons = 12; }},
      {"replicas_equal", false, "step 2: rank 3 and rank 0 differ in the learning rate",
       [](RunRecord& r) {
         r.agreement.replica_differences = {{2, 3, 0, "the learning rate: 1 and 2"}};
       }},
      {"replicas_equal", false, "looked at nothing", [](RunRecord&) {}},
      {"goodput_at_least:0.8", true, "4 steps of 2 s in 10 s", worth_four_steps},
      {"goodput_at_least:0.9", false, "0.8: ", worth_four_steps},
      {"goodput_at_least:0", false, "looked at nothing", [](RunRecord& r) { r.steps.clear(); }},
      {"young_daly:50", true, "0.2 is lost and 0.325 by the formula", worth_four_steps},
      {"young_daly:30", false, "-38.5 %, over 1 failures", worth_four_steps},
      {"young_daly:30", false, "looked at nothing", [](RunRecord&) {}},
      {"one_history", true, "16 commits",
       [](RunRecord& r) {
         r.training.history.commits = 16;
         r.training.history.compared = 12;
       }},
      {"one_history", false, "rank 1 commits step 2 again",
       [](RunRecord& r) { r.training.history.wrong = {"rank 1 commits step 2 again"}; }},
      {"one_history", false, "looked at nothing", [](RunRecord&) {}},
      {"partition", true, "owned once each", sharded},
      {"partition", false, "have two owners: rank 0 and rank 1",
       [](RunRecord& r) {
         sharded(r);
         r.agreement.shards[1].told.own.offset -= 8;
       }},
      {"partition", false, "have no owner",
       [](RunRecord& r) {
         sharded(r);
         r.agreement.shards[1].told.own.offset += 8;
       }},
      {"partition", false, "shards of the gradients end at",
       [](RunRecord& r) {
         sharded(r);
         r.agreement.shards[3].told.gradients.pop_back();
       }},
      {"partition", false, "cuts a norm block",
       [](RunRecord& r) {
         sharded(r);
         r.agreement.shards[0].told.own.size += 8;
         r.agreement.shards[1].told.own.offset += 8;
         r.agreement.shards[1].told.own.size -= 8;
       }},
      {"partition", false, "rank 2 holds 7 elements",
       [](RunRecord& r) {
         sharded(r);
         r.agreement.shards[2].told.elements[3] = 7;
       }},
      {"partition", false, "rank 1 keeps a copy of",
       [](RunRecord& r) {
         sharded(r);
         r.agreement.shards[1].told.copies[0].second.size -= 1;
       }},
      {"partition", false, "rank 0's shard has 1 copies, and rank 3's has 0",
       [](RunRecord& r) {
         sharded(r);
         r.agreement.shards[1].told.copies.clear();
       }},
      {"partition", false, "rank 1 keeps two copies of rank 3's shard",
       [](RunRecord& r) {
         sharded(r);
         r.agreement.shards[1].told.copies.push_back(r.agreement.shards[1].told.copies[0]);
       }},
      {"partition", false, "and would be lost with it",
       [](RunRecord& r) {
         sharded(r);
         std::swap(r.agreement.shards[0].rank, r.agreement.shards[1].rank);
         std::swap(r.agreement.shards[0].rank, r.agreement.shards[3].rank);
       }},
      {"partition", false, "looked at nothing",
       [](RunRecord& r) {
         sharded(r);
         r.agreement.shards.pop_back();
       }},
      {"skipped:2", true, "skipped steps: 2", [](RunRecord& r) { r.steps[2].skipped = true; }},
      {"skipped:none", true, "none", [](RunRecord&) {}},
      {"skipped:1", false, "2 instead of 1", [](RunRecord& r) { r.steps[2].skipped = true; }},
      {"loss_scale:8,8,4,4", true, "8 -> 4", scaled},
      {"loss_scale:8,4,4,4", false, "step 1 had 8 instead of 4", scaled},
      {"loss_scale:8,8,4", false, "4 steps instead of 3", scaled},
      {R"(born:{"rank":2,"layer":1,"tensor":"gelu","phase":"forward"})", true, "wrote element 17 of 'gelu out'", born_at_two},
      {R"(born:{"layer":0})", false, "layer 1 instead of 0", born_at_two},
      {R"(born:{"rank":2})", false, "looked at nothing", [](RunRecord&) {}},
      {R"(rerun_found:{"rank":1,"step":2,"micro_batch":1,"parameter":"wte.weight"})", true, "rank 1, step 2", run_twice},
      {R"(rerun_found:{"rank":2})", false, "rank 1 instead of 2", run_twice},
      {"rerun_found:none", false, "rank 1, step 2, micro-batch 1", run_twice},
      {"rerun_found:none", true, "8 micro-batches",
       [](RunRecord& r) { run_twice(r), r.numbers.reruns.clear(); }},
      {R"(rerun_found:{"rank":1})", false, "8 micro-batches had the same bits twice",
       [](RunRecord& r) { run_twice(r), r.numbers.reruns.clear(); }},
      {"rerun_found:none", false, "looked at nothing", [](RunRecord&) {}},
      {"rerun_genuine:3", true, "3", run_twice},
      {"rerun_genuine:2,3", false, "3 instead of 2, 3", run_twice},
      {"rerun_genuine:none", false, "looked at nothing", [](RunRecord&) {}},
      {"stagnates_at_least:0.5", true, "0.6 of 10", [](RunRecord& r) { r.numbers.stagnation = {{4, 2}, {6, 4}}; }},
      {"stagnates_at_least:0.7", false, "0.6 of 10", [](RunRecord& r) { r.numbers.stagnation = {{4, 2}, {6, 4}}; }},
      {"stagnates_at_least:0", false, "looked at nothing", [](RunRecord&) {}},
      {"evaluations", true, "2 evaluations of 4", [](RunRecord& r) { r.training.evaluations = {{2, 0, 1}, {4, 0, 1}}; }},
      {"evaluations", false, "after 4 steps is", [](RunRecord& r) { r.training.evaluations = {{2, 0, 1}}; }},
      {"samples_once", true, "32 samples in 2 epochs of 20", [](RunRecord& r) { use_in_order(r); }},
      {"samples_once", false, "sample 3", [](RunRecord& r) { use_in_order(r), r.training.samples[1].rows[2] = 3; }},
      {"compression_conserves", true, "1.00 bits", [](RunRecord& r) { r.numbers.compressed = {64, 0, 8}; }},
      {"compression_conserves", false, "on rank 2", [](RunRecord& r) { r.numbers.compressed = {8, 3, 1, 2, 1}; }},
      {"compression_conserves", false, "looked at nothing", [](RunRecord&) {}},
      {"staleness_bounded", true, "3 gradients of 1 workers", applied_late({{0}, {}, {1, 2}})},
      {"staleness_bounded", false, "clock 0 enters 2 steps late; the bound is 1", applied_late({{}, {}, {0, 1, 2}})},
      {"staleness_bounded", false, "looked at nothing", applied_late({})},
      {"workers_meet", true, "(4 times one looked)", [](RunRecord& r) { r.agreement.workers = {4, 8, ""}; }},
      {"workers_meet", false, "worker 2", [](RunRecord& r) { r.agreement.workers = {4, 8, "step 3: worker 2"}; }},
      {"workers_meet", false, "looked at nothing", [](RunRecord&) {}},
      {"tracks_fp32:0.01", true, "at most 0", [](RunRecord&) {}},
      {"tracks_fp32:0.01", false, "step 3", [](RunRecord& r) { r.steps[3].loss *= 1.02f; }},
      {"tracks_fp32:0.01", false, "3 steps, and 4", [](RunRecord& r) { r.steps.resize(3); }},
      {"layout:stage 3, micro-batch 1", true, "micro-batch 1, stage 3, no checkpointing", laid_out},
      {"layout:stage 2", false, "micro-batch 1, stage 3", laid_out},
      {"layout:stage 3", false, "looked at nothing", [](RunRecord& r) { for (auto& one : r.ranks) one.how = How::stopped; }},
      {"layout:stage 3", false, "rank 3: micro-batch 2, stage 3",
       [](RunRecord& r) {
         laid_out(r);
         r.ranks[3].layout.micro_batch = 2;
       }},
      {"spikes:none", true, "none", [](RunRecord&) {}},
      {"spikes:2", true, "2", [](RunRecord& r) { r.steps[2].loss = 9; }},
      {"spikes:none", false, "2 instead of none", [](RunRecord& r) { r.steps[2].loss = std::nanf(""); }},
      {"straggler:2", true, "rank 2 too slow", with_scores},
      {"straggler:none", false, "rank 2 too slow; the lowest mean score is 0.500", with_scores},
      {"straggler:none", true, "nobody is too slow",
       [](RunRecord& r) {
         with_scores(r);
         r.detection.stragglers.clear();
       }},
      {"straggler:none", false, "looked at nothing", [](RunRecord&) {}},
      {"diverged:none", true, "no step", [](RunRecord&) {}},
      {"diverged:none", false, "step 3", [](RunRecord& r) { r.detection.divergences = {{3, "loss", 20, 4}}; }},
      {"diverged:3", true, "step 3", [](RunRecord& r) { r.detection.divergences = {{3, "loss", 20, 4}}; }},
      {"diverged:none", false, "looked at nothing", [](RunRecord& r) { r.steps.resize(2); }},
      {"memory_formula", true, "optimizer", as_the_formulas_say},
      {"memory_formula", false, "optimizer: 64 bytes instead of",
       [](RunRecord& r) {
         as_the_formulas_say(r);
         r.memory.peak_by_tag[std::size_t(runtime::MemoryTag::optimizer)] = 64;
       }},
      {"memory_formula", false, "gathered: 64 bytes instead of at most 0",
       [](RunRecord& r) {
         as_the_formulas_say(r);
         r.memory.peak_by_tag[std::size_t(runtime::MemoryTag::gathered)] = 64;
       }},
      {"memory_formula", false, "looked at nothing", [](RunRecord& r) { r.ranks[3].how = How::died; }},
      {"model_state_gb:0.00", true, "at stage 0; 0.00 GB stated",
       [](RunRecord& r) { r.memory.peak_by_tag[std::size_t(runtime::MemoryTag::gradients)] = 4'000'000; }},
      {"model_state_gb:0.00", false, "0.0060 GB a rank",
       [](RunRecord& r) { r.memory.peak_by_tag[std::size_t(runtime::MemoryTag::gradients)] = 6'000'000; }},
      {"model_state_gb:1", false, "looked at nothing", [](RunRecord& r) { r.ranks[3].how = How::died; }},
      {"traffic_formula", true, "all_reduce", as_the_formulas_say},
      {"traffic_formula", false, "all_reduce: 0 bytes instead of",
       [](RunRecord& r) {
         as_the_formulas_say(r);
         r.traffic.comm[std::size_t(runtime::OpKind::all_reduce)].bytes_sent_per_rank_max = 0;
       }},
      {"traffic_formula", false, "all_reduce: 1000 calls instead of at most 16",
       [](RunRecord& r) {
         as_the_formulas_say(r);
         r.traffic.comm[std::size_t(runtime::OpKind::all_reduce)].calls = 1000;
       }},
      {"reference", true, "2 steps", [](RunRecord&) {}, std::nullopt, std::nullopt, by_the_reference(0)},
      {"reference", false, "step 1: gradient of wte.weight[7] is 0.5, the reference has 0.25", [](RunRecord&) {},
       std::nullopt, std::nullopt, by_the_reference(1)},
      {"reference:ends", false, "looked at nothing", [](RunRecord&) {}},
      {"conservation", true, "100 elements of 2 steps", [](RunRecord&) {}, Conservation{2, 100, ""}},
      {"conservation", false, "sample 3", [](RunRecord&) {}, Conservation{2, 100, "sample 3 is missing"}},
      {"conservation", false, "looked at nothing", [](RunRecord&) {}, Conservation{}},
      {"quirk_differs:1", true, "first in step 1: norm 0 instead of 2", [](RunRecord& r) { r.steps[1].grad_norm = 0; }},
      {"quirk_differs:2", false, "it was to differ in step 2", [](RunRecord& r) { r.steps[1].grad_norm = 0; }},
      {"quirk_differs", false, "had no effect", [](RunRecord&) {}},
      {"quirk_differs", false, "looked at nothing", [](RunRecord& r) { r.steps.clear(); }},
      {"traffic_formula", false, "looked at nothing", [](RunRecord& r) { r.detection.recoveries = {recovery_naming({2})}; }},
      {"within_bounds", true, "10 products and 4 sums over ranks", [](RunRecord&) {}, {}, compared()},
      {"within_bounds", false, "first over its bound: product in compute", [](RunRecord&) {}, {}, compared_over()},
      {"within_bounds", false, "looked at nothing", [](RunRecord&) {}, {}, FastComparison{}},
      {"within_bounds", false, "looked at nothing", [](RunRecord&) {}},
  };
  return all;
}

TEST(Checks, EachIsGreenAndRedWhereItShould) {
  Scenario scenario = small_scenario();
  scenario.faults.clear();  // in its runs made by hand nothing was injected
  scenario.train.provenance.on = true;
  scenario.train.recovery.straggler.on = true;
  scenario.train.recovery.divergence.on = true;
  scenario.train.recovery.divergence.window_steps = 2;
  scenario.train.definition.quirks = {runtime::Quirk::mean_of_rank_means};
  scenario.watched.alarms.loss_max = 100;
  const RunRecord good = good_run();
  const Golden golden = golden_for(good);
  std::vector<float> in_fp32;
  for (const runtime::StepRecord& step : good.steps) in_fp32.push_back(step.loss);
  std::set<std::string> green, red;
  for (const Case& one : cases()) {
    CheckSpec spec;
    ASSERT_EQ(read_check(Json(one.check), 4, spec).what, "") << one.check;
    RunRecord run = good;
    one.change(run);
    Scenario judged = scenario;
    judged.train.checkpoint.every_steps = 1, judged.train.checkpoint.at_end = true;
    judged.train.checkpoint.path = "checkpoints";
    if (spec.name == "samples_once") make_a_set(judged);
    if (spec.name == "evaluations") judged.train.definition.evaluation = {2, 4};
    if (spec.name == "bubble_formula" || spec.name == "live_activations") {  // 2 stages, 3 micro-batches
      judged.train.layout.parallel.pipeline = 2;
      judged.train.layout.micro_batch = 2;
      judged.train.definition.global_batch = 12;
    }
    const FastComparison* const fast = one.fast ? &*one.fast : nullptr;
    const CheckResult result = judge(spec, {judged,
                                            run,
                                            &golden,
                                            5 * runtime::kSecond,
                                            {},
                                            one.conservation,
                                            in_fp32,
                                            &good,
                                            2.0,
                                            fast,
                                            one.reference ? &*one.reference : nullptr});
    EXPECT_EQ(result.name, one.check);
    EXPECT_EQ(result.ok, one.ok) << one.check << ": " << result.detail;
    EXPECT_NE(result.detail.find(one.detail), std::string::npos)
        << one.check << ": " << result.detail << "\n  not: " << one.detail;
    (one.ok ? green : red).insert(spec.name);
  }
  for (const CheckInfo& info : check_catalogue()) {
    if (own_check(info.name) != nullptr) continue;  // another test's
    EXPECT_TRUE(green.count(info.name)) << info.name << " was never seen green";
    EXPECT_TRUE(red.count(info.name)) << info.name << " was never seen red";
  }
}

TEST(Checks, WithoutGoldenOrUndisturbedRunAreRed) {
  const Scenario scenario = small_scenario();
  const RunRecord run = good_run();
  EXPECT_NE(judge(CheckSpec{"golden", "bitwise"}, {scenario, run, nullptr, {}, {}}).detail.find("looked at nothing"),
            std::string::npos);
  EXPECT_FALSE(judge(CheckSpec{"slowdown_at_least", "1"}, {scenario, run, nullptr, {}, {}}).ok);
}

}  // namespace
}  // namespace seeksim::harness
