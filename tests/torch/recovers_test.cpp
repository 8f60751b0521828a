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
  // examples/pytorch/resume.py with some places changed.
  std::string resume_with(const std::vector<std::pair<std::string, std::string>>& changes) {
    std::string script = harness::testing::read_all(example("resume.py"));
    for (const auto& [place, other] : changes) {
      const std::size_t at = script.find(place);
      if (at == std::string::npos) throw std::runtime_error("resume.py no longer has: " + place);
      script.replace(at, place.size(), other);
    }
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
  std::string name;
  std::vector<std::pair<std::string, std::string>> changes;  // a place in resume.py, and what stands there instead
  std::string part, says;
};
void PrintTo(const Forgotten& one, std::ostream* out) { *out << one.name; }

class Forgets : public ScriptRecovers, public ::testing::WithParamInterface<Forgotten> {};

TEST_P(Forgets, AndItIsNamed) {
  const std::string script = resume_with(GetParam().changes);
  const Captured ran = recovers({"--step", "7"}, {script, "--folder", "{dir}"});
  EXPECT_STATUS(ran, 1);
  const json differ = found()["differ"];
  ASSERT_FALSE(differ.empty()) << ran.out;
  EXPECT_EQ(differ[0], GetParam().part) << ran.out;
  EXPECT_NE(line("recovers").find(GetParam().says), std::string::npos) << ran.out;
}

const char kLoadsBoth[] =
    "        set_state_dict(\n            self.model, self.optimizer, model_state_dict=state[\"model\"], "
    "optim_state_dict=state[\"optimizer\"]\n        )\n";
const char kLoadsTheModel[] =
    "        from torch.distributed.checkpoint.state_dict import set_model_state_dict\n"
    "        set_model_state_dict(self.model, state[\"model\"])\n";

const Forgotten kForgotten[] = {
    {"TheOptimizer",
     {{"            \"optimizer\": optimizer,\n", ""}, {kLoadsBoth, kLoadsTheModel}},
     "optimizer",
     "the optimizer's state"},
    // The checkpoint's moments are read into the optimizer's own tensors; its learning rate is no tensor.
    {"TheOptimizersLearningRate", {{kLoadsBoth, kLoadsTheModel}}, "scheduler", "the schedule's param_groups.0.lr"},
    {"TheScheduler",
     {{"        self.scheduler.load_state_dict(state[\"scheduler\"])\n", ""}},
     "scheduler",
     "the schedule's param_groups.0.lr"},
    {"TheSamplersEpoch",
     {{"    for epoch in range(state.step // args.batches, args.epochs):\n        sampler.set_epoch(epoch)\n",
       "    for number, epoch in enumerate(range(state.step // args.batches, args.epochs)):\n"
       "        sampler.set_epoch(number)\n"}},
     "sampler",
     "the sampler is in epoch 0, and was in epoch 1"},
    {"TheRandomGenerator",
     {{"        torch.set_rng_state(state[f\"rng.{self.rank}\"])\n", ""}},
     "rng",
     "the random generator rng.torch stands elsewhere"},
};
INSTANTIATE_TEST_SUITE_P(ScriptRecovers, Forgets, ::testing::ValuesIn(kForgotten),
                         [](const auto& one) { return one.param.name; });

// Checkpoints of other libraries: torch.save, DeepSpeed's engine, transformers' Trainer, Lightning's Trainer.
class Libraries : public ScriptRecovers {
 protected:
  void expect_recovers(const std::string& package, std::vector<std::string> options, std::vector<std::string> command) {
    if (!has(package)) GTEST_SKIP() << "there is no " << package << " in this environment";
    const std::string script = command.front();
    std::filesystem::copy_file(example("model.py"), folder_.file("model.py"));
    command.front() = folder_.write("train.py", harness::testing::read_all(paths::source_dir() + "/" + script));
    EXPECT_STATUS(recovers(std::move(options), command), 0);
    EXPECT_NE(line("recovers").find("the same bits"), std::string::npos) << found();
  }
};
using ScriptRecoversNightly = Libraries;

TEST_F(ScriptRecoversNightly, ByTorchSave) {
  expect_recovers("torch", {"--step", "6", "--resume", "--resume {dir}"},
                  {"tests/torch/mistakes/right/resumes.py", "--save", "{dir}"});
}
TEST_F(ScriptRecoversNightly, ByDeepSpeed) {
  expect_recovers("deepspeed", {"--step", "7"}, {"tests/torch/resumes/deepspeed_zero1.py", "--folder", "{dir}"});
}
TEST_F(ScriptRecoversNightly, ByTransformersTrainer) {
  expect_recovers("transformers", {"--step", "4"}, {"tests/torch/resumes/trainer.py", "--folder", "{dir}"});
}
TEST_F(ScriptRecoversNightly, ByLightning) {
  expect_recovers("lightning", {"--step", "6", "--resume", "--resume {dir}/last.ckpt"},
                  {"examples/pytorch/lightning_ddp.py", "--folder", "{dir}"});
}

TEST_F(ScriptRecovers, AHangIsEndedAndTheTrainingGoesOn) {
  const Captured ran = recovers({"--how", "hang", "--step", "4", "--set", "torch.timeout_s=20"},
                                {example("resume.py"), "--folder", "{dir}"});
  EXPECT_STATUS(ran, 0);
  EXPECT_EQ(found()["resumed_at"], 3) << ran.out;
}

// Killed as it goes on, too. Who throws the checkpoint away once it is read has nothing left then.
TEST_F(ScriptRecovers, WhoIsKilledAgainGoesOnOnceMore) {
  const std::vector<std::string> again = {"--step", "7", "--again"};
  const Captured ran = recovers(again, {example("resume.py"), "--folder", "{dir}"});
  EXPECT_STATUS(ran, 0);
  EXPECT_EQ(line("broken again"), "after 0 more steps") << ran.out;
  EXPECT_EQ(found()["resumed_at"], 6) << ran.out;
  const std::string tidy = resume_with({{"        if rank == 0:\n            print(f\"goes on from {found.name}\")\n",
                                         "        dist.barrier()\n        if rank == 0:\n            import shutil\n"
                                         "            for old in pathlib.Path(args.folder).glob(\"step-*\"):\n"
                                         "                shutil.rmtree(old)\n        dist.barrier()\n"}});
  EXPECT_STATUS(recovers({"--step", "7"}, {tidy, "--folder", "{dir}"}), 0);
  EXPECT_STATUS(recovers(again, {tidy, "--folder", "{dir}"}), 1);
  EXPECT_EQ(line("resumed"), "it begins again with step 0: nothing was resumed");
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
