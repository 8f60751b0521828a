// Sweeps: which rows come out, that a wrong row is red and named, and that one crash is one row's.
#include "harness/scenario/sweep.h"

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <set>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/loading/load.h"
#include "harness/run/run.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

// The small scenario without its fault, with keys of a sweep.
std::string swept(const std::string& keys) {
  const std::string text = small_text();
  return text.substr(0, text.find("  \"faults\"")) + "  " + keys + ",\n  \"checks\": [ \"golden:bitwise\" ]\n}\n";
}

Sweep sweep_of(const std::string& keys) { return load_scenario_text(swept(keys), "s.json").sweep; }

TEST(Sweeps, AProductHasEveryCombinationTheLastAxisFastest) {
  const auto rows = rows_of(sweep_of(R"("sweep": { "seed": [1, 2], "training_seed": [5, 6, 7] })"), 1);
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[0], (Settings{{"seed", "1"}, {"training_seed", "5"}}));
  EXPECT_EQ(rows[1], (Settings{{"seed", "1"}, {"training_seed", "6"}}));
  EXPECT_EQ(rows[5], (Settings{{"seed", "2"}, {"training_seed", "7"}}));
}

TEST(Sweeps, ARangeStandsForItsNumbers) {
  EXPECT_EQ(rows_of(sweep_of(R"("sweep": { "steps": { "range": [1, 4] } })"), 1),
            rows_of(sweep_of(R"("sweep": { "steps": [1, 2, 3, 4] })"), 1));
}

TEST(Sweeps, AListIsAUnionInWhichARowIsThereOnce) {
  const auto rows =
      rows_of(sweep_of(R"("sweep": [ { "seed": [1, 2] }, { "seed": [2, 3] }, { "training_seed": [4] } ])"), 1);
  EXPECT_EQ(rows.size(), 4u);
}

TEST(Sweeps, SkippedRowsAreLeftOut) {
  const std::string keys =
      R"("sweep": { "seed": [1, 2], "training_seed": [5, 6] }, "sweep_skip": [ { "seed": 1, "training_seed": 6 } ])";
  const auto rows = rows_of(sweep_of(keys), 1);
  ASSERT_EQ(rows.size(), 3u);
  for (const Settings& row : rows) EXPECT_NE(row, (Settings{{"seed", "1"}, {"training_seed", "6"}}));
}

TEST(Sweeps, PairwiseLetsEveryTwoValuesMeet) {
  const std::string axes =
      R"("sweep": { "seed": [1, 2, 3, 4], "training_seed": [1, 2, 3], "steps": [1, 2, 3], "decay": ["all", "matrices"] })";
  const Sweep all = sweep_of(axes),
              pairwise = sweep_of(axes + R"(, "mode": "pairwise", "sweep_skip": [ { "seed": 1, "steps": 2 } ])");
  const auto rows = rows_of(pairwise, 1);
  EXPECT_LT(rows.size(), 24u);
  EXPECT_EQ(rows_of(all, 1).size(), 72u);
  std::set<std::pair<std::string, std::string>> met;
  for (const Settings& row : rows) {
    for (const auto& [a, x] : row) {
      for (const auto& [b, y] : row) met.insert({a + x, b + y});
    }
  }
  for (const SweepAxis& a : all.blocks[0]) {
    for (const SweepAxis& b : all.blocks[0]) {
      if (a.key == b.key) continue;
      for (const std::string& x : a.values) {
        for (const std::string& y : b.values) {
          const bool skipped =
              (a.key + x == "seed1" && b.key + y == "steps2") || (b.key + y == "seed1" && a.key + x == "steps2");
          EXPECT_EQ(met.count({a.key + x, b.key + y}), skipped ? 0u : 1u) << a.key << x << ' ' << b.key << y;
        }
      }
    }
  }
}

TEST(Sweeps, ASampleIsDrawnByTheSeed) {
  const Sweep sweep = sweep_of(
      R"("sweep": { "seed": [1, 2, 3, 4, 5, 6, 7, 8], "training_seed": [1, 2, 3, 4, 5, 6] }, "mode": { "sample": 5 })");
  const auto rows = rows_of(sweep, 1);
  EXPECT_EQ(rows.size(), 5u);
  EXPECT_EQ(std::set<Settings>(rows.begin(), rows.end()).size(), 5u);
  EXPECT_EQ(rows_of(sweep, 1), rows);
  EXPECT_NE(rows_of(sweep, 2), rows);
}

