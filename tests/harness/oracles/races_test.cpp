// Every wait that orders memory is needed: for each edge of the runtime there is a small scenario in which leaving it
// out is a race, and which has none with it. And so for each other bug that no_races or no_poison must notice.
#include <fmt/format.h>

#include <map>

#include <nlohmann/json.hpp>

#include "harness/loading/load.h"
#include "harness/simulate/simulate.h"
#include "harness/verdict/checks.h"
#include "runtime/rules/bugs.h"
#include "runtime/seams/edges.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using runtime::Edge;

constexpr const char* kRedo = R"({ "policy": "rebuild_and_redo", "watchdog_s": 60 })";

struct Row {
  Edge edge;
  const char* zero;  // zero_optimization
  const char* faults = "[]";
  const char* recovery = kRedo;
  bool checkpoints = false;  // four layers, each recomputed, their inputs on the host
  int pipeline = 1;
  int tensor = 1;               // ways; with sequence parallelism
  const char* saves = nullptr;  // "checkpoint"
  int expert = 1;               // ranks that divide the experts of a Llama
  const char* evaluation = "";
  int context = 1;  // ranks that share the tokens of each sample
  bool ring = false;
  bool routers = false;  // experts whose routers have losses, on four stages
};

constexpr const char* kZero1 = R"({ "stage": 1 })";
constexpr const char* kBuckets = R"({ "stage": 2, "overlap_comm": true, "reduce_bucket_size": 1500 })";
constexpr const char* kSerial = R"({ "stage": 2, "overlap_comm": false, "reduce_bucket_size": 1500 })";
constexpr const char* kZero3 =
    R"({ "stage": 3, "overlap_comm": true, "stage3_param_persistence_threshold": 0, "stage3_max_reuse_distance": 0 })";
constexpr const char* kSecondary =
    R"({ "stage": 3, "overlap_comm": true, "stage3_param_persistence_threshold": 0, "stage3_max_reuse_distance": 0,
         "stage3_max_live_parameters": 7000, "zero_hpz_partition_size": 2 })";
constexpr const char* kSerial3 =
    R"({ "stage": 3, "overlap_comm": false, "stage3_param_persistence_threshold": 0, "stage3_max_reuse_distance": 0 })";
constexpr const char* kPersistent3 = R"({ "stage": 3, "stage3_param_persistence_threshold": 64 })";
constexpr const char* kHost =
    R"({ "stage": 2, "overlap_comm": true, "reduce_bucket_size": 1500, "offload_optimizer": { "device": "cpu" } })";
constexpr const char* kNvme =
    R"({ "stage": 2, "sub_group_size": 500, "offload_optimizer": { "device": "nvme", "nvme_path": "nvme",
         "buffer_count": 2, "pipeline_read": true, "pipeline_write": true } })";
constexpr const char* kParameters =
    R"({ "stage": 3, "stage3_param_persistence_threshold": 0, "stage3_max_reuse_distance": 0,
         "offload_optimizer": { "device": "cpu" },
         "offload_param": { "device": "nvme", "nvme_path": "nvme", "buffer_count": 2, "buffer_size": 100,
                            "max_in_cpu": 0 } })";
constexpr const char* kCrash =
    R"([ { "kind": "rank_crash", "rank": 1, "step": 1, "op": "publish", "mode": "during" } ])";
constexpr const char* kNeverJoins =
    R"([ { "kind": "collective_timeout", "rank": 1, "step": 1, "op": "reduce_scatter" } ])";

constexpr const char* kSaves = R"({ "path": "saved", "every_steps": 1 })";
constexpr const char* kRestart = R"({ "policy": "restart_from_checkpoint", "watchdog_s": 60 })";
constexpr const char* kDies = R"([ { "kind": "rank_crash", "rank": 1, "step": 2, "op": "vote" } ])";

constexpr const char* kCasts = R"("fp8": { "scaling": "delayed", "amax_history_len": 2 },)";
constexpr const char* kWorkers = R"("local_sgd": { "workers": 4, "every": 1, "outer": { "type": "nesterov" } },)";

