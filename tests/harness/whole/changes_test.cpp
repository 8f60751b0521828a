// Changes of the configuration in the middle of a training, and recovery.rollback, by whole runs.
#include <gtest/gtest.h>

#include <set>

#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

const std::string kRolledBack = paths::source_dir() + "/scenarios/numbers/change_rolled_back.json";

constexpr const char* kNoRollback =
    R"(recovery={"policy":"rebuild_and_redo","divergence":{"factor":1.25,"window_steps":5}})";
constexpr const char* kNoRule = R"(recovery={"policy":"rebuild_and_redo"})";

struct Reported {
  Ran ran;
  Json report;
};

Reported run(const std::string& file, std::vector<std::string> sets, const std::vector<std::string>& more = {}) {
  TemporaryFolder folder;
  std::vector<std::string> arguments = {"run", file, "--report", folder.file("r.json"), "--no-names"};
  for (const std::string& one : sets) arguments.insert(arguments.end(), {"--set", one});
  arguments.insert(arguments.end(), more.begin(), more.end());
  Reported out{seeksim(arguments), {}};
  out.report = Json::parse(read_all(folder.file("r.json")));
  return out;
}

TEST(Rollback, ReturnsToTheConfigurationBeforeTheChange) {
  const Reported done = run(kRolledBack, {});
  ASSERT_EQ(done.ran.status, 0) << done.ran.out << done.ran.err;
  ASSERT_EQ(done.report["divergences"].size(), 1u);
  EXPECT_EQ(done.report["divergences"][0]["undoes_change"], 13);
  const Json& lr = done.report["lr"];
  ASSERT_EQ(lr.size(), 24u);
  EXPECT_EQ(lr[5], 3e-3);
  for (std::size_t step = 6; step < lr.size(); ++step) EXPECT_EQ(lr[step], 1.5e-3) << step;
  EXPECT_NE(done.ran.out.find("the change of step 13 is undone"), std::string::npos) << done.ran.out;
}

// The checkpoint before the change is there though only one is kept, and others have been written since.
TEST(Rollback, FindsTheCheckpointBeforeTheChange) {
  const Reported done = run(kRolledBack, {"checkpoint.every_steps=1"});
  ASSERT_EQ(done.ran.status, 0) << done.ran.out << done.ran.err;
  const std::int64_t step = done.report["divergences"][0]["step"].get<std::int64_t>();
  EXPECT_GT(step, 14) << "a checkpoint was written after the change";
  EXPECT_EQ(done.report["recoveries"][0]["steps_lost"], step - 13);
}

TEST(Rollback, WithoutItTheRunStops) {
  const Reported done = run(kRolledBack, {kNoRollback, "golden={}"});
  EXPECT_EQ(done.ran.status, 1) << done.ran.out;
  EXPECT_NE(done.ran.out.find("diverged"), std::string::npos) << done.ran.out;
}

TEST(Rollback, LeavesAChangeAloneThatHeldForLongEnough) {
  const Reported late = run(kRolledBack, {"recovery.rollback.steps=1"});
  EXPECT_EQ(late.ran.status, 1) << late.ran.out;
  EXPECT_FALSE(late.report["divergences"][0].contains("undoes_change")) << late.report["divergences"];
}

TEST(Rollback, AGoldenThatUndoesAChangeIsNoneOfARunThatKeptIt) {
  const Reported kept = run(kRolledBack, {"recovery.divergence.factor=1000000", "checks=[\"golden:bitwise\"]"});
  EXPECT_EQ(kept.ran.status, 1) << kept.ran.out;
  EXPECT_NE(kept.ran.out.find("which this run did not undo"), std::string::npos) << kept.ran.out;
}