TEST(Sweeps, SurviveBeingWrittenAndRead) {
  const Scenario first = load_scenario_text(
      swept(R"("sweep": [ { "world.nodes": [1, 3], "seed": [1] }, { "decay": ["all"] } ], "mode": { "sample": 3 }, )"
            R"("sweep_skip": [ { "world.nodes": 3 } ], "golden": { "shared": true })"),
      "s.json");
  EXPECT_TRUE(first.by_samples);
  const Scenario second = load_scenario_text(to_json(first).dump(), "s.json");
  EXPECT_EQ(second.sweep, first.sweep);
  EXPECT_TRUE(second.golden.shared);
  EXPECT_EQ(to_json(second), to_json(first));
}

TEST(Sweeps, WhereTheWorldVariesTheBatchIsCutBySamples) {
  const std::string keys = R"("sweep": { "world.ranks_per_node": [1, 3] })";
  EXPECT_EQ(problems_of(swept(keys)), "");
  const Settings row = {{"world.ranks_per_node", "3"}};
  LoadOptions options;
  options.row = &row;
  const Scenario s = load_scenario_text(swept(keys), "s.json", options);
  EXPECT_TRUE(s.sweep.empty());
  EXPECT_EQ(s.world.ranks(), 6);
  EXPECT_EQ(s.train.definition.global_batch, 8);
  EXPECT_EQ(s.accumulation, 2) << "two samples of the rank that has most, one a micro-batch";
  EXPECT_NE(problems_of(swept(R"("sweep": { "seed": [1] })"), {"world.ranks_per_node=3"}).find("8 != 1 * 1 * 6"),
            std::string::npos)
      << "DeepSpeed's arithmetic is demanded where the world stays";
}

// ---- runs ----------------------------------------------------------------------------------------------------------

struct Swept {
  TemporaryFolder folder;
  Ran ran;
  Json report;
  std::string junit;
  Swept(const std::string& keys, std::vector<std::string> arguments = {}) {
    const std::string file = folder.write("small.json", swept(keys));
    arguments.insert(arguments.begin(), {"run", file, "--report", folder.file("r"), "--junit", folder.file("j")});
    ran = seeksim(arguments);
    report = Json::parse(read_all(folder.file("r")));
    junit = read_all(folder.file("j"));
  }
};

TEST(SweepRuns, AllRowsShareOneGolden) {
  const Swept s(R"("sweep": { "world.ranks_per_node": [1, 3], "deepspeed.zero_optimization.stage": [0, 3] })");
  EXPECT_EQ(s.ran.status, 0) << s.ran.out << s.ran.err;
  EXPECT_EQ(s.report["verdict"], "pass");
  ASSERT_EQ(s.report["rows"].size(), 4u);
  ASSERT_EQ(s.report["goldens"].size(), 1u);
  EXPECT_EQ(s.report["goldens"][0]["rows"], 4);
  for (const Json& row : s.report["rows"]) {
    EXPECT_EQ(row["verdict"], "pass");
    EXPECT_EQ(row["params_digest"], s.report["rows"][0]["params_digest"]);
    for (const char* key : {"settings", "command", "loss", "grad_norm", "checks", "comm", "memory", "fingerprint"})
      EXPECT_TRUE(row.contains(key)) << key;
  }
  EXPECT_EQ(s.report["rows"][3]["settings"]["deepspeed.zero_optimization.stage"], 3);
  EXPECT_EQ(s.report["rows"][3]["world"]["ranks"], 6);
  EXPECT_NE(s.junit.find("tests=\"4\" failures=\"0\" errors=\"0\""), std::string::npos) << s.junit;
}

// As under mpirun: whatever does not fit is left out, keeps its number, and is counted.
TEST(SweepRuns, RowsThatAreTooLargeAreLeftOutAndCounted) {
  TemporaryFolder folder;
  const std::string file = folder.write(
      "s.json", swept(R"("batch_arithmetic": "by_samples", "sweep": { "world.ranks_per_node": [4, 1, 3, 2] })"));
  RunOptions options;
  options.ranks.max = 4;  // of 8, 2, 6 and 4: two nodes
  const Outcome some = run_file(file, {}, options, [](std::string_view) {});
  EXPECT_EQ(some.status, ExitStatus::as_expected) << some.report.dump(1);
  ASSERT_EQ(some.report["rows"].size(), 2u);
  EXPECT_EQ(some.report["rows"][0]["row"], 1);
  EXPECT_EQ(some.report["rows"][1]["row"], 3);
  EXPECT_EQ(some.report["rows_not_run"], 2);
  options.ranks.max = 8;
  const Outcome all = run_file(file, {}, options, [](std::string_view) {});
  EXPECT_EQ(all.report["rows"].size(), 4u);
  EXPECT_FALSE(all.report.contains("rows_not_run"));
}