const Row kRows[] = {
    {Edge::backward_done, R"({ "stage": 0 })"},
    {Edge::backward_done, kZero1},
    {Edge::gradients_reduced, R"({ "stage": 0 })"},
    {Edge::shard_reduced, kZero1},
    {Edge::norms_measured, kZero1},
    {Edge::norms_gathered, kZero1},
    {Edge::step_measured, R"({ "stage": 0 })"},
    {Edge::step_measured, kZero3},
    {Edge::evaluated, kZero1, "[]", kRedo, false, 1, 1, nullptr, 1, R"("evaluation": { "samples": 5 },)"},
    {Edge::update_applied, R"({ "stage": 0 })"},
    {Edge::update_applied, kBuckets},
    {Edge::parameters_published, kZero1},
    {Edge::persistent_published, kPersistent3},
    {Edge::bucket_filled, kBuckets},
    {Edge::bucket_reduced, kSerial},
    {Edge::bucket_free, kBuckets},
    {Edge::parameters_gathered, kZero3},
    {Edge::parameters_gathered_at_once, kSerial3},
    {Edge::space_free, kZero3},
    {Edge::secondary_filled, kSecondary},
    {Edge::checkpoint_written, kZero1, "[]", kRedo, true},
    {Edge::checkpoint_copied_out, kZero1, "[]", kRedo, true},
    {Edge::checkpoint_place_free, kZero1, "[]", kRedo, true},
    {Edge::checkpoint_copied_in, kZero1, "[]", kRedo, true},
    {Edge::shards_drawn, kZero3},
    {Edge::shards_moved, kZero1, kCrash},
    {Edge::shard_handed_out, kZero1},
    {Edge::step_abandoned, kBuckets, kNeverJoins},
    {Edge::landing_filled, kHost},
    {Edge::landing_free, kHost},
    {Edge::gradients_arrived, kHost},
    {Edge::node_free, kHost},
    {Edge::gradients_held, kHost},
    {Edge::norms_at_home, kHost},
    {Edge::updated_at_home, kHost},
    {Edge::piece_read, kNvme},
    {Edge::piece_updated, kNvme},
    {Edge::staging_free, kNvme},
    {Edge::piece_read, kParameters},
    {Edge::piece_updated, kParameters},
    {Edge::staging_free, kParameters},
    {Edge::activation_place_free, kZero1, "[]", kRedo, false, 2},
    {Edge::activation_received, kZero1, "[]", kRedo, false, 2},
    {Edge::activation_made, kZero1, "[]", kRedo, false, 2},
    {Edge::activation_left, kZero1, "[]", kRedo, false, 2},
    {Edge::router_losses_left, kZero1, "[]", kRedo, true, 4, 1, nullptr, 1, "", 1, false, true},
    {Edge::gradient_place_free, kZero1, "[]", kRedo, false, 2},
    {Edge::gradient_received, kZero1, "[]", kRedo, false, 2},
    {Edge::gradient_made, kZero1, "[]", kRedo, false, 2},
    {Edge::tied_received, R"({ "stage": 0 })", "[]", kRedo, false, 2},
    {Edge::tied_at_home, kHost, "[]", kRedo, false, 2},
    {Edge::tied_on_device, kHost, "[]", kRedo, false, 2},
    {Edge::replica_norms_measured, kZero1, "[]", kRedo, false, 2},
    {Edge::replica_norms_gathered, kZero1, "[]", kRedo, false, 2},
    {Edge::tensor_part_made, kZero1, "[]", kRedo, false, 1, 2},
    {Edge::tensor_part_arrived, kZero1, "[]", kRedo, false, 1, 2},
    {Edge::expert_rows_packed, kZero1, "[]", kRedo, false, 1, 1, nullptr, 2},
    {Edge::expert_rows_arrived, kZero1, "[]", kRedo, false, 1, 1, nullptr, 2},
    {Edge::context_part_made, kZero1, "[]", kRedo, false, 1, 1, nullptr, 1, "", 2},
    {Edge::context_part_arrived, kZero1, "[]", kRedo, false, 1, 1, nullptr, 1, "", 2},
    {Edge::workers_ready, R"({ "stage": 0 })", "[]", kRedo, false, 1, 1, nullptr, 1, kWorkers},
    {Edge::workers_summed, R"({ "stage": 0 })", "[]", kRedo, false, 1, 1, nullptr, 1, kWorkers},
    {Edge::workers_met, R"({ "stage": 0 })", "[]", kRedo, false, 1, 1, nullptr, 1, kWorkers},
    {Edge::amaxes_recorded, R"({ "stage": 0 })", "[]", kRedo, false, 1, 1, nullptr, 1, kCasts},
    {Edge::ring_place_free, kZero1, "[]", kRedo, false, 1, 1, nullptr, 1, "", 4, true},
    {Edge::ring_block_arrived, kZero1, "[]", kRedo, false, 1, 1, nullptr, 1, "", 4, true},
    {Edge::snapshot_taken, kZero1, "[]", kRedo, false, 1, 1, kSaves},
    {Edge::checkpoint_read, kZero1, kDies, kRestart, false, 1, 1, kSaves},
};

