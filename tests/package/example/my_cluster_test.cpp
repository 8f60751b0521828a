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
    scenario.erase("checkpointing");
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

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  add_everything();
  return RUN_ALL_TESTS();
}
