// What one would keep in one's own CI: a check, a fault, a model and a property of one's own, each seen to fail.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <seeksim/seeksim.h>

#include "additions.h"

namespace {

using namespace seeksim::harness;
namespace property = seeksim::property;

// Four ranks on two machines; `more` are further keys, `set` as --set does.
Outcome run(const std::string& more, const std::vector<std::string>& set = {}) {
  const std::string text = R"({ "name": "mine", "data": { "synthetic": true }, "steps": 6,
    "model": { "layers": 2, "width": 16, "heads": 2, "context": 8, "vocab": 64 },
    "world": { "nodes": 2, "ranks_per_node": 2 },
    "deepspeed": { "train_batch_size": 8, "zero_optimization": { "stage": 2 } })" +
                           more + " }";
  LoadOptions load;
  load.sets = set;
  return run_text(text, "mine.json", load);
}

std::vector<std::string> red(const Outcome& outcome) {
  std::vector<std::string> names;
  for (const Json& check : outcome.report.value("checks", Json::array()))
    if (!check["ok"]) names.push_back(check["name"]);
  return names;
}

TEST(MyCluster, ACheckOfOnesOwnHoldsAndFails) {
  EXPECT_EQ(run(R"(, "checks": ["mean_step_s_at_most:0.5"])").status, ExitStatus::as_expected);
  const Outcome slow = run(R"(, "checks": ["mean_step_s_at_most:1e-9"])");
  EXPECT_EQ(slow.status, ExitStatus::check_failed);
  EXPECT_EQ(red(slow), std::vector<std::string>{"mean_step_s_at_most:1e-9"});
  EXPECT_EQ(run(R"(, "checks": ["mean_step_s_at_most:soon"])").status, ExitStatus::bad_input);
}

// A crash right after a checkpoint: the listing still lacks it when the job is back, so an older one has to do, and the
// bits are the golden's all the same.
TEST(MyCluster, ALateListingCostsStepsAndNoBits) {
  const std::string crash = R"(,
    "checkpoint": { "path": "checkpoints", "every_steps": 1, "async": false, "keep": 3 },
    "recovery": { "policy": "stop", "restarts": 2, "restart_s": 1 },
    "faults": [ { "kind": "rank_crash", "rank": 1, "step": 4, "op": "vote" } ],
    "checks": ["golden:bitwise", "restarts:1"])";
  const Outcome plain = run(crash);
  EXPECT_EQ(plain.status, ExitStatus::as_expected) << plain.report.dump(1);
  const Outcome late = run(crash, {R"(own_faults=[{"name":"lagging_listing","lag_s":3600}])"});
  EXPECT_EQ(late.status, ExitStatus::as_expected) << late.report.dump(1);
  const auto lost = [](const Outcome& outcome) { return outcome.report["attempts"][1]["steps_lost"].get<int>(); };
  EXPECT_GT(lost(late), lost(plain));

  // One that never fires is red, and wrong parameters are refused.
  const Outcome idle = run("", {R"(own_faults=[{"name":"lagging_listing","lag_s":3600}])"});
  EXPECT_EQ(red(idle), std::vector<std::string>{"faults_fired"});
  EXPECT_EQ(run("", {R"(own_faults=[{"name":"lagging_listing","lag_s":-1}])"}).status, ExitStatus::bad_input);
  EXPECT_EQ(run("", {R"(own_faults=[{"name":"lagging_lists"}])"}).status, ExitStatus::bad_input);
}

TEST(MyCluster, AModelOfOnesOwnHasItsBitsAtEveryStageAndAfterACrash) {
  for (const int stage : {0, 1, 2, 3}) {
    const std::string more = fmt::format(R"(, "checks": ["golden:bitwise", "golden:gradients"])");
    const std::vector<std::string> set = {"model.family=mlp",
                                          fmt::format("deepspeed.zero_optimization.stage={}", stage)};
    const Outcome calm = run(more, set);
    EXPECT_EQ(calm.status, ExitStatus::as_expected) << stage << ' ' << calm.report.dump(1);
    std::vector<std::string> crash = set;
    crash.push_back(R"(faults=[{"kind":"rank_crash","rank":3,"step":2,"op":"vote"}])");
    crash.push_back(R"(recovery={"policy":"rebuild_and_redo"})");
    const Outcome after = run(more, crash);
    EXPECT_EQ(after.status, ExitStatus::as_expected) << stage << ' ' << after.report.dump(1);
  }
  EXPECT_EQ(run("", {"model.family=mlp", "deepspeed.bf16={\"enabled\":true}"}).status, ExitStatus::bad_input);
}

property::Property of_family(const char* family) {
  property::Property mlps;
  mlps.name = family;
  mlps.wanted.precision = "fp32";
  mlps.cases = 40;
  mlps.change = [family](Json& scenario) {
    const Json drawn = scenario["model"];
    scenario["model"] = {{"family", family}, {"heads", 1}};
    for (const char* not_for_it : {"checkpointing", "evaluation", "curriculum"}) scenario.erase(not_for_it);
    scenario["data"].erase("packing");
    scenario["deepspeed"].erase("activation_checkpointing");
    for (const char* size : {"layers", "width", "context", "vocab"}) scenario["model"][size] = drawn[size];
  };
  return mlps;
}

TEST(MyCluster, TheBitsOfThatModelDependOnNoLayout) {
  const property::Result result = property::check(of_family("mlp"));
  EXPECT_TRUE(result.held) << result.failure;
  EXPECT_GT(result.cases, 0);
}

// The oracle is seen to fail: one sum in an order that follows the batch's cut is found, and shrunk.
TEST(MyCluster, AMistakeInThatModelIsFound) {
  const property::Result result = property::check(of_family("mistaken_mlp"));
  EXPECT_FALSE(result.held);
  EXPECT_NE(result.failure.find("golden"), std::string::npos) << result.failure;
}