Scenario scenario_of(const Row& row, const std::string& bug, const LoadOptions& options = {}) {
  const std::string text = fmt::format(
      R"({{ "name": "races",
  "model": {{ {}, "layers": {}, "width": 16, "heads": {}, "context": {}, "vocab": 64,
    "gradient_sums": "{}", "attention": "{}" }},
  "data": {{ "synthetic": true }},
  "world": {{ "nodes": 2, "ranks_per_node": 2, "network": "ib", "pipeline": {}, "tensor": {}, "sequence_parallel": {},
    "expert": {}, "context": {}{} }},
  "deepspeed": {{ "train_batch_size": 16, "train_micro_batch_size_per_gpu": 1,
                 {} "zero_optimization": {}, "optimizer": {{ "type": "AdamW", "params": {{ "lr": 1e-3 }} }} }},
  "steps": 3, "faults": {}, "recovery": {}, {} {} {} {} "checks": [] }})",
      row.routers      ? R"("family": "llama", "experts": 4, "aux_loss": 0.01)"
      : row.expert > 1 ? R"("family": "llama", "experts": 4)"
                       : R"("family": "gpt2")",
      row.checkpoints ? 4 : 2, row.tensor > 1 ? 8 : 2, row.ring ? 128 : 8, row.context > 1 ? "segments" : "tokens",
      row.ring ? "fused" : "standard", row.pipeline, row.tensor, row.tensor > 1, row.expert, row.context,
      row.ring ? R"(, "context_attention": "ring")" : "",
      row.checkpoints ? R"("activation_checkpointing": { "cpu_checkpointing": true },)" : "", row.zero, row.faults,
      row.recovery, row.checkpoints ? R"("checkpointing": { "every": 1 },)" : "",
      row.saves == nullptr ? "" : fmt::format(R"("checkpoint": {},)", row.saves),
      bug.empty() ? "" : fmt::format(R"("bug": "{}",)", bug), row.evaluation);
  return load_scenario_text(text, "races.json", options);
}

CheckResult judged(const Scenario& scenario, const char* check) {
  const RunRecord run = Simulation(scenario, {}).run();
  return judge(CheckSpec{check, ""}, {scenario, run, nullptr, std::nullopt, {}});
}

TEST(Races, NoneInTheRuntime) {
  std::map<std::string, Row> settings;
  for (const Row& row : kRows)
    settings.emplace(fmt::format("{}{}{} {} {} {} {}{}", row.zero, row.faults, row.checkpoints, row.pipeline,
                                 row.tensor, row.saves != nullptr, row.expert * 10 + row.context, row.evaluation),
                     row);
  for (const auto& [key, row] : settings) {
    const CheckResult races = judged(scenario_of(row, ""), "no_races");
    EXPECT_TRUE(races.ok) << key << ": " << races.detail;
  }
}

