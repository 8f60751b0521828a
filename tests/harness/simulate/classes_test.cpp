// Ranks that are alike stand for each other: a world of classes is the same world rank by rank. The courses of all
// ranks (what each did when, to the nanosecond, its peaks by tag, its traffic), and what a report says of the run, are
// held against each other on random worlds.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/loading/estimate.h"
#include "harness/loading/load.h"
#include "harness/loading/scenario_json.h"
#include "harness/simulate/simulate.h"
#include "sim/random.h"

namespace seeksim::harness {
namespace {

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed, sim::Stream::noise) {}
  int below(int n) { return int(random_.below(std::uint32_t(n))); }
  template <class T>
  T of(std::initializer_list<T> all) {
    return all.begin()[below(int(all.size()))];
  }

 private:
  sim::Random random_;
};

Json fault(Draw& draw, int ranks, int steps) {
  const int rank = draw.below(ranks);
  const double late_s = draw.of({1e-6, 1e-4, 3e-3});
  switch (draw.below(5)) {
    case 0:
      return {{"kind", "straggler"}, {"rank", rank}, {"factor", draw.of({1.01, 1.5, 4.0})}};
    case 1:
      return {{"kind", "straggler"}, {"rank", rank},     {"mode", "periodic"},
              {"factor", 2},         {"period_s", 1e-3}, {"duty", 0.3}};
    case 2:
      return {{"kind", "pause"}, {"rank", rank}, {"step", draw.below(steps)}, {"delay_s", late_s}};
    case 3:
      return {{"kind", "data_stall"}, {"rank", rank}, {"step", draw.below(steps)}, {"delay_s", late_s}};
    default:
      return {{"kind", "collective_timeout"},
              {"rank", rank},
              {"mode", "late"},
              {"step", draw.below(steps)},
              {"delay_s", late_s}};
  }
}