// What GPUs have no kernels for is left out there, and counted; a sweep of nothing else is refused.
TEST(SweepRuns, RowsThatTheDeviceCannotRunAreLeftOutAndCounted) {
  TemporaryFolder folder;
  const auto with = [&](const char* sweep) {
    return folder.write("s.json", swept(fmt::format(R"("batch_arithmetic": "by_samples", "sweep": {})", sweep)));
  };
  RunOptions options;
  options.ranks.device = "emulated";
  const char* const some_rows =
      R"({ "compression": [{ "method": "none", "groups": 4 }, { "method": "int8", "groups": 4 }, { "method": "sign", "groups": 4 }] })";
  const Outcome some = run_file(with(some_rows), {}, options, [](std::string_view) {});
  EXPECT_EQ(some.status, ExitStatus::as_expected) << some.report.dump(1);
  EXPECT_EQ(some.report["rows"].size(), 1u);
  EXPECT_EQ(some.report["rows_not_run"], 2);
  EXPECT_NE(some.report["sentence"].get<std::string>().find("2 more were not run: there are no kernels for GPUs"),
            std::string::npos);
  const std::string none = with(R"({ "compression": [{ "method": "int8", "groups": 4 }] })");
  EXPECT_EQ(run_file(none, {}, options, [](std::string_view) {}).status, ExitStatus::bad_input);
}

TEST(SweepRuns, OtherDefinitionsHaveOtherGoldens) {
  const Swept s(R"("sweep": { "training_seed": [1, 2], "seed": [1, 2] })");
  EXPECT_EQ(s.ran.status, 0) << s.ran.out << s.ran.err;
  EXPECT_EQ(s.report["goldens"].size(), 2u);
}

TEST(SweepRuns, AWrongRowIsRedAndNoOther) {
  const Swept s(R"("golden": { "shared": true }, "sweep": [ { "deepspeed.zero_optimization.stage": [0, 2, 3] }, )"
                R"({ "deepspeed.gradient_clipping": [0.03125] } ])");
  EXPECT_EQ(s.ran.status, 1) << s.ran.out << s.ran.err;
  EXPECT_EQ(s.report["verdict"], "fail");
  EXPECT_EQ(s.report["rows_red"], 1);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(s.report["rows"][i]["verdict"], "pass");
  EXPECT_EQ(s.report["rows"][3]["verdict"], "fail");
  EXPECT_NE(s.ran.out.find("gradient_clipping=0.03125"), std::string::npos) << s.ran.out;
  EXPECT_NE(s.ran.out.find("--row 3"), std::string::npos) << s.ran.out;
  EXPECT_NE(s.junit.find("failures=\"1\""), std::string::npos);
  const std::string file = s.folder.file("small.json");
  EXPECT_EQ(seeksim({"run", file, "--row", "3"}).status, 1);
  EXPECT_EQ(seeksim({"run", file, "--row", "2"}).status, 0);
  EXPECT_EQ(seeksim({"run", file, "--row", "4"}).status, 2);
}

TEST(SweepRuns, ExpectHoldsForEveryRow) {
  const Swept s(R"("golden": { "shared": true }, "expect": { "check_fails": "golden:bitwise" }, )"
                R"("sweep": { "deepspeed.gradient_clipping": [0.03125, 1] })");
  EXPECT_EQ(s.ran.status, 1) << "the second row is not red, as it should be";
  EXPECT_EQ(s.report["rows"][0]["verdict"], "pass");
  EXPECT_EQ(s.report["rows"][1]["verdict"], "fail");
}

TEST(SweepRuns, TheCommandOfARowRunsThatRow) {
  const Swept s(
      R"("sweep": { "world.ranks_per_node": [3], "deepspeed.zero_optimization.stage": [2], "decay": ["all"] })");
  ASSERT_EQ(s.ran.status, 0) << s.ran.out << s.ran.err;
  const std::string command = s.report["rows"][0]["command"];
  const std::string report = s.folder.file("alone");
  const std::string program = seeksim::paths::program().substr(0, seeksim::paths::program().rfind('/') + 1);
  ASSERT_EQ(std::system((program + command + " --report " + report + " > /dev/null").c_str()), 0) << command;
  const Json alone = Json::parse(read_all(report));
  EXPECT_EQ(alone["fingerprint"], s.report["rows"][0]["fingerprint"]);
}

TEST(SweepRuns, ARowThatIsNoScenarioIsNamed) {
  const Swept s(R"("sweep": { "steps": [1, 0] })");
  EXPECT_EQ(s.ran.status, 2);
  EXPECT_NE(s.ran.err.find("--set steps=0: steps: 0 is out of range: it must be at least 1 [row 1: steps=0]"),
            std::string::npos)
      << s.ran.err;
  EXPECT_NE(s.ran.err.find("1 of 2 rows are no scenarios"), std::string::npos) << s.ran.err;
}