// The bits of the change come from the change alone: on four ranks as on one, and as the reference has it.
TEST(Changes, GiveTheSameBitsOnAnyLayoutAndThoseOfTheReference) {
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", small_text_with(8, ""));
  const std::vector<std::string> held = {"checks=[\"golden:bitwise\",\"reference\"]"};
  const auto with = [&](const std::string& changes) {
    std::vector<std::string> sets = held;
    sets.push_back("changes=" + changes);
    return run(file, sets);
  };
  std::set<std::string> digests;
  for (const char* changes : {"[]", R"([{"step":1,"lr_scale":0.5}])", R"([{"step":1,"gradient_clipping":0.01}])",
                              R"([{"step":1,"lr_scale":0.5},{"step":2,"gradient_clipping":0.01}])"}) {
    const Reported done = with(changes);
    EXPECT_EQ(done.ran.status, 0) << changes << done.ran.out << done.ran.err;
    EXPECT_TRUE(digests.insert(done.report["params_digest"].get<std::string>()).second) << changes;
  }
}

// A checkpoint goes on with a change that begins there; one that would rewrite its past is refused.
TEST(Changes, MayBeAddedWhereACheckpointGoesOn) {
  TemporaryFolder folder;
  const std::vector<std::string> common = {"golden={}", kNoRule,

                                           "checks=[\"ranks_agree\"]", "storage=real", "checkpoint.every_steps=4"};
  std::vector<std::string> first = common, on = common, past = common;
  first.insert(first.end(), {"changes=[]", "steps=8"});
  const Reported begun = run(kRolledBack, first, {"--out", folder.file("out")});
  ASSERT_EQ(begun.ran.status, 0) << begun.ran.out << begun.ran.err;
  past.insert(past.end(), {"changes=[{\"step\":3,\"lr_scale\":0.5}]", "steps=10", "checkpoint.resume=true"});
  const Reported refused = run(kRolledBack, past, {"--out", folder.file("out")});
  EXPECT_NE(refused.ran.status, 0) << refused.ran.out;
  on.insert(on.end(), {"changes=[{\"step\":8,\"lr_scale\":0.5}]", "steps=10", "checkpoint.resume=true"});
  const Reported gone_on = run(kRolledBack, on, {"--out", folder.file("out")});
  ASSERT_EQ(gone_on.ran.status, 0) << gone_on.ran.out << gone_on.ran.err;
  EXPECT_EQ(gone_on.report["resumed_from"], 8);
  EXPECT_EQ(gone_on.report["lr"].back(), 1.5e-3);
}

// The next job begins with a checkpoint that says so.
TEST(Rollback, IsStillDoneInTheNextJob) {
  TemporaryFolder folder;
  const std::vector<std::string> real = {"storage=real", "checkpoint.at_end=true"};
  const Reported first = run(kRolledBack, real, {"--out", folder.file("out")});
  ASSERT_EQ(first.ran.status, 0) << first.ran.out << first.ran.err;
  std::vector<std::string> longer = real;
  longer.insert(longer.end(), {"steps=27", "checkpoint.resume=true", "checks=[\"ranks_agree\"]"});
  const Reported next = run(kRolledBack, longer, {"--out", folder.file("out")});
  ASSERT_EQ(next.ran.status, 0) << next.ran.out << next.ran.err;
  EXPECT_EQ(next.report["resumed_from"], 24);
  EXPECT_EQ(next.report["lr"].back(), 1.5e-3);
}

TEST(Changes, AreRefusedWhereTheyMakeNoSense) {
  const std::vector<std::pair<const char*, const char*>> wrong = {
      {"changes=[{\"step\":3}]", "changes nothing"},
      {"changes=[{\"step\":3000,\"lr_scale\":2}]", "no step 3000"},
      {"changes=[{\"step\":5,\"lr_scale\":2},{\"step\":5,\"lr_scale\":3}]", "order of their steps"},
      {"changes=[{\"step\":0,\"lr_scale\":2}]", "changes"},
      {"changes=[{\"step\":2,\"lr_scale\":-1}]", "lr_scale"},
      {"golden.undo_changes=[2]", "no change begins at step 2"},
      {"recovery.rollback={}", "divergence"}};
  for (const auto& [set, words] : wrong)
    EXPECT_NE(problems_of(small_text(), {set}).find(words), std::string::npos)
        << set << problems_of(small_text(), {set});
}

}  // namespace
}  // namespace seeksim::harness
