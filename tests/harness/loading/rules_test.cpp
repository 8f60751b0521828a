// Schedules, placements and recovery policies that a user adds: named by scenarios, refused where they cannot be,
// written back, and judged as the built-in ones. What they do in a program of the user's own: tests/package/.
#include <stdexcept>

#include "harness/loading/extensions.h"
#include "harness/loading/load.h"
#include "harness/loading/scenario_json.h"
#include "harness/run/run.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;
using Kind = runtime::InstructionKind;

// All forward, then back from the last one. `skips`: never the first.
class LastFirst final : public runtime::ScheduleRule {
 public:
  explicit LastFirst(bool skips) : skips_(skips) {}
  std::vector<runtime::Instruction> order(const runtime::PipelineShape& shape, int) const override {
    std::vector<runtime::Instruction> order;
    for (int m = 0; m < shape.micro_batches; ++m) order.push_back({Kind::forward, m});
    for (int m = shape.micro_batches - 1; m >= (skips_ ? 1 : 0); --m) order.push_back({Kind::backward, m});
    return order;
  }

 private:
  bool skips_;
};

// The first shard has three quarters of all that is trained, the last one nothing where there are more than two.
class FirstHasMost final : public runtime::PlacementRule {
 public:
  runtime::Index begin(const runtime::Parameters& parameters, int shard, int shards) const override {
    const runtime::Index all = parameters.trainable_size();
    return shard + 1 == shards && shards > 2 ? all : all * 3 / 4;
  }
};

// Its second shard would begin before all elements.
class BeginsNowhere final : public runtime::PlacementRule {
 public:
  runtime::Index begin(const runtime::Parameters&, int shard, int) const override { return shard == 2 ? -1 : 0; }
};

class GivesUp final : public runtime::RecoveryRule {
 public:
  runtime::Decision decide(const runtime::Failure& failure, const runtime::Decision& standard) const override {
    runtime::Decision decision = standard;
    decision.stop = !failure.agreement.dead.empty();
    if (decision.stop) decision.why = "somebody died";
    return decision;
  }
};

// All shards go to the first member, and from there to all.
class ByTheFirst final : public runtime::GatherRule {
 public:
  explicit ByTheFirst(bool forgets) : forgets_(forgets) {}
  std::vector<runtime::GatherRound> rounds(int members) const override {
    std::vector<runtime::GatherRound> all(2);
    for (int from = 1; from < members; ++from) all[0].push_back({from, from, 0});
    for (int to = 1; to < members; ++to)
      for (int shard = 0; shard < members - forgets_; ++shard)
        if (shard != to) all[1].push_back({shard, 0, to});
    return all;
  }

 private:
  bool forgets_;
};

void add_rules() {
  static const bool added = [] {
    add_schedule("own_last_first", std::make_shared<LastFirst>(false));
    add_schedule("own_skips", std::make_shared<LastFirst>(true));
    add_placement("own_first_has_most", std::make_shared<FirstHasMost>());
    add_placement("own_begins_nowhere", std::make_shared<BeginsNowhere>());
    add_collective("own_by_the_first", std::make_shared<ByTheFirst>(false));
    add_collective("own_forgets", std::make_shared<ByTheFirst>(true));
    add_recovery_policy("own_gives_up", std::make_shared<GivesUp>());
    return true;
  }();
  ASSERT_TRUE(added);
}

Outcome run_with(const std::vector<std::string>& sets) {
  LoadOptions load;
  load.sets = {"faults=[]", R"(checks=["golden:bitwise","golden:gradients"])"};
  load.sets.insert(load.sets.end(), sets.begin(), sets.end());
  return run_text(small_text(), "s.json", load);
}

const std::vector<std::string> kTwoStages = {"world.pipeline=2", "model.layers=2", "world.schedule=own_last_first"};

TEST(Rules, AScheduleKeepsTheBitsAndShowsItsName) {
  add_rules();
  const Outcome own = run_with(kTwoStages);
  EXPECT_EQ(own.status, ExitStatus::as_expected) << own.report.dump(1);
  EXPECT_EQ(own.report.at("pipeline").at("schedule"), "own_last_first");
  const Ran listed = seeksim({"list", "schedule", "--schedule", "own_last_first", "--pipeline", "2"});
  EXPECT_EQ(listed.status, 0) << listed.err;
  EXPECT_NE(listed.out.find("own_last_first: F forward 1"), std::string::npos) << listed.out;
}

TEST(Rules, OneThatCannotBeRunIsRefusedWithTheReason) {
  add_rules();
  const std::string why = problems_of(small_text(), {"world.pipeline=2", "model.layers=2", "world.schedule=own_skips"});
  EXPECT_NE(why.find("own_skips with 1 micro-batch: stage 0: micro-batch 0 never goes backward"), std::string::npos)
      << why;
}

TEST(Rules, APlacementKeepsTheBitsAtEveryStageAndItsFormulas) {
  add_rules();
  for (const char* stage : {"1", "2", "3"}) {
    const std::vector<std::string> sets = {"world.placement=own_first_has_most",
                                           std::string("deepspeed.zero_optimization.stage=") + stage,
                                           R"(checks=["golden:bitwise","memory_formula","traffic_formula"])"};
    const Outcome own = run_with(sets);
    EXPECT_EQ(own.status, ExitStatus::as_expected) << stage << own.report.dump(1);
    const Outcome even = run_with({sets[1], sets[2]});
    EXPECT_EQ(own.report.at("params_digest"), even.report.at("params_digest")) << stage;
    EXPECT_NE(own.report.at("fingerprint"), even.report.at("fingerprint")) << stage << ": nobody heeded it";
    std::vector<std::string> dies = sets;
    dies.back() = R"(checks=["golden:bitwise"])";
    dies.emplace_back(R"(faults=[{"kind":"rank_crash","rank":0,"step":1,"op":"vote"}])");
    const Outcome after = run_with(dies);
    EXPECT_EQ(after.status, ExitStatus::as_expected) << stage << after.report.dump(1);
    // The formulas are seen to fail: they ask the rule, and a rank that keeps all moments has more.
    std::vector<std::string> full = sets;
    full.emplace_back("bug=full_optimizer_state");
    EXPECT_EQ(run_with(full).status, ExitStatus::check_failed) << stage;
  }
}