Json zero(Draw& draw, int stage) {
  Json zero = {{"stage", stage}, {"overlap_comm", draw.below(2) == 0}};
  const int bucket = draw.of({500, 3000, 20'000, 500'000'000});
  if (stage > 0) zero["reduce_bucket_size"] = bucket;
  if (stage == 1 || stage == 2) zero["allgather_bucket_size"] = draw.of({700, 5000, 500'000'000});
  if (stage == 3) {
    zero["stage3_param_persistence_threshold"] = draw.of({0, 100, 100'000});
    zero["stage3_prefetch_bucket_size"] = draw.of({0, 2000, 50'000'000});
  }
  if (stage > 0 && draw.below(4) == 0)
    zero["offload_optimizer"] = {{"device", "cpu"}, {"pin_memory", draw.below(2) == 0}};
  return zero;
}

// A small world with odd sizes, whose ranks differ in what they own and do more often than not.
Json world(std::uint64_t seed) {
  Draw draw(seed);
  const int nodes = 1 + draw.below(8), per_node = std::max(1 + draw.below(8), nodes == 1 ? 2 : 1);
  const int ranks = nodes * per_node, micro = draw.of({1, 2, 3}), accumulation = draw.of({1, 1, 2, 3});
  const int heads = draw.of({2, 3}), width = heads * draw.of({4, 12, 40}), steps = 1 + draw.below(3);
  const int stage = draw.below(4);
  Json json = {{"name", "alike"},
               {"seed", 1 + draw.below(1000)},
               {"numerics", "shapes"},
               {"model",
                {{"layers", 1 + draw.below(3)},
                 {"width", width},
                 {"heads", heads},
                 {"context", draw.of({5, 8, 32})},
                 {"vocab", draw.of({31, 200, 1024})}}},
               {"data", {{"synthetic", true}}},
               {"world",
                {{"nodes", nodes},
                 {"ranks_per_node", per_node},
                 {"network", draw.of({"ideal", "nvlink", "pcie", "ib", "tcp"})},
                 {"steady", true},
                 {"race_detector", false},
                 {"device", {{"tflops", draw.of({1, 50})}}}}},
               {"deepspeed",
                {{"train_batch_size", ranks * micro * accumulation},
                 {"train_micro_batch_size_per_gpu", micro},
                 {"gradient_accumulation_steps", accumulation},
                 {"zero_optimization", zero(draw, stage)},
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}}}}},
               {"steps", steps},
               {"recovery", {{"policy", "stop"}}}};
  if (draw.below(3) == 0) json["deepspeed"]["bf16"] = {{"enabled", true}};
  if (draw.below(4) == 0) json["checkpointing"] = {{"every", 1}};
  if (draw.below(4) == 0) json["model"]["family"] = "llama";
  for (int faults = draw.of({0, 0, 1, 1, 2, 3}); faults > 0; --faults)
    json["faults"].push_back(fault(draw, ranks, steps));
  return json;
}

// The same with a model that is cut into stages and ways, and replicas of it.
Json grid(std::uint64_t seed) {
  Draw draw(seed ^ 0x6712d);
  Json json = world(seed);
  const int pipeline = draw.of({1, 2, 3, 4}), tensor = pipeline == 1 ? draw.of({2, 4}) : draw.of({1, 1, 2, 4});
  const int replicas = draw.of({2, 3, 4, 6, 8, 16, 32}), ranks = pipeline * tensor * replicas, micro = draw.of({1, 2});
  const int per_node = draw.of({1, 2, 3, 4, 8, ranks});
  const int steps = json["steps"];
  Json& world = json["world"];
  world["nodes"] = ranks % per_node == 0 ? ranks / per_node : ranks;
  world["ranks_per_node"] = ranks % per_node == 0 ? per_node : 1;
  world["pipeline"] = pipeline;
  world["tensor"] = tensor;
  if (pipeline > 1) world["schedule"] = draw.of({"1f1b", "gpipe", "zero_bubble"});
  if (tensor > 1) world["sequence_parallel"] = draw.below(2) == 0;
  const int heads = 8, accumulation = draw.of({1, 2, 3, 5});
  Json& model = json["model"];
  model["layers"] = pipeline + draw.below(3);
  model["heads"] = heads;
  model["width"] = heads * draw.of({16, 32});
  model["context"] = draw.of({8, 32});
  model["vocab"] = draw.of({512, 1024});
  if (pipeline > 1 || draw.below(2) == 0) model["tied"] = false;
  Json& deepspeed = json["deepspeed"];
  deepspeed["train_batch_size"] = replicas * micro * accumulation;
  deepspeed["train_micro_batch_size_per_gpu"] = micro;
  deepspeed["gradient_accumulation_steps"] = accumulation;
  json.erase("faults");
  for (int faults = draw.of({0, 0, 0, 1, 2}); faults > 0; --faults) json["faults"].push_back(fault(draw, ranks, steps));
  return json;
}

RunRecord run(const Scenario& scenario, const std::function<AlikeRanks(const Scenario&)>& alike) {
  SimulationOptions options;
  options.alike = alike;
  return Simulation(scenario, options).run();
}

RunRecord run_each(const Scenario& scenario) {
  SimulationOptions options;
  options.rank_by_rank = true;
  return Simulation(scenario, options).run();
}

// What differs; empty: nothing.
std::string difference(const RunRecord& classes, const RunRecord& each) {
  std::string text;
  const auto same = [&text](const char* what, bool is) {
    if (!is) text += std::string(what) + "; ";
  };
  same("end", classes.end == each.end);
  same("virtual time", classes.virtual_ns == each.virtual_ns);
  same("steps", classes.steps.size() == each.steps.size());
  for (std::size_t i = 0; i < std::min(classes.steps.size(), each.steps.size()); ++i)
    same("a step's time", classes.steps[i].committed_ns == each.steps[i].committed_ns);
  for (std::size_t rank = 0; rank < each.ranks.size(); ++rank) {
    if (classes.alike->courses.at(rank) != each.alike->courses.at(rank)) text += fmt::format("rank {}; ", rank);
    same("an ending", classes.ranks[rank].how == each.ranks[rank].how);
    same("a rank's steps", classes.ranks[rank].steps_committed == each.ranks[rank].steps_committed);
  }
  same("peaks by tag", classes.memory.peak_by_tag == each.memory.peak_by_tag);
  same("the peak", classes.memory.peak == each.memory.peak);
  same("host peaks", classes.memory.host_peak_by_tag == each.memory.host_peak_by_tag);
  for (std::size_t kind = 0; kind < each.traffic.comm.size(); ++kind) {
    same("calls", classes.traffic.comm[kind].calls == each.traffic.comm[kind].calls);
    same("bytes",
         classes.traffic.comm[kind].bytes_sent_per_rank_max == each.traffic.comm[kind].bytes_sent_per_rank_max);
  }
  same("overlap", classes.traffic.overlap.hidden_ns == each.traffic.overlap.hidden_ns &&
                      classes.traffic.overlap.in_flight_ns == each.traffic.overlap.in_flight_ns);
  same("copies", classes.traffic.copies.hidden_ns == each.traffic.copies.hidden_ns &&
                     classes.traffic.copies.in_flight_ns == each.traffic.copies.in_flight_ns);
  for (std::size_t step = 0; step < std::min(classes.traffic.passes.size(), each.traffic.passes.size()); ++step)
    same("passes", classes.traffic.passes[step].busy_ns == each.traffic.passes[step].busy_ns &&
                       classes.traffic.passes[step].ranks == each.traffic.passes[step].ranks &&
                       classes.traffic.passes[step].last_ns == each.traffic.passes[step].last_ns);
  same("what was compared", classes.agreement.collectives_compared == each.agreement.collectives_compared);
  same("shards", classes.agreement.shards.size() == each.agreement.shards.size());
  same("history", classes.training.history.commits == each.training.history.commits);
  for (std::size_t i = 0; i < each.faults.size(); ++i) same("a rule", classes.faults[i].fired == each.faults[i].fired);
  return text;
}

struct Judged {
  int worlds = 0, disturbed = 0, sharded = 0, several_nodes = 0, staged = 0, split = 0;
};

// Only worlds in which somebody stands for somebody count.
void judge(const std::function<Json(std::uint64_t)>& drawn, int worlds, Judged& judged) {
  std::map<std::string, int> why_not;
  for (std::uint64_t seed = 1; judged.worlds < worlds; ++seed) {
    ASSERT_LT(seed, 5000U) << judged.worlds;
    const Json json = drawn(seed);
    const Scenario scenario = load_scenario_text(json.dump(), "alike.json");
    const AlikeRanks alike = alike_ranks(scenario);
    if (alike.classes == nullptr) ++why_not[alike.why_not];
    if (alike.classes == nullptr || alike.classes->simulated.size() == alike.classes->weight.size()) continue;
    const RunRecord classes = run(scenario, {}), each = run_each(scenario);
    ASSERT_EQ(classes.alike->classes, alike.classes->count) << classes.alike->why_not << ", seed " << seed << '\n'
                                                            << json.dump(1);
    ASSERT_EQ(difference(classes, each), "") << "seed " << seed << ", " << classes.alike->classes << " classes\n"
                                             << json.dump(1);
    const runtime::ParallelPlan& parallel = scenario.train.layout.parallel;
    ++judged.worlds;
    judged.disturbed += !scenario.faults.empty();
    judged.sharded += scenario.train.layout.zero.stage > 0;
    judged.several_nodes += scenario.world.nodes > 1;
    judged.staged += parallel.pipeline > 1;
    judged.split += parallel.tensor > 1;
  }
  std::string reasons;
  for (const auto& [why, count] : why_not) reasons += fmt::format("rank by rank: {} x {}\n", count, why);
  std::printf("%d judged: %d disturbed, %d sharded, %d of several nodes, %d with stages, %d with ways\n%s",
              judged.worlds, judged.disturbed, judged.sharded, judged.several_nodes, judged.staged, judged.split,
              reasons.c_str());
}

TEST(SlowClasses, RandomWorldsAreThoseOfEveryRank) {
  Judged judged;
  judge(world, 520, judged);
  EXPECT_GT(judged.disturbed, 200);
  EXPECT_GT(judged.sharded, 150);
  EXPECT_GT(judged.several_nodes, 300);
}

TEST(SlowClasses, RandomGridsAreThoseOfEveryRank) {
  Judged judged;
  judge(grid, 260, judged);
  EXPECT_GT(judged.disturbed, 60);
  EXPECT_GT(judged.sharded, 20);
  EXPECT_GT(judged.several_nodes, 130);
  EXPECT_GT(judged.staged, 130);
  EXPECT_GT(judged.split, 130);
}

// ---- planted mistakes
// ------------------------------------------------------------------------------------------------

std::string simple(int nodes, int per_node, int stage, const std::string& more = "") {
  return fmt::format(
      R"({{ "name": "simple", "numerics": "shapes", "steps": 2, "data": {{ "synthetic": true }},
  "model": {{ "layers": 2, "width": 64, "heads": 4, "context": 64, "vocab": 256 }},
  "world": {{ "nodes": {}, "ranks_per_node": {}, "steady": true, "race_detector": false }},
  "deepspeed": {{ "train_batch_size": {}, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1,
                 "zero_optimization": {{ "stage": {} }},
                 "optimizer": {{ "type": "AdamW", "params": {{ "lr": 1e-3 }} }} }},
  {} "recovery": {{ "policy": "stop" }} }})",
      nodes, per_node, nodes * per_node, stage, more);
}

