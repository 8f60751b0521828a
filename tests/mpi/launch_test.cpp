// seeksim launch: whichever process of a job is killed or stopped, the next job ends in the golden bits.
#include <signal.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <random>
#include <set>
#include <thread>

#include "tests/support/processes.h"

namespace seeksim {
namespace {

namespace fs = std::filesystem;

class MpiLaunch : public Mpi {
 protected:
  void SetUp() override {
    Mpi::SetUp();
    if (IsSkipped()) return;
    fs::create_directory(temporary());
    std::ofstream(folder() + "/job.json") << R"({ "name": "job", "why": "Long enough to be killed in the middle.",
      "model": { "layers": 2, "width": 64, "heads": 4, "context": 32, "vocab": 256 },
      "data": { "synthetic": true },
      "world": { "nodes": 1, "ranks_per_node": 3 },
      "deepspeed": { "train_batch_size": 12, "train_micro_batch_size_per_gpu": 2, "zero_optimization": { "stage": 2 } },
      "steps": 40,
      "recovery": { "policy": "restart_from_checkpoint", "agree_s": 5 },
      "checkpoint": { "path": "checkpoints", "every_steps": 3 },
      "checks": [ "golden:bitwise", "ranks_agree", "one_history" ] })";
  }

  // The processes of the current job: its ranks, or mpirun.
  std::vector<pid_t> processes(bool ranks) const {
    std::vector<pid_t> found;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      std::ifstream file(entry.path() / "cmdline");
      const std::string line(std::istreambuf_iterator<char>(file), {});
      if (line.find(folder() + "/out") == std::string::npos || line.find("--backend") == std::string::npos) continue;
      const bool is_rank = line.rfind(seeksim::paths::program(), 0) == 0;
      const bool is_mpirun = line.rfind("mpirun", 0) == 0;
      if (ranks ? is_rank : is_mpirun) found.push_back(pid_t(std::stol(name)));
    }
    return found;
  }
  std::string temporary() const { return folder() + "/tmp"; }
  bool starting() const { return !processes(true).empty() && !fs::exists(folder() + "/out/checkpoints"); }
  // A whole checkpoint. The job goes on meanwhile, and removes old ones.
  bool has_saved() const {
    std::error_code gone;
    for (fs::directory_iterator at(folder() + "/out/checkpoints", gone), end; !gone && at != end; at.increment(gone)) {
      if (fs::exists(at->path() / "manifest.json", gone)) return true;
    }
    return false;
  }

  // Sends `signal` to a process of the job as soon as `moment` has come, once.
  Ran launch(const std::function<bool()>& moment, bool to_a_rank, int signal, const std::string& more = "") {
    struck_ = false;
    std::jthread striker([&](const std::stop_token& stop) {
      while (!stop.stop_requested() && !struck_) {
        if (moment()) {
          const std::vector<pid_t> all = processes(to_a_rank);
          struck_ = !all.empty() && ::kill(all.back(), signal) == 0;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    return shell("TMPDIR=" + in_quotes(temporary()) + " timeout 120 " + seeksim::paths::program() +
                 " launch --heartbeat 0.2 --silent 2 --max-restarts 3 --out " + in_quotes(folder() + "/out") +
                 " --report " + in_quotes(folder() + "/mpi.json") + " " + in_quotes(folder() + "/job.json") + " " +
                 more);
  }
  Ran launch() {
    return launch([] { return false; }, true, 0);
  }
  void expect_golden(const Ran& ran, std::size_t jobs_before) {
    ASSERT_EQ(ran.status, 0) << ran.text;
    const Json told = report("mpi");
    EXPECT_EQ(told["verdict"], "pass");
    EXPECT_EQ(told["steps_committed"], 40);
    EXPECT_EQ(told["jobs_before"].size(), jobs_before) << ran.text;
    EXPECT_EQ(struck_, jobs_before > 0) << "the signal came too late";
  }
  bool struck() const { return struck_; }

 private:
  std::atomic<bool> struck_ = false;
};

TEST_F(MpiLaunch, WithoutADeathIsARun) { expect_golden(launch(), 0); }

TEST_F(MpiLaunch, ARankKilledInTrainingIsSurvived) {
  const Ran ran = launch([&] { return has_saved(); }, true, SIGKILL);
  expect_golden(ran, 1);
  EXPECT_NE(ran.text.find("has ended"), std::string::npos) << ran.text;
  EXPECT_NE(ran.text.find("from the checkpoint after step"), std::string::npos) << ran.text;
}

TEST_F(MpiLaunch, ARankKilledWhileItStartsIsSurvived) {
  expect_golden(launch([&] { return starting(); }, true, SIGKILL), 1);
}

TEST_F(MpiLaunch, AKilledMpirunIsSurvived) {
  expect_golden(launch([&] { return has_saved(); }, false, SIGKILL), 1);
}

TEST_F(MpiLaunch, AStoppedRankIsFoundNamedAndSurvived) {
  const Ran ran = launch([&] { return has_saved(); }, true, SIGSTOP);
  expect_golden(ran, 1);
  EXPECT_NE(ran.text.find("is silent: its process is stopped"), std::string::npos) << ran.text;
}

TEST_F(MpiLaunch, AStoppedMpirunIsSurvived) {
  const Ran ran = launch([&] { return has_saved(); }, false, SIGSTOP);
  expect_golden(ran, 1);
  EXPECT_NE(ran.text.find("mpirun is stopped"), std::string::npos) << ran.text;
}

TEST_F(MpiLaunch, NothingOfAKilledJobIsLeft) {
  std::set<std::string> seen;
  const auto look = [&] {
    for (const auto& entry : fs::directory_iterator(temporary())) seen.insert(entry.path().filename());
    return has_saved();
  };
  expect_golden(launch(look, false, SIGKILL), 1);
  EXPECT_FALSE(seen.empty());
  EXPECT_TRUE(fs::is_empty(temporary()));
  for (const std::string& name : seen) EXPECT_FALSE(fs::exists("/dev/shm/" + name)) << name;
  EXPECT_TRUE(processes(true).empty());
}

// A crash that the scenario asks for: SIGKILL at that operation, once in the life of the job.
TEST_F(MpiLaunch, ACrashOfTheScenarioStrikesOnce) {
  const Ran ran = launch([] { return false; }, true, 0,
                         R"(--set 'faults=[{"kind":"rank_crash","rank":1,"step":20,"op":"reduce_scatter"}]')");
  ASSERT_EQ(ran.status, 0) << ran.text;
  const Json told = report("mpi");
  EXPECT_EQ(told["verdict"], "pass");
  EXPECT_EQ(told["jobs_before"].size(), 1u) << ran.text;
  EXPECT_EQ(told["faults"][0]["fired"], 1);
  EXPECT_NE(ran.text.find("the process of rank 1 has ended"), std::string::npos) << ran.text;
}

// To mpirun each end of a process looks different: by a signal, with any exit status (also those with a meaning for
// seeksim and shells), and, worst, with success.
TEST_F(MpiLaunch, HoweverAProcessEndsTheJobComesToTheGoldenBits) {
  struct End {
    const char* signal;
    int status;  // of mpirun
    const char* words;
  };
  const End ends[] = {{"segv", 139, "signal 11 (Segmentation fault)"},
                      {"abrt", 134, "signal 6 (Aborted)"},
                      {"exit:7", 7, "with status 7"},
                      {"exit:2", 2, "with status 2"},
                      {"exit:127", 127, "with status 127"},
                      {"exit:0", 1, "left with status 0 and without MPI_Finalize"}};
  for (const End& end : ends) {
    SCOPED_TRACE(end.signal);
    shell("rm -rf " + in_quotes(folder() + "/out"));
    const Ran ran = launch([] { return false; }, true, 0,
                           std::string(R"(--set 'faults=[{"kind":"rank_crash","rank":1,"step":20,)") +
                               R"("op":"reduce_scatter","signal":")" + end.signal + R"("}]')");
    ASSERT_EQ(ran.status, 0) << ran.text;
    const Json told = report("mpi");
    EXPECT_EQ(told["verdict"], "pass");
    EXPECT_EQ(told["steps_committed"], 40);
    EXPECT_EQ(told["faults"][0]["fired"], 1);
    ASSERT_EQ(told["jobs_before"].size(), 1u) << ran.text;
    EXPECT_EQ(told["jobs_before"][0]["why"], "the process of rank 1 has ended");
    if (ran.text.find("the job is ended") == std::string::npos) {  // mpirun noticed in time, and ended by itself
      EXPECT_EQ(told["jobs_before"][0]["status"], end.status) << ran.text;
      EXPECT_NE(ran.text.find(end.words), std::string::npos) << ran.text;
    }
    EXPECT_NE(ran.text.find("from the checkpoint after step 18"), std::string::npos) << ran.text;
  }
}

// The lowest rank, which gathers and reports, is like any other.
TEST_F(MpiLaunch, TheReportingRankMayLeaveAsIfAllWereWell) {
  const Ran ran = launch([] { return false; }, true, 0,
                         R"(--set 'faults=[{"kind":"rank_crash","rank":0,"step":20,"op":"vote","signal":"exit:0"}]')");
  ASSERT_EQ(ran.status, 0) << ran.text;
  EXPECT_EQ(report("mpi")["jobs_before"].size(), 1u) << ran.text;
  EXPECT_EQ(report("mpi")["steps_committed"], 40);
}

// Even where core files are enabled, a crash that the scenario asks for leaves none.
TEST_F(MpiLaunch, ACrashOnPurposeLeavesNoCoreFile) {
  const Ran ran =
      shell("cd " + in_quotes(temporary()) + " && ulimit -c unlimited && timeout 120 " +
            fs::absolute(seeksim::paths::program()).string() + " launch --out " + in_quotes(folder() + "/out") +
            " --report " + in_quotes(folder() + "/mpi.json") + " " + in_quotes(folder() + "/job.json") +
            R"( --set 'faults=[{"kind":"rank_crash","rank":1,"step":20,"op":"vote","signal":"segv"}]')");
  ASSERT_EQ(ran.status, 0) << ran.text;
  EXPECT_EQ(report("mpi")["jobs_before"].size(), 1u) << ran.text;
  for (const auto& entry : fs::recursive_directory_iterator(folder()))
    EXPECT_NE(entry.path().filename().string().rfind("core", 0), 0u) << entry.path();
}

// The newest checkpoint is damaged or gone: the one before it serves.
TEST_F(MpiLaunch, ADamagedCheckpointIsPassedOver) {
  const std::string crash = R"({"kind":"rank_crash","rank":1,"step":20,"op":"reduce_scatter"})";
  const std::pair<const char*, const char*> from[] = {
      {"", "after step 18"},
      {R"(,{"kind":"checkpoint_corrupt","rank":2,"path":"step-0000000018/rank-00002"})", "after step 15"},
      {R"(,{"kind":"lost_checkpoint","rank":0,"path":"step-0000000018/manifest.json"})", "after step 15"}};
  for (const auto& [damage, words] : from) {
    shell("rm -rf " + in_quotes(folder() + "/out"));
    const Ran ran = launch([] { return false; }, true, 0, "--set 'faults=[" + crash + damage + "]'");
    ASSERT_EQ(ran.status, 0) << ran.text;
    for (const Json& fault : report("mpi")["faults"]) EXPECT_EQ(fault["fired"], 1) << ran.text;
    EXPECT_NE(ran.text.find(words), std::string::npos) << "not said: " << words << '\n' << ran.text;
  }
}

// A failed check is not a death: the job is not started again.
TEST_F(MpiLaunch, ARedVerdictEndsIt) {
  const Ran ran = launch([] { return false; }, true, 0, "--set bug=drifting_replica");
  EXPECT_EQ(ran.status, 1) << ran.text;
  EXPECT_TRUE(report("mpi")["jobs_before"].empty()) << ran.text;
}

TEST_F(MpiLaunch, WithoutRestartsADeathIsTold) {
  const Ran ran = shell("timeout 60 " + seeksim::paths::program() + " launch --max-restarts 0 --mpirun false " +
                        in_quotes(folder() + "/job.json"));
  EXPECT_EQ(ran.status, 3) << ran.text;
  EXPECT_NE(ran.text.find("--max-restarts is 0"), std::string::npos) << ran.text;
}

TEST_F(MpiLaunch, WhatCannotBeStartedIsRefused) {
  const auto refused = [&](const std::string& more, const std::string& words) {
    const Ran ran = shell("timeout 60 " + seeksim::paths::program() + " launch " + more);
    EXPECT_EQ(ran.status, 2) << ran.text;
    EXPECT_NE(ran.text.find(words), std::string::npos) << ran.text;
  };
  refused("--np 7 " + in_quotes(folder() + "/job.json"), "the world has 3 ranks");
  refused("--mpirun /no/such/mpirun " + in_quotes(folder() + "/job.json"), "cannot be started");
  refused("scenarios/zero_equivalence.json", "this is a sweep");
  refused("--no-skip scenarios/nccl_timeout.json", "finishes_within_virtual_s");
}

class MpiLaunchNightly : public MpiLaunch {};

// Any one process but the supervisor, at 20 random moments of a job and its start.
TEST_F(MpiLaunchNightly, AnyDeathAtAnyMomentEndsInTheGoldenBits) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point undisturbed = Clock::now();
  expect_golden(launch(), 0);
  const std::chrono::duration<double> whole = Clock::now() - undisturbed;
  std::mt19937 random(20261122);
  for (int hit = 0, tries = 0; hit < 20; ++tries) {
    ASSERT_LT(tries, 60) << "most signals come too late";
    const bool a_rank = random() % 4 != 0;
    const std::chrono::duration<double> after = whole * std::uniform_real_distribution<double>(0, 1)(random);
    shell("rm -rf " + in_quotes(folder() + "/out"));
    const Clock::time_point begin = Clock::now();
    const Ran ran = launch([&] { return Clock::now() - begin >= after; }, a_rank, SIGKILL);
    EXPECT_EQ(ran.status, 0) << ran.text;
    if (!struck()) continue;
    ++hit;
    std::printf("%2d: %s after %.2f s of %.2f s, %zu starts\n", hit, a_rank ? "a rank" : "mpirun", after.count(),
                whole.count(), report("mpi")["jobs_before"].size() + 1);
    EXPECT_EQ(report("mpi")["verdict"], "pass");
    EXPECT_EQ(report("mpi")["steps_committed"], 40);
  }
}

}  // namespace
}  // namespace seeksim
