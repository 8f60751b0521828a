// Any layout goes on from what any other has saved, at every step, in the golden's bits; the job's starts; the records
// that come of it; and checkpoints in real files, as a person handles them.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <thread>

#include <nlohmann/json.hpp>

#include "harness/loading/load.h"
#include "harness/oracles/checkpoints.h"
#include "harness/record/golden.h"
#include "harness/run/run.h"
#include "harness/simulate/simulate.h"
#include "runtime/checkpoint/checkpoint_files.h"
#include "runtime/files/safetensors.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

constexpr int kSteps = 4;

struct Setting {
  const char* model = "";  // more of it
  const char* world = R"("ranks_per_node": 2)";
  const char* zero = R"("stage": 0)";
  const char* precision = "";
};

std::string text_of(const Setting& s, const char* checkpoint, const char* more = "") {
  return fmt::format(
      R"({{ "name": "resume",
  "model": {{ "layers": 2, "width": 16, "heads": 8, "context": 8, "vocab": 64{} }},
  "data": {{ "synthetic": true }},
  "world": {{ "nodes": 1, {}, "network": "ib" }},
  "deepspeed": {{ "train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, {}
                 "zero_optimization": {{ "stage3_param_persistence_threshold": 20, {} }}, "gradient_clipping": 0.5,
                 "optimizer": {{ "type": "AdamW", "params": {{ "lr": 1e-2 }} }},
                 "scheduler": {{ "type": "WarmupLR", "params": {{ "warmup_num_steps": 3, "warmup_max_lr": 1e-2 }} }} }},
  "steps": {}, "batch_arithmetic": "by_samples", {} "recovery": {{ "watchdog_s": 60 }},
  "checkpoint": {{ "path": "saved", {} }}, "checks": [] }})",
      s.model, s.world, s.precision, s.zero, kSteps, more, checkpoint);
}

Scenario scenario_of(const Setting& setting, bool resume) {
  return load_scenario_text(
      text_of(setting, resume ? R"("resume": true)" : R"("every_steps": 1, "keep": 100, "async": false)"),
      "resume.json");
}

// Other inodes, so that no run disturbs another.
std::shared_ptr<sim::Disks> copied_up_to(const sim::Disks& disks, std::int64_t step) {
  auto copy = std::make_shared<sim::Disks>(disks);
  for (auto* names : {&copy->shared.names, &copy->shared.durable}) {
    for (auto& [name, inode] : *names) inode = std::make_shared<sim::Disk::Inode>(*inode);
    std::erase_if(*names, [&](const auto& entry) {
      return *runtime::step_of_folder(entry.first.substr(std::string("saved/").size(), 15)) > step;
    });
  }
  return copy;
}

class ResumeInAnyLayout : public ::testing::TestWithParam<Setting> {};