TEST(Races, EveryEdgeIsNeeded) {
  std::map<Edge, int> rows;
  for (const Row& row : kRows) {
    ++rows[row.edge];
    const std::string bug = runtime::text({runtime::Bug::skip_wait, row.edge});
    const CheckResult races = judged(scenario_of(row, bug), "no_races");
    EXPECT_FALSE(races.ok) << bug << " with " << row.zero << " goes unnoticed: " << races.detail;
    EXPECT_NE(races.detail.find("has to wait for"), std::string::npos) << races.detail;
    EXPECT_NE(races.detail.find("(planted: " + bug + ')'), std::string::npos) << races.detail;
  }
  for (std::size_t i = 1; i < std::size_t(Edge::count_); ++i)
    EXPECT_GT(rows[Edge(i)], 0) << "no row leaves out " << runtime::name(Edge(i)) << ": add one to kRows";
}

TEST(Races, MemoryGivenBackInUseIsOne) {
  const CheckResult races = judged(scenario_of({Edge::none, kZero3}, "early_release"), "no_races");
  EXPECT_FALSE(races.ok);
  EXPECT_NE(races.detail.find("'gathered parameters' (gathered"), std::string::npos) << races.detail;
  EXPECT_NE(races.detail.find("is given back while the "), std::string::npos) << races.detail;
}

TEST(Poison, IsNamedWhereItIs) {
  for (const char* zero : {kZero3, kPersistent3}) {
    const Scenario scenario = scenario_of({Edge::none, zero}, "unwritten_memory");
    const RunRecord run = Simulation(scenario, {}).run();
    const CheckResult poison = judge(CheckSpec{"no_poison", ""}, {scenario, run, nullptr, std::nullopt, {}});
    EXPECT_FALSE(poison.ok) << poison.detail;
    EXPECT_NE(poison.detail.find("parameters', element "), std::string::npos) << poison.detail;
    for (const RankRecord& rank : run.ranks) {
      EXPECT_EQ(rank.how, RankRecord::How::stopped);
      EXPECT_NE(rank.why.find("uninitialised memory"), std::string::npos) << rank.why;
    }
    EXPECT_TRUE(run.steps.empty());
  }
  const CheckResult clean = judged(scenario_of({Edge::none, kZero3}, ""), "no_poison");
  EXPECT_TRUE(clean.ok) << clean.detail;
}

// Values tell nothing where arithmetic loses the pattern: in bf16 nothing keeps it.
TEST(Poison, ReadsOfWhatNothingHasWrittenAreFoundWithoutTheirValues) {
  for (const std::string precision : {"fp32", "bf16", "fp16"}) {
    LoadOptions options;
    if (precision != "fp32") options.sets = {"deepspeed." + precision + ".enabled=true"};
    for (const char* zero : {kZero1, kZero3}) {
      Scenario scenario = scenario_of({Edge::none, zero}, "activation_never_written", options);
      const RunRecord run = Simulation(scenario, {}).run();
      const CheckResult found = judge(CheckSpec{"no_poison", ""}, {scenario, run, nullptr, std::nullopt, {}});
      EXPECT_FALSE(found.ok) << precision << ' ' << zero << ": " << found.detail;
      for (const char* words : {"h.0.mlp.c_proj.weight", " reads 'gelu", "bytes [0, ", "rank 1"})
        EXPECT_NE(found.detail.find(words), std::string::npos) << words << " is not in " << found.detail;
      if (precision != "fp32") {
        EXPECT_TRUE(run.numbers.poison.empty()) << "the value is not lost: " << run.numbers.poison.front();
      }
      scenario.train.bug = {};
      const RunRecord right = Simulation(scenario, {}).run();
      EXPECT_TRUE(right.numbers.unwritten.empty()) << right.numbers.unwritten.front().text;
      EXPECT_GT(right.numbers.reads, 1000u);
    }
  }
}