// Replicas of a model on 2 stages x 2 ways each.
std::string in_stages(int replicas, const std::string& more = "") {
  return fmt::format(
      R"({{ "name": "grid", "numerics": "shapes", "steps": 2, "data": {{ "synthetic": true }},
  "model": {{ "layers": 4, "width": 128, "heads": 8, "context": 32, "vocab": 512, "tied": false }},
  "world": {{ "nodes": {0}, "ranks_per_node": 4, "pipeline": 2, "tensor": 2, "steady": true, "race_detector": false }},
  "deepspeed": {{ "train_batch_size": {1}, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2,
                 "optimizer": {{ "type": "AdamW", "params": {{ "lr": 1e-3 }} }} }},
  {2} "recovery": {{ "policy": "stop" }} }})",
      replicas, 2 * replicas, more);
}

std::string straggler(int rank) {
  return fmt::format(R"("faults": [ {{ "kind": "straggler", "rank": {}, "factor": 2 }} ],)", rank);
}

// As if no fault told ranks apart. blind: nobody holds two of a class against each other.
AlikeRanks without_fates(const Scenario& scenario, bool blind) {
  Scenario other = scenario;
  other.faults.clear();
  const AlikeRanks found = alike_ranks(other);
  auto classes = std::make_shared<sim::RankClasses>(*found.classes);
  if (blind) classes->twins.clear();
  return {classes, ""};
}