TEST_P(ResumeInAnyLayout, AtEveryStepGivesTheBitsOfNotHavingStopped) {
  std::vector<Setting> settings = {
      {.zero = R"("stage": 0)"},
      {.world = R"("ranks_per_node": 3)", .zero = R"("stage": 1)"},
      {.world = R"("replicas": 2, "pipeline": 2)", .zero = R"("stage": 1)"},
      {.world = R"("ranks_per_node": 4)", .zero = R"("stage": 2)"},
      {.world = R"("replicas": 1, "tensor": 2, "pipeline": 2)", .zero = R"("stage": 0)"},
      {.world = R"("ranks_per_node": 2)", .zero = R"("stage": 3)"},
      {.world = R"("ranks_per_node": 2)",
       .zero = R"("stage": 2, "sub_group_size": 500, "offload_optimizer": { "device": "nvme", "nvme_path": "swap" })"},
      {.world = R"("replicas": 2, "tensor": 4)", .zero = R"("stage": 3)"},
      {.world = R"("ranks_per_node": 3)", .zero = R"("stage": 3, "offload_optimizer": { "device": "cpu" },
                  "offload_param": { "device": "nvme", "nvme_path": "swap", "buffer_size": 100, "max_in_cpu": 50 })"},
      {.world = R"("ranks_per_node": 1)", .zero = R"("stage": 0)"}};
  for (Setting& setting : settings) {
    setting.model = GetParam().model;
    setting.precision = GetParam().precision;
  }
  const Scenario first = scenario_of(settings[0], false);
  const Golden golden = run_golden(first, "");
  for (std::size_t from = 0; from < settings.size(); ++from) {
    SimulationOptions options;
    options.disks = std::make_shared<sim::Disks>();
    const RunRecord written = Simulation(scenario_of(settings[from], false), options).run();
    ASSERT_EQ(written.training.found_checkpoints.size(), std::size_t(kSteps)) << settings[from].zero;
    for (const FoundCheckpoint& found : written.training.found_checkpoints)
      ASSERT_EQ(found.problem, "") << settings[from].zero;
    for (const std::size_t to : {from, (from + 3) % settings.size()}) {
      const Scenario again = scenario_of(settings[to], true);
      for (std::int64_t step = 1; step <= kSteps; ++step) {
        SimulationOptions resumed;
        resumed.disks = copied_up_to(*options.disks, step);
        const RunRecord run = Simulation(again, resumed).run();
        const std::string where = fmt::format("{} -> {} at step {}", from, to, step);
        ASSERT_EQ(run.training.resumed_from, step) << where << ": " << run.ranks[0].why;
        const CheckResult same = judge(CheckSpec{"golden", "bitwise"}, {again, run, &golden, std::nullopt, {}});
        ASSERT_TRUE(same.ok) << where << ": " << same.detail;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ResumeInAnyLayout,
    ::testing::Values(Setting{},
                      Setting{.precision = R"("bf16": { "enabled": true, "bf16_master_weights_and_grads": true },)"},
                      Setting{.model = R"(, "tied": false, "frozen": ["wpe.weight"], "dropout": 0.1)"},
                      Setting{.model = R"(, "family": "llama")", .precision = R"("bf16": { "enabled": true },)"},
                      Setting{.precision = R"("fp16": { "enabled": true, "initial_scale_power": 18, "hysteresis": 1,
                                                        "loss_scale_window": 1 },)"}));

// ---- the job's starts ----------------------------------------------------------------------------------------------

TEST(JobRestart, IsOneHistory) {
  const std::string text = text_of({.zero = R"("stage": 1)"}, R"("every_steps": 2, "async": false)",
                                   R"("faults": [ { "kind": "rank_crash", "rank": 1, "step": 3, "op": "vote" } ],)");
  LoadOptions load;
  load.sets = {"recovery.policy=stop", "recovery.restarts=3", "recovery.restart_s=60"};
  const Scenario scenario = load_scenario_text(text, "resume.json", load);
  const RunRecord run = Simulation(scenario, {}).run();
  ASSERT_EQ(run.training.attempts.size(), 2u);
  EXPECT_EQ(run.training.attempts[1].first_step, 2);
  EXPECT_EQ(run.training.attempts[1].steps_lost, 1);
  EXPECT_EQ(run.training.undone_steps, 1);
  EXPECT_EQ(run.training.attempts[1].began_ns - run.training.attempts[0].ended_ns, 60 * runtime::kSecond);
  EXPECT_GT(run.virtual_ns, run.training.attempts[1].began_ns);
  EXPECT_EQ(run.faults[0].fired, 1u) << "a rule that has fired does not begin anew with the job";
  ASSERT_EQ(run.steps.size(), std::size_t(kSteps));
  for (std::size_t i = 0; i < run.steps.size(); ++i) EXPECT_EQ(run.steps[i].step, std::int64_t(i));
  const Golden golden = run_golden(scenario, "");
  const CheckResult same = judge(CheckSpec{"golden", "bitwise"}, {scenario, run, &golden, std::nullopt, {}});
  EXPECT_TRUE(same.ok) << same.detail;
  const RunRecord twice = Simulation(scenario, {}).run();
  EXPECT_EQ(twice.fingerprint, run.fingerprint);
}

TEST(JobRestart, HasAnEnd) {
  const std::string text = text_of({}, R"("every_steps": 3)",
                                   R"("faults": [ { "kind": "rank_crash", "step": 1, "op": "vote", "count": 100 } ],)");
  LoadOptions load;
  load.sets = {"recovery.policy=stop", "recovery.restarts=2"};
  const RunRecord run = Simulation(load_scenario_text(text, "resume.json", load), {}).run();
  EXPECT_EQ(run.training.attempts.size(), 3u);
  EXPECT_FALSE(run.state());
}

// ---- checks, by hand -----------------------------------------------------------------------------------------------

TEST(CheckpointChecks, LookAtWhatIsThere) {
  const Scenario scenario = small_scenario();
  RunRecord run = good_run();
  const Evidence evidence{scenario, run, nullptr, std::nullopt, {}};
  EXPECT_FALSE(checkpoints_valid(evidence, "").looked);
  run.training.checkpoints.push_back({2, true, "", 0, 0, 0, 10});
  EXPECT_FALSE(checkpoints_valid(evidence, "").ok);  // and none is there
  run.training.found_checkpoints = {{2, ""}};
  EXPECT_TRUE(checkpoints_valid(evidence, "").ok);
  run.training.found_checkpoints.push_back({1, "rank-00000.safetensors has 3 bytes, not 4"});
  EXPECT_FALSE(checkpoints_valid(evidence, "").ok);
  EXPECT_TRUE(restarts(evidence, "0").ok);
  run.training.attempts.resize(3);
  run.training.attempts[2].steps_lost = 4;
  EXPECT_TRUE(restarts(evidence, "2").ok);
  EXPECT_FALSE(restarts(evidence, "1").ok);
  EXPECT_TRUE(steps_lost(evidence, "4").ok);
  EXPECT_FALSE(steps_lost(evidence, "3").ok);
}

// ---- real files ----------------------------------------------------------------------------------------------------

namespace fs = std::filesystem;

std::string real_text(const TemporaryFolder& folder, int steps) {
  const std::string checkpoint = R"("every_steps": 1, "keep": 2, "at_end": true)";
  std::string text = text_of({.zero = R"("stage": 2)"}, checkpoint.c_str());
  const std::string from = fmt::format("\"steps\": {}", kSteps);
  text.replace(text.find(from), from.size(), fmt::format("\"steps\": {}", steps));
  text.replace(text.rfind("\"checks\": []"), 12, "\"checks\": [ \"golden:bitwise\", \"checkpoints_valid\" ]");
  return folder.write("real.json", text);
}

// Whether there is a whole checkpoint of this step or a later one. The run goes on meanwhile and removes old ones.
bool has_saved(const std::string& folder, const std::string& step) {
  std::error_code gone;
  for (fs::directory_iterator at(folder, gone), end; !gone && at != end; at.increment(gone)) {
    if (at->path().filename() >= step && fs::exists(at->path() / "manifest.json", gone)) return true;
  }
  return false;
}

// The program, killed without a warning once it has saved a checkpoint of this step or a later one.
void run_and_kill(const std::vector<std::string>& arguments, const std::string& folder, const std::string& step) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::vector<char*> argv;
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    if (std::freopen("/dev/null", "w", stdout) == nullptr) ::_exit(9);
    ::execv(argv[0], argv.data());
    ::_exit(9);
  }
  bool saved = false, ended = false;
  while (!saved && !ended) {
    saved = has_saved(folder, step);
    ended = ::waitpid(child, nullptr, WNOHANG) == child;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_FALSE(ended) << "it ended before it could be killed";
  if (ended) return;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(CheckpointsInFiles, AreResumedVerifiedAndConvertedAfterAKill) {
  const TemporaryFolder folder;
  const std::string out = folder.file("out"), saved = out + "/saved", scenario = real_text(folder, 60);
  run_and_kill({seeksim::paths::program(), "run", scenario, "--storage", "real", "--out", out}, saved,
               "step-0000000003");
  const Ran after_kill = seeksim({"checkpoint", "verify", saved});
  EXPECT_EQ(after_kill.status, 0) << after_kill.out << after_kill.err;

  const Ran fresh = seeksim({"run", scenario, "--storage", "real", "--out", out});
  EXPECT_EQ(fresh.status, 1) << fresh.out;
  EXPECT_NE(fresh.out.find("checkpoints of an earlier run"), std::string::npos) << fresh.out;
  const Ran resumed = seeksim({"run", scenario, "--storage", "real", "--out", out, "--resume", "--save-final",
                               folder.file("final.safetensors")});
  EXPECT_EQ(resumed.status, 0) << resumed.out << resumed.err;
  EXPECT_NE(resumed.out.find("of an earlier run"), std::string::npos) << resumed.out;

  const Ran inspected = seeksim({"checkpoint", "inspect", saved});
  EXPECT_EQ(inspected.status, 0) << inspected.err;
  EXPECT_NE(inspected.out.find("step 60"), std::string::npos) << inspected.out;
  EXPECT_NE(inspected.out.find("exp_avg_sq in F32"), std::string::npos) << inspected.out;
  const Ran verified = seeksim({"checkpoint", "verify", saved + "/step-0000000060/"});
  EXPECT_EQ(verified.status, 0) << verified.out;
  const Ran converted = seeksim({"checkpoint", "convert", saved, folder.file("converted.safetensors")});
  EXPECT_EQ(converted.status, 0) << converted.err;
  const auto same = [&](const char* name) {
    std::map<std::string, std::string> tensors;
    for (const auto& tensor : runtime::read_safetensors(read_all(folder.file(name))))
      tensors[tensor.name] = tensor.bytes;
    return tensors;
  };
  EXPECT_EQ(same("converted.safetensors"), same("final.safetensors"));

  fs::resize_file(saved + "/step-0000000060/rank-00001.safetensors", 1000);
  const Ran torn = seeksim({"checkpoint", "verify", saved});
  EXPECT_EQ(torn.status, 1);
  EXPECT_NE(torn.out.find("rank-00001.safetensors has 1000 bytes"), std::string::npos) << torn.out;
  const Ran older = seeksim({"checkpoint", "convert", saved, folder.file("older.safetensors")});
  EXPECT_NE(older.out.find("weights after step 5"), std::string::npos) << older.out << older.err;
}

TEST(CheckpointsInFiles, AreNamedWhereTheyAreNot) {
  const TemporaryFolder folder;
  EXPECT_EQ(seeksim({"checkpoint", "verify", folder.path()}).status, 2);
  EXPECT_EQ(seeksim({"checkpoint", "inspect", folder.file("nowhere")}).status, 2);
  EXPECT_EQ(seeksim({"checkpoint"}).status, 2);
}

}  // namespace
}  // namespace seeksim::harness