// ---- rules ----------------------------------------------------------------------------------------------------------

const std::string kGolden = R"(, "checks": ["golden:bitwise", "golden:gradients"])";

TEST(MyCluster, AScheduleOfOnesOwnChangesOrderAndNoBit) {
  const std::vector<std::string> two_stages = {"world.pipeline=2", "deepspeed.zero_optimization.stage=1",
                                               "deepspeed.train_micro_batch_size_per_gpu=1"};
  const auto with = [&](const char* schedule) {
    std::vector<std::string> set = two_stages;
    set.push_back(fmt::format("world.schedule={}", schedule));
    return run(kGolden, set);
  };
  const Outcome plain = with("1f1b");
  for (const char* schedule : {"eager_1f1b", "last_first"}) {
    const Outcome own = with(schedule);
    EXPECT_EQ(own.status, ExitStatus::as_expected) << schedule << own.report.dump(1);
    EXPECT_EQ(own.report["params_digest"], plain.report["params_digest"]);
    EXPECT_NE(own.report["fingerprint"], plain.report["fingerprint"]) << "the same operations in the same order";
  }
  // Stages that would wait for each other are no scenario.
  const Outcome refused = with("stuck");
  EXPECT_EQ(refused.status, ExitStatus::bad_input);
  EXPECT_NE(refused.report.dump().find("the stages wait for each other"), std::string::npos) << refused.report.dump(1);
}

TEST(MyCluster, APlacementOfOnesOwnChangesMemoryAndNoBit) {
  for (const int stage : {1, 2, 3}) {
    const std::vector<std::string> set = {fmt::format("deepspeed.zero_optimization.stage={}", stage)};
    const Outcome even = run(kGolden, set);
    std::vector<std::string> own_set = set;
    own_set.push_back("world.placement=first_is_larger");
    const Outcome own =
        run(R"(, "checks": ["golden:bitwise", "golden:gradients", "memory_formula", "partition"])", own_set);
    EXPECT_EQ(own.status, ExitStatus::as_expected) << stage << own.report.dump(1);
    EXPECT_EQ(own.report["params_digest"], even.report["params_digest"]);
    own_set.push_back(R"(faults=[{"kind":"rank_crash","rank":0,"step":2,"op":"vote"}])");
    EXPECT_EQ(run(kGolden, own_set).status, ExitStatus::as_expected) << stage << ": who had the most dies";
  }
  EXPECT_EQ(run("", {"world.placement=first_is_larger", "deepspeed.zero_optimization.stage=0"}).status,
            ExitStatus::bad_input);
}

TEST(MyCluster, ACollectiveOfOnesOwnChangesTimeAndNoBit) {
  for (const int stage : {0, 1, 2, 3}) {
    std::vector<std::string> set = {fmt::format("deepspeed.zero_optimization.stage={}", stage)};
    const Outcome direct = run(kGolden, set);
    set.emplace_back("world.all_gather=both_ways");
    const Outcome own = run(R"(, "checks": ["golden:bitwise", "golden:gradients", "traffic_formula"])", set);
    EXPECT_EQ(own.status, ExitStatus::as_expected) << stage << own.report.dump(1);
    EXPECT_EQ(own.report["params_digest"], direct.report["params_digest"]);
    if (stage > 0) {  // a sum's second half is no message of its own here
      EXPECT_NE(own.report["virtual_s"], direct.report["virtual_s"]) << stage;
    }
    set.emplace_back(R"(faults=[{"kind":"rank_crash","rank":1,"step":2,"op":"vote"}])");
    EXPECT_EQ(run(kGolden, set).status, ExitStatus::as_expected) << stage;
  }
  EXPECT_EQ(run("", {"world.all_gather=one_round_short"}).status, ExitStatus::bad_input);
}

TEST(MyCluster, APolicyOfOnesOwnDecidesWhoGoesOn) {
  const std::string crash = R"(, "checks": ["golden:bitwise"],
    "faults": [{ "kind": "rank_crash", "rank": 3, "step": 2, "op": "vote" }])";
  const Outcome own = run(crash, {"recovery.policy=whole_machines", "recovery.peer_copies=2"});
  EXPECT_EQ(own.status, ExitStatus::as_expected) << own.report.dump(1);
  EXPECT_EQ(own.report["recoveries"][0]["evicted"], Json({2, 3})) << own.report["recoveries"].dump(1);

  const Outcome wrong = run(crash, {"recovery.policy=with_the_dead"});
  EXPECT_EQ(wrong.status, ExitStatus::check_failed);
  EXPECT_NE(wrong.report.dump().find("goes on with rank 3, which is gone"), std::string::npos) << wrong.report.dump(1);
}

property::Property of_schedule(const char* schedule) {
  property::Property of;
  of.name = schedule;
  of.cases = 40;
  of.wanted.parallel = true;
  of.change = [schedule](Json& scenario) {
    // Not every model can be cut into tensor ways too; and one rank has nobody to agree with.
    for (const char* key : {"tensor", "sequence_parallel"}) scenario["world"].erase(key);
    scenario["checks"] = {"golden:bitwise", "golden:gradients"};
    if (scenario["world"].value("pipeline", 1) > 1) scenario["world"]["schedule"] = schedule;
  };
  return of;
}

TEST(MyCluster, TheBitsDependOnNoScheduleOfOnesOwn) {
  const property::Result result = property::check(of_schedule("eager_1f1b"));
  EXPECT_TRUE(result.held) << result.failure;
  EXPECT_GT(result.cases, 0);
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  add_everything();
  return RUN_ALL_TESTS();
}