TEST(SweepRuns, ACrashIsOneRows) {
  TemporaryFolder folder;
  const std::string file = folder.write("small.json", swept(R"("sweep": { "steps": [1, 100000000, 2] })"));
  // In a process of its own, whose children may each take a second of CPU time: the kernel ends the long row.
  const auto run = [&] {
    rlimit second{1, RLIM_INFINITY};
    ::getrlimit(RLIMIT_CPU, &second);
    second.rlim_cur = 1;
    ::setrlimit(RLIMIT_CPU, &second);
    LoadOptions load;
    load.sets = {"checks=[]"};
    const Outcome outcome = run_file(file, load, {}, [](std::string_view) {});
    const Json& rows = outcome.report["rows"];
    const bool fine = outcome.status == ExitStatus::bug && rows.size() == 3 && rows[0]["verdict"] == "pass" &&
                      rows[1]["verdict"] == "bug" && rows[2]["verdict"] == "pass";
    std::fputs(rows[1]["problems"][0].get<std::string>().c_str(), stderr);
    std::_Exit(fine ? 0 : 1);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0),
              "row 1 .steps=100000000.: the process of this scenario was ended by");
}

TEST(GoldenGradients, AreComparedStepByStep) {
  const Swept s(R"("sweep": { "deepspeed.zero_optimization.stage": [0, 1, 2, 3], "checks": [["golden:gradients"]] })");
  EXPECT_EQ(s.ran.status, 0) << s.ran.out << s.ran.err;
  const Scenario scenario = small_scenario();
  RunRecord run = good_run();
  const auto judged = [&](const Golden& golden) {
    return judge(CheckSpec{"golden", "gradients"}, Evidence{scenario, run, &golden, std::nullopt, {}});
  };
  EXPECT_NE(judged(golden_of(run, "k")).detail.find("looked at nothing"), std::string::npos);
  run.training.gradient_digests = {1, 2, 3, 4};
  Golden golden = golden_of(run, "k");
  EXPECT_TRUE(judged(golden).ok);
  golden.gradients[2] = 7;
  EXPECT_NE(judged(golden).detail.find("gradients of step 2 differ"), std::string::npos);
  golden.gradients = {1, 2, 3};
  EXPECT_FALSE(judged(golden).ok);
  golden = golden_of(run, "k");
  EXPECT_EQ(read_golden(to_json(golden, scenario).dump(), "g.json").gradients, run.training.gradient_digests);
  run.training.gradients_disagree = "step 1: rank 3";
  EXPECT_FALSE(judged(golden).ok);
}

// ---- what may be wrong with a sweep --------------------------------------------------------------------------------

TEST(SweepLoading, TellsWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("sweep": 3)", "s.json:8: sweep: an object {...} or a list [...] was expected, found an integer"},
      {R"("sweep": { "steps": 3 })",
       "s.json:8: sweep.steps: a list of the values that it takes was expected. For example"},
      {R"("sweep": { "steps": [] })", "a list of the values that it takes was expected"},
      {R"("sweep": { "steps": { "range": [3, 1] } })", "a list of the values that it takes was expected"},
      {R"("sweep": { "steps": { "range": [1, 2, 3] } })", "or \"steps\": {\"range\": [1, 9]}"},
      {R"("sweep": { "steps": [1, 1] })", "\"1\" is here twice"},
      {R"("sweep": { "sweep": [1] })", "a sweep cannot change itself"},
      {R"("sweep": { "name": ["a"] })", "the rows of a sweep share its name"},
      {R"("sweep": { "world": [{}], "world.nodes": [1] })", "\"world\" and \"world.nodes\" set the same value"},
      {R"("sweep": { "steps": [1] }, "mode": "all")", "s.json:8: mode: \"all\" is not known. Use \"product\""},
      {R"("sweep": { "steps": [1] }, "mode": { "sample": 0 })", "mode.sample: 0 is out of range"},
      {R"("mode": "pairwise")", "mode: there is no sweep"},
      {R"("sweep_skip": [ { "steps": 1 } ])", "sweep_skip: there is no sweep"},
      {R"("sweep": { "steps": [1] }, "sweep_skip": [ { "stepz": 1 } ])",
       "no axis of the sweep has this key. Did you mean \"steps\"?"},
      {R"("sweep": { "steps": [1] }, "sweep_skip": [ { "steps": 2 } ])", "no row of the sweep has these values"},
      {R"("sweep": { "steps": [1] }, "sweep_skip": [ { "steps": 1 } ])", "every row of the sweep is left out"},
  };
  for (const auto& [keys, message] : cases) {
    const std::string found = problems_of(swept(keys));
    EXPECT_NE(found.find(message), std::string::npos) << keys << "\n  gave: " << found << "\n  not:  " << message;
  }
}

}  // namespace
}  // namespace seeksim::harness