TEST(Rules, APlacementIsRefusedWhereNothingCouldHeedIt) {
  add_rules();
  const std::string at = "world.placement=own_first_has_most";
  EXPECT_NE(problems_of(small_text(), {at}).find("ZeRO stage 0 has no shards"), std::string::npos);
  EXPECT_NE(problems_of(small_text(), {at, "world.pipeline=2", "model.layers=2", "deepspeed.zero_optimization.stage=1"})
                .find("where a model is cut into stages"),
            std::string::npos);
  const std::string why =
      problems_of(small_text(), {"world.placement=own_begins_nowhere", "deepspeed.zero_optimization.stage=1"});
  EXPECT_NE(why.find("own_begins_nowhere: shard 2 of 4 begins at element -1, outside [0, "), std::string::npos) << why;
}

TEST(Rules, ARecoveryPolicyDecides) {
  add_rules();
  const std::string death = R"(faults=[{"kind":"rank_crash","rank":1,"step":1,"op":"vote"}])";
  EXPECT_EQ(run_with({death}).status, ExitStatus::as_expected);
  const Outcome own = run_with({death, "recovery.policy=own_gives_up"});
  EXPECT_EQ(own.status, ExitStatus::check_failed);
  EXPECT_NE(own.report.dump().find("somebody died"), std::string::npos) << own.report.dump(1);
}

TEST(Rules, WordsThatNobodyAddedAreNamedWithThoseThatThereAre) {
  add_rules();
  for (const auto& [set, hint] : {std::pair<const char*, const char*>{"world.schedule=own_lst_first", "own_last_first"},
                                  {"world.schedule=own", "own_last_first"},
                                  {"world.placement=own_first", "own_first_has_most"},
                                  {"recovery.policy=own_give_up", "own_gives_up"},
                                  {"recovery.policy=retry", "retry_step"}}) {
    const std::string why = problems_of(small_text(), {set});
    EXPECT_NE(why.find("is not one of"), std::string::npos) << set << ": " << why;
    EXPECT_NE(why.find(hint), std::string::npos) << set << ": " << why;
  }
}

TEST(Rules, AreWrittenAsTheyWereNamed) {
  add_rules();
  LoadOptions load;
  load.sets = {"world.placement=own_first_has_most", "recovery.policy=own_gives_up",
               "deepspeed.zero_optimization.stage=1"};
  const Json json = to_json(load_scenario_text(small_text(), "s.json", load));
  EXPECT_EQ(json.at("world").at("placement"), "own_first_has_most");
  EXPECT_EQ(json.at("recovery").at("policy"), "own_gives_up");
  load.sets = kTwoStages;
  EXPECT_EQ(to_json(load_scenario_text(small_text(), "s.json", load))["world"]["schedule"], "own_last_first");
}

TEST(Rules, AGatherOfOnesOwnKeepsTheBitsAndItsTrafficIsKnown) {
  add_rules();
  for (const char* stage : {"0", "1", "2", "3"}) {
    const Outcome ran =
        run_with({"world.all_gather=own_by_the_first", "world.ranks_per_node=3", "batch_arithmetic=by_samples",
                  std::string("deepspeed.zero_optimization.stage=") + stage,
                  "deepspeed.zero_optimization.stage3_param_persistence_threshold=0",
                  R"(checks=["golden:bitwise","traffic_formula","collectives_match"])"});
    EXPECT_EQ(ran.status, ExitStatus::as_expected) << ran.report.dump(1);
  }
}

TEST(Rules, AGatherThatLeavesAShardOutOrIsUnknownIsRefused) {
  add_rules();
  const auto refused = [](const std::string& name) {
    const Outcome ran = run_with({"world.all_gather=" + name, "world.ranks_per_node=4", "batch_arithmetic=by_samples"});
    EXPECT_EQ(ran.status, ExitStatus::bad_input);
    return ran.report.dump();
  };
  EXPECT_NE(refused("own_forgets").find("is never given shard"), std::string::npos);
  EXPECT_NE(refused("rings").find("Did you mean"), std::string::npos);
}

TEST(Rules, NamesThatAreTakenAndNothingAreRefused) {
  add_rules();
  const auto schedule = std::make_shared<LastFirst>(false);
  for (const char* name : {"1f1b", "own", "own_last_first", "no name"})
    EXPECT_THROW(add_schedule(name, schedule), std::invalid_argument) << name;
  EXPECT_THROW(add_schedule("own_null", nullptr), std::invalid_argument);
  EXPECT_THROW(add_placement("even", std::make_shared<FirstHasMost>()), std::invalid_argument);
  for (const char* name : {"direct", "ring", "doubling", "own_forgets"})
    EXPECT_THROW(add_collective(name, std::make_shared<ByTheFirst>(false)), std::invalid_argument) << name;
  EXPECT_THROW(add_recovery_policy("stop", std::make_shared<GivesUp>()), std::invalid_argument);
}

}  // namespace
}  // namespace seeksim::harness
