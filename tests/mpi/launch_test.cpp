// seeksim launch: whichever process of a job is killed or stopped, the next job ends in the golden bits.
#include <signal.h>

#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "tests/mpi/mpi_support.h"

namespace seeksim {
namespace {

namespace fs = std::filesystem;

struct Process {
  pid_t id = -1;
  bool is_rank = false;  // else it is mpirun
};

class MpiLaunch : public Mpi {
 protected:
  void SetUp() override {
    Mpi::SetUp();
    if (IsSkipped()) return;
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

  // Processes of the job that runs now.
  std::vector<Process> processes() const {
    std::vector<Process> found;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      std::ifstream file(entry.path() / "cmdline");
      const std::string line(std::istreambuf_iterator<char>(file), {});
      if (line.find(folder() + "/out") == std::string::npos || line.find("--backend") == std::string::npos) continue;
      found.push_back({pid_t(std::stol(name)), line.rfind(seeksim::paths::program(), 0) == 0});
    }
    return found;
  }

  // Does `what` to a process of the job once so many steps have been checkpointed.
  Ran launch(const std::function<void(const std::vector<Process>&)>& what, double after_s) {
    std::jthread killer([&] {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (processes().size() < 4 && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      std::this_thread::sleep_for(std::chrono::duration<double>(after_s));
      what(processes());
    });
    return shell("timeout 300 " + seeksim::paths::program() +
                 " launch --silent 2 --start-limit 12 --max-restarts 3 --out " + in_quotes(folder() + "/out") +
                 " --report " + in_quotes(folder() + "/mpi.json") + " " + in_quotes(folder() + "/job.json"));
  }
  void expect_golden(const Ran& ran) {
    EXPECT_EQ(ran.status, 0) << ran.text;
    if (ran.status != 0) return;
    EXPECT_EQ(report("mpi")["verdict"], "pass");
    EXPECT_EQ(report("mpi")["steps_committed"], 40);
  }
};

TEST_F(MpiLaunch, WithoutADeathIsARun) {
  const Ran ran = launch([](const std::vector<Process>&) {}, 0);
  expect_golden(ran);
  EXPECT_TRUE(report("mpi")["jobs_before"].empty());
}

TEST_F(MpiLaunch, AKilledRankIsSurvived) {
  const Ran ran = launch(
      [](const std::vector<Process>& all) {
        for (const Process& process : all) {
          if (process.is_rank) return void(::kill(process.id, SIGKILL));
        }
      },
      1.0);
  expect_golden(ran);
  EXPECT_EQ(report("mpi")["jobs_before"].size(), 1u) << ran.text;
}

TEST_F(MpiLaunch, AStoppedRankIsFoundNamedAndSurvived) {
  const Ran ran = launch(
      [](const std::vector<Process>& all) {
        for (const Process& process : all) {
          if (process.is_rank) return void(::kill(process.id, SIGSTOP));
        }
      },
      1.0);
  expect_golden(ran);
  EXPECT_NE(ran.text.find("is silent: its process is stopped"), std::string::npos) << ran.text;
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
  refused("scenarios/nccl_timeout.json", "faults.0.kind");
}

class MpiLaunchNightly : public MpiLaunch {};

// Any one process but the supervisor, at 20 random moments.
TEST_F(MpiLaunchNightly, AnyDeathAtAnyMomentEndsInTheGoldenBits) {
  std::mt19937 random(20261122);
  for (int moment = 0; moment < 20; ++moment) {
    std::string told;
    const double after_s = std::uniform_real_distribution<double>(0, 3)(random);
    const Ran ran = launch(
        [&](const std::vector<Process>& all) {
          if (all.empty()) return;
          const Process& chosen = all[random() % all.size()];
          told = chosen.is_rank ? "a rank" : "mpirun";
          ::kill(chosen.id, SIGKILL);
        },
        after_s);
    std::printf("moment %2d: %s after %.2f s, status %d\n", moment, told.c_str(), after_s, ran.status);
    expect_golden(ran);
    shell("rm -r " + in_quotes(folder() + "/out"));
  }
}

}  // namespace
}  // namespace seeksim