// As if all did the same work.
AlikeRanks all_of_one_class(const Scenario& scenario) {
  const std::size_t ranks = std::size_t(scenario.world.ranks());
  auto classes = std::make_shared<sim::RankClasses>();
  classes->count = 1;
  classes->stand_in.assign(ranks, 0);
  classes->weight.assign(ranks, 0);
  classes->weight[0] = int(ranks);
  classes->simulated = {0};
  return {classes, ""};
}

TEST(Classes, AStragglerThatIsNotSplitIsSeen) {
  const Scenario scenario = load_scenario_text(simple(2, 8, 0, straggler(5)), "s.json");
  const RunRecord each = run_each(scenario);
  EXPECT_EQ(difference(run(scenario, {}), each), "");
  const std::string wrong = difference(run(scenario, [](const Scenario& s) { return without_fates(s, true); }), each);
  EXPECT_NE(wrong.find("virtual time"), std::string::npos) << wrong;
  EXPECT_NE(wrong.find("rank 5"), std::string::npos) << wrong;
}

TEST(Classes, ARemainderThatIsNotSplitIsSeen) {
  for (const int stage : {1, 2, 3}) {
    const Scenario scenario = load_scenario_text(simple(2, 8, stage), "s.json");
    const RunRecord each = run_each(scenario);
    EXPECT_EQ(difference(run(scenario, {}), each), "");
    const std::string wrong = difference(run(scenario, all_of_one_class), each);
    EXPECT_NE(wrong.find("rank 15"), std::string::npos) << stage << ": " << wrong;
  }
}

// Two of each class are simulated: what tells them apart is seen by the run itself, which then runs every rank.
TEST(Classes, ARunThatFindsTwinsApartRunsEveryRank) {
  const Scenario scenario = load_scenario_text(simple(2, 8, 0, straggler(15)), "s.json");
  const RunRecord mended = run(scenario, [](const Scenario& s) { return without_fates(s, false); });
  EXPECT_EQ(mended.alike->classes, 0);
  EXPECT_EQ(mended.alike->why_not, "ranks 0 and 15 did not do the same");
  EXPECT_EQ(difference(mended, run_each(scenario)), "");
}

// A replica of the model stands for others whole: one late rank makes a class of its replica.
TEST(Classes, AReplicaWithAStragglerIsOneOfItsOwn) {
  const auto loaded = [](const std::string& more) { return load_scenario_text(in_stages(8, more), "g.json"); };
  EXPECT_EQ(alike_ranks(loaded("")).classes->simulated.size(), 8U) << "two replicas of four ranks";
  const Scenario late = loaded(straggler(21));
  EXPECT_EQ(alike_ranks(late).classes->simulated.size(), 12U);
  const RunRecord each = run_each(late);
  EXPECT_EQ(difference(run(late, {}), each), "");
  const std::string wrong = difference(run(late, [](const Scenario& s) { return without_fates(s, true); }), each);
  EXPECT_NE(wrong.find("rank 21"), std::string::npos) << wrong;
  const Scenario last = loaded(straggler(31));
  const RunRecord mended = run(last, [](const Scenario& s) { return without_fates(s, false); });
  EXPECT_EQ(mended.alike->classes, 0);
  EXPECT_NE(mended.alike->why_not.find("did not do the same"), std::string::npos) << mended.alike->why_not;
  EXPECT_EQ(difference(mended, run_each(last)), "");
}

