// seeksim torch recovers on a script that goes on with the same bits, and on copies of it that forget something.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/torch/script_runs.h"

namespace seeksim::harness::torch {
namespace {

using nlohmann::json;

class ScriptRecovers : public testing::ScriptRuns {
 protected:
  Captured recovers(std::vector<std::string> options, const std::vector<std::string>& command) {
    std::vector<std::string> arguments = {"recovers", "--python",          python_, "--np", "2", "--report", report_,
                                          "--out",    folder_.file("runs")};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.emplace_back("--");
    arguments.insert(arguments.end(), command.begin(), command.end());
    return seeksim(arguments);
  }
  json found() const { return json::parse(harness::testing::read_all(report_), nullptr, false); }
  std::string line(const std::string& name) const {
    const json told = found();
    for (const json& one : told["lines"])
      if (one["name"] == name) return one["text"];
    return "";
  }
  // examples/pytorch/resume.py with one place changed.
  std::string resume_with(const std::string& place, const std::string& other) {
    std::string script = harness::testing::read_all(example("resume.py"));
    const std::size_t at = script.find(place);
    if (at == std::string::npos) throw std::runtime_error("resume.py no longer has: " + place);
    script.replace(at, place.size(), other);
    std::filesystem::copy_file(example("model.py"), folder_.file("model.py"),
                               std::filesystem::copy_options::skip_existing);
    return folder_.write("resume.py", script);
  }

  std::string report_ = folder_.file("recovers.json");
};

TEST_F(ScriptRecovers, AKilledTrainingEndsWithTheBitsOfTheUndisturbedOne) {
  const Captured ran = recovers({"--step", "7"}, {example("resume.py"), "--folder", "{dir}"});
  EXPECT_STATUS(ran, 0);
  EXPECT_EQ(found()["resumed_at"], 6) << ran.out;
  EXPECT_NE(line("recovers").find("the same bits"), std::string::npos) << ran.out;
}

struct Forgotten {
  std::string name, place, other, part, says;
};
void PrintTo(const Forgotten& one, std::ostream* out) { *out << one.name; }

class Forgets : public ScriptRecovers, public ::testing::WithParamInterface<Forgotten> {};

TEST_P(Forgets, AndItIsNamed) {
  const std::string script = resume_with(GetParam().place, GetParam().other);
  const Captured ran = recovers({"--step", "7"}, {script, "--folder", "{dir}"});
  EXPECT_STATUS(ran, 1);
  const json differ = found()["differ"];
  ASSERT_FALSE(differ.empty()) << ran.out;
  EXPECT_EQ(differ[0], GetParam().part) << ran.out;
  EXPECT_NE(line("recovers").find(GetParam().says), std::string::npos) << ran.out;
}

const Forgotten kForgotten[] = {
    {"TheOptimizer",
     "        set_state_dict(\n            self.model, self.optimizer, model_state_dict=state[\"model\"], "
     "optim_state_dict=state[\"optimizer\"]\n        )\n",
     "        from torch.distributed.checkpoint.state_dict import set_model_state_dict\n"
     "        set_model_state_dict(self.model, state[\"model\"])\n",
     "optimizer", "the optimizer's state"},
    {"TheScheduler", "        self.scheduler.load_state_dict(state[\"scheduler\"])\n", "", "scheduler",
     "the schedule's param_groups.0.lr"},
    {"TheSamplersEpoch",
     "    for epoch in range(state.step // args.batches, args.epochs):\n        sampler.set_epoch(epoch)\n",
     "    for number, epoch in enumerate(range(state.step // args.batches, args.epochs)):\n"
     "        sampler.set_epoch(number)\n",
     "sampler", "the sampler is in epoch 0, and was in epoch 1"},
    {"TheRandomGenerator", "        torch.set_rng_state(state[f\"rng.{self.rank}\"])\n", "", "rng",
     "the random generator rng.torch stands elsewhere"},
};
INSTANTIATE_TEST_SUITE_P(ScriptRecovers, Forgets, ::testing::ValuesIn(kForgotten),
                         [](const auto& one) { return one.param.name; });

TEST_F(ScriptRecovers, AHangIsEndedAndTheTrainingGoesOn) {
  const Captured ran = recovers({"--how", "hang", "--step", "4", "--set", "torch.timeout_s=20"},
                                {example("resume.py"), "--folder", "{dir}"});
  EXPECT_STATUS(ran, 0);
  EXPECT_EQ(found()["resumed_at"], 3) << ran.out;
}

TEST_F(ScriptRecovers, TorchrunStartsTheRanksAgain) {
  const Captured ran =
      recovers({"--step", "7"}, {"python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                                 "--max-restarts", "1", example("resume.py"), "--folder", "{dir}"});
  EXPECT_STATUS(ran, 0);
  EXPECT_EQ(found()["resumed_at"], 6) << ran.out;
  EXPECT_NE(line("disturbed").find("the launcher starts the ranks again"), std::string::npos) << ran.out;
}

TEST_F(ScriptRecovers, ACheckpointThatIsCutShortIsNamedAtTheResume) {
  const Captured ran = recovers(
      {"--step", "7", "--set", R"(faults=[{"kind": "checkpoint_corrupt", "rank": 0, "path": "step-6/__0_0"}])"},
      {example("resume.py"), "--folder", "{dir}"});
  EXPECT_STATUS(ran, 1);
  EXPECT_NE(line("resumed").find("rank "), std::string::npos) << ran.out;
}

TEST_F(ScriptRecovers, AFlippedBitOfACheckpointIsNamedByTheWeight) {
  const Captured ran = recovers(
      {"--step", "7", "--set",
       R"(faults=[{"kind": "checkpoint_corrupt", "mode": "flip", "bit": 800000, "rank": 0, "path": "step-6/"}])"},
      {example("resume.py"), "--folder", "{dir}"});
  EXPECT_STATUS(ran, 1);
  EXPECT_EQ(found()["lines"].back()["ok"], false) << ran.out;
}

TEST_F(ScriptRecovers, AScriptThatSavesNothingIsRed) {
  const Captured ran = recovers({}, {example("resume.py"), "--every", "100", "--folder", "{dir}"});
  EXPECT_STATUS(ran, 1);
  EXPECT_NE(line("undisturbed").find("it saved nothing"), std::string::npos) << ran.out;
}

}  // namespace
}  // namespace seeksim::harness::torch