TEST(Poison, DeclaredReadsAreJudgedWithoutARecoveryOnly) {
  const Scenario scenario = scenario_of({Edge::none, kZero1}, "");
  RunRecord run;
  const auto judged_now = [&] { return judge(CheckSpec{"no_poison", ""}, {scenario, run, nullptr, std::nullopt, {}}); };
  run.numbers.reads = 5;
  run.numbers.unwritten = {{1, "compute reads 'x'", 3}, {2, "more", 1}};
  EXPECT_FALSE(judged_now().ok);
  EXPECT_EQ(judged_now().detail, "compute reads 'x' (and 1 more)");
  run.numbers.poison_looks = 9;
  run.detection.recoveries.emplace_back();  // what has been written is not known any more
  EXPECT_TRUE(judged_now().ok) << judged_now().detail;
  run.detection.recoveries.clear();
  run.numbers.unwritten.clear();
  EXPECT_EQ(judged_now().detail, "9 result values and 5 declared reads checked; all were written before use");
}

// With several reductions a step, whose nodes are merged on each member.
TEST(Poison, ARankThatOwnsNothingReadsNothingUnwritten) {
  LoadOptions options;
  options.sets = {
      "sweep=[]", "faults=[]", "checks=[]", "deepspeed.gradient_accumulation_steps=2", "batch_arithmetic=by_samples",
      ""};
  for (const char* stage : {"1", "2", "3"}) {
    options.sets.back() = std::string("deepspeed.zero_optimization.stage=") + stage;
    const Scenario scenario =
        load_scenario(paths::source_dir() + "/scenarios/equivalence/ranks_without_parameters.json", options);
    const RunRecord run = Simulation(scenario, {}).run();
    EXPECT_GT(run.numbers.reads, 1000u);
    for (const sim::UnwrittenRead& read : run.numbers.unwritten)
      ADD_FAILURE() << "stage " << stage << ": " << read.text;
  }
}

TEST(Races, AreFoundAtEverySeedAlike) {
  Scenario scenario = scenario_of({Edge::none, kBuckets}, "skip_wait:bucket_free");
  const RunRecord first = Simulation(scenario, {}).run();
  scenario.world.seed = 99;
  const RunRecord second = Simulation(scenario, {}).run();
  ASSERT_EQ(first.races.found.size(), second.races.found.size());
  ASSERT_FALSE(first.races.found.empty());
  for (std::size_t i = 0; i < first.races.found.size(); ++i)
    EXPECT_EQ(first.races.found[i].text, second.races.found[i].text);
}

TEST(Races, TheDetectorChangesNothing) {
  Scenario scenario = scenario_of({Edge::none, kZero3, kCrash}, "");
  const RunRecord with = Simulation(scenario, {}).run();
  scenario.world.race_detector = false;
  const RunRecord without = Simulation(scenario, {}).run();
  EXPECT_EQ(with.fingerprint, without.fingerprint);
  EXPECT_EQ(with.virtual_ns, without.virtual_ns);
  EXPECT_GT(with.races.accesses, 0u);
  EXPECT_EQ(without.races.accesses, 0u);
}

TEST(PlantedBugs, HaveNamesThatGoBothWays) {
  LoadOptions fast;  // some are mistakes of fast arithmetic, and refused elsewhere
  fast.sets = {"faults=[]", "checks=[\"within_bounds\"]", "numerics=fast", ""};
  for (const std::string& name : runtime::bug_names()) {
    fast.sets.back() = "bug=" + name;
    const Scenario scenario = name.starts_with("fast_") ? load_scenario_text(testing::small_text(), "fast.json", fast)
                                                        : scenario_of({Edge::none, kZero1}, name);
    EXPECT_EQ(runtime::text(scenario.train.bug), name);
    const Scenario again = load_scenario_text(to_json(scenario).dump(), "again.json");
    EXPECT_EQ(again.train.bug, scenario.train.bug);
  }
  const std::string problems =
      testing::problems_of(testing::small_text_with(7, R"(  "steps": 4, "bug": "skip_wait:bucket_fre",)"));
  EXPECT_NE(problems.find("bucket_free"), std::string::npos) << problems;
}

}  // namespace
}  // namespace seeksim::harness