TEST(Classes, SixteenThousandRanksInStagesAndWays) {
  LoadOptions options;
  options.sets = {"world.nodes=2048", "world.ranks_per_node=8", "world.pipeline=16", "world.tensor=8",
                  "model.layers=16"};
  const RunRecord run = Simulation(load_scenario_text(in_stages(128), "g.json", options), {}).run();
  EXPECT_EQ(run.end, sim::WorldEnd::finished);
  EXPECT_EQ(run.alike->classes, 128) << run.alike->why_not;
  EXPECT_EQ(run.alike->simulated, 256U);
  EXPECT_EQ(run.ranks.size(), 16384U);
  EXPECT_EQ(run.ranks[12345].steps_committed, 2);
  EXPECT_EQ(run.traffic.pipeline.size(), 16384U);
  EXPECT_EQ(run.traffic.pipeline[12345].stage, 12) << "12345 / (128 x 8)";
}

TEST(Classes, WhatTheyCannotDoRunsRankByRankAndSaysWhy) {
  const auto why_not = [](const std::string& more, int stage = 0, const std::string& set = "") {
    LoadOptions options;
    if (!set.empty()) options.sets = {set};
    const Scenario scenario = load_scenario_text(simple(1, 4, stage, more), "s.json", options);
    const RunRecord run = Simulation(scenario, {}).run();
    EXPECT_EQ(run.alike->classes, 0) << more;
    EXPECT_EQ(run.alike->simulated, 4U) << more;
    return run.alike->why_not;
  };
  EXPECT_NE(why_not(R"("faults": [ { "kind": "slow_link", "link": { "from": 0, "to": 1 } } ],)").find("slow_link"),
            std::string::npos);
  EXPECT_NE(why_not(R"("checkpoint": { "path": "c", "every_steps": 1 },)").find("checkpoints"), std::string::npos);
  EXPECT_NE(why_not("", 1, "recovery.policy=rebuild_and_redo").find("peer_copies"), std::string::npos);
  const auto of_stages = [](const std::vector<std::string>& sets) {
    LoadOptions options;
    options.sets = sets;
    return alike_ranks(load_scenario_text(in_stages(2), "g.json", options)).why_not;
  };
  EXPECT_EQ(of_stages({"world.nodes=1", "deepspeed.train_batch_size=2"}), "there is one replica of the model");
  EXPECT_NE(of_stages({"model.tied=true"}).find("two stages share a parameter"), std::string::npos);
}

// Not asked for, it is the world's size that decides.
TEST(Classes, WorldsOfShapesBeyondAThousandRanksAreSteady) {
  const auto loaded = [](const std::vector<std::string>& sets) {
    LoadOptions options;
    options.sets = sets;
    std::string text = simple(256, 8, 1);
    text.replace(text.find("\"steady\": true, "), 16, "");
    return load_scenario_text(text, "s.json", options);
  };
  EXPECT_TRUE(loaded({}).world.steady);
  EXPECT_TRUE(loaded({"world.noise=0"}).world.steady);
  EXPECT_FALSE(loaded({"world.noise=0.02"}).world.steady);
  EXPECT_FALSE(loaded({"world.steady=false"}).world.steady);
  EXPECT_FALSE(loaded({"world.nodes=128", "deepspeed.train_batch_size=1024"}).world.steady);
  for (const Scenario& scenario : {loaded({}), loaded({"world.steady=false"})}) {
    EXPECT_EQ(load_scenario_text(to_json(scenario).dump(), "again.json").world.steady, scenario.world.steady);
  }
}

// 16,384 ranks were refused, by an estimate that counted pairs of ranks.
TEST(Classes, SixteenThousandRanksAreNotRefused) {
  for (const int stage : {0, 1, 2, 3}) {
    const Scenario scenario = load_scenario_text(simple(2048, 8, stage), "s.json");
    EXPECT_LT(estimate(scenario).bytes, 1e9) << stage;
    EXPECT_GT(estimate_rank_by_rank(scenario).bytes, 1e9) << stage;
  }
  const RunRecord run = Simulation(load_scenario_text(simple(2048, 8, 0), "s.json"), {}).run();
  EXPECT_EQ(run.end, sim::WorldEnd::finished);
  EXPECT_EQ(run.alike->classes, 1);
  EXPECT_EQ(run.alike->simulated, 2U);
  EXPECT_EQ(run.ranks.size(), 16384U);
  EXPECT_EQ(run.ranks.back().steps_committed, 2);
}

}  // namespace
}  // namespace seeksim::harness
