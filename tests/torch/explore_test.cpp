// seeksim torch explore on scripts: one that survives what is drawn, and copies of it with a mistake that only a fault
// brings to light.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/torch/script_runs.h"

namespace seeksim::harness::torch {
namespace {

using nlohmann::json;

class ScriptExplored : public testing::ScriptRuns {
 protected:
  Captured explore(std::vector<std::string> options, const std::vector<std::string>& command) {
    std::vector<std::string> arguments = {"explore", "--python",           python_, "--np", "2", "--report", report_,
                                          "--out",   folder_.file("found")};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.emplace_back("--");
    arguments.insert(arguments.end(), command.begin(), command.end());
    return seeksim(arguments);
  }
  json found() const { return json::parse(harness::testing::read_all(report_), nullptr, false); }
  // An example with one place changed.
  std::string changed(const std::string& name, const std::string& place, const std::string& other) {
    std::string script = harness::testing::read_all(example(name));
    const std::size_t at = script.find(place);
    if (at == std::string::npos) throw std::runtime_error(name + " no longer has: " + place);
    script.replace(at, place.size(), other);
    std::filesystem::copy_file(example("model.py"), folder_.file("model.py"));
    return folder_.write(name, script);
  }

  std::string report_ = folder_.file("explore.json");
};

TEST_F(ScriptExplored, ARightOneSurvivesWhatIsDrawn) {
  const Captured ran = explore({"--cases", "12", "--budget", "10m"}, {example("resume.py"), "--folder", "{dir}"});
  EXPECT_STATUS(ran, 0);
  const json told = found();
  EXPECT_EQ(told["cases"], 12);
  EXPECT_GE(told["struck"].size(), 4u) << ran.out;
  EXPECT_GE(told["ends"].value("went_on", 0), 1) << "none was broken off\n" << ran.out;
}

TEST_F(ScriptExplored, AForgottenSchedulerIsFoundShownAgainAndMadeSimple) {
  const std::string script = changed("resume.py", "        self.scheduler.load_state_dict(state[\"scheduler\"])\n", "");
  const Captured ran = explore({"--findings", "1", "--budget", "10m"}, {script, "--folder", "{dir}"});
  EXPECT_STATUS(ran, 1);
  const json first = found()["found"][0];
  EXPECT_EQ(first["check"], "recovers") << ran.out;
  EXPECT_NE(first["why"].get<std::string>().find("the schedule's"), std::string::npos) << ran.out;
  EXPECT_TRUE(first["shown"].get<bool>());
  EXPECT_EQ(first["faults"].size(), 1u) << ran.out;
  // By itself, as the first case.
  const Captured again = explore({first["file"], "--cases", "1"}, {script, "--folder", "{dir}"});
  EXPECT_STATUS(again, 1);
  EXPECT_EQ(found()["found"][0]["check"], "recovers") << again.out;
}

// A rank that swallows its own error says that all is well.
TEST_F(ScriptExplored, AnErrorThatIsSwallowedIsFound) {
  const std::string script = changed("ddp.py", "if __name__ == \"__main__\":\n    main()",
                                     "if __name__ == \"__main__\":\n    try:\n        main()\n    except Exception:\n"
                                     "        pass");
  const Captured ran = explore({"--findings", "1", "--budget", "10m", "--set", "torch.timeout_s=8"}, {script});
  EXPECT_STATUS(ran, 1);
  const std::string why = found()["found"][0]["why"];
  EXPECT_NE(why.find("ended with status 0 after"), std::string::npos) << ran.out;
}

TEST_F(ScriptExplored, WhatDoesNotRepeatItselfCannotBeExplored) {
  const std::string script = changed("ddp.py", "torch.manual_seed(1)", "torch.seed()");
  const Captured ran = explore({"--cases", "3"}, {script});
  EXPECT_STATUS(ran, 1);
  EXPECT_EQ(found()["cases"], 0) << ran.out;
}

TEST_F(ScriptExplored, NothingIsGreenWhereNothingWasTried) {
  const std::string script = folder_.write("nothing.py",
                                           "import torch\nimport torch.distributed as dist\n"
                                           "dist.init_process_group('gloo')\ndist.all_reduce(torch.ones(2))\n");
  const Captured ran = explore({}, {script});
  EXPECT_STATUS(ran, 1);
  EXPECT_NE(ran.out.find("it makes no step"), std::string::npos) << ran.out;
}

TEST_F(ScriptExplored, BadInputIsToldBeforeAnythingRuns) {
  EXPECT_STATUS(explore({"--budget", "soon"}, {example("ddp.py")}), 2);
  EXPECT_STATUS(explore({"--resume", "--resume {dir}"}, {example("ddp.py")}), 2);
  EXPECT_STATUS(explore({}, {"nowhere.py"}), 2);
}

}  // namespace
}  // namespace seeksim::harness::torch
