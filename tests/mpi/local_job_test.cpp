// seeksim launch --no-mpi: the supervisor starts the processes of one host itself, and they meet over TCP. Whatever
// ends one of them, the next job ends in the golden bits, as under mpirun.
#include <signal.h>

#include <chrono>
#include <thread>

#include "tests/support/processes.h"

namespace seeksim {
namespace {

namespace fs = std::filesystem;

class MpiLocalJob : public Mpi {
 protected:
  void SetUp() override {
    Mpi::SetUp();
    if (IsSkipped()) return;
    std::ofstream(folder() + "/job.json") << R"({ "name": "job", "why": "Long enough to be killed in the middle.",
      "model": { "layers": 2, "width": 64, "heads": 4, "context": 32, "vocab": 256 },
      "data": { "synthetic": true },
      "world": { "nodes": 1, "ranks_per_node": 3 },
      "deepspeed": { "train_batch_size": 12, "train_micro_batch_size_per_gpu": 2, "zero_optimization": { "stage": 2 } },
      "steps": 24,
      "recovery": { "policy": "restart_from_checkpoint", "agree_s": 5 },
      "checkpoint": { "path": "checkpoints", "every_steps": 3 },
      "checks": [ "golden:bitwise", "ranks_agree", "one_history" ] })";
  }

  std::string command(const std::string& more) const {
    return "launch --no-mpi --heartbeat 0.2 --silent 2 --out " + in_quotes(folder() + "/out") + " --report " +
           in_quotes(folder() + "/mpi.json") + " " + in_quotes(folder() + "/job.json") + " " + more;
  }
  // There is no MPI for it: neither library nor mpirun.
  Ran launch(const std::string& more = "") {
    shell("rm -rf " + in_quotes(folder() + "/out"));
    fs::create_directories(folder() + "/none");
    std::ofstream(folder() + "/none/libmpi.so.40") << "nothing";
    return shell("timeout 120 env LD_LIBRARY_PATH=" + in_quotes(folder() + "/none") + " PATH=/none '" +
                 fs::absolute(paths::program()).string() + "' " + command(more));
  }
  Ran launch_with_fault(const std::string& fault) { return launch("--set 'faults=[" + fault + "]'"); }
  void expect_golden(const Ran& ran, std::size_t jobs_before) {
    ASSERT_EQ(ran.status, 0) << ran.text;
    const Json told = report("mpi");
    EXPECT_EQ(told["backend"], "tcp");
    EXPECT_EQ(told["verdict"], "pass");
    EXPECT_EQ(told["steps_committed"], 24);
    EXPECT_EQ(told["jobs_before"].size(), jobs_before) << ran.text;
    EXPECT_TRUE(ranks().empty()) << "a process is left";
  }
  // The processes of the job: its ranks.
  std::vector<pid_t> ranks() const {
    std::vector<pid_t> found;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      std::ifstream file(entry.path() / "cmdline");
      const std::string line(std::istreambuf_iterator<char>(file), {});
      if (line.find(folder() + "/out") != std::string::npos && line.find("--backend") != std::string::npos)
        found.push_back(pid_t(std::stol(name)));
    }
    return found;
  }
};

TEST_F(MpiLocalJob, WithoutADeathIsARun) { expect_golden(launch(), 0); }

TEST_F(MpiLocalJob, OpenMetricsSayHowItEnded) {
  const std::string file = folder() + "/job.prom";
  expect_golden(launch("--openmetrics " + in_quotes(file)), 0);
  std::ifstream in(file);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  for (const char* line : {"seeksim_ranks{scenario=\"job\"} 3\n", "seeksim_job_ended{scenario=\"job\"} 1\n",
                           "seeksim_job_exit_status{scenario=\"job\"} 0\n",
                           "seeksim_steps_committed_total{scenario=\"job\"} 24\n", "# EOF\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  const Ran refused = launch("--openmetrics " + in_quotes(folder() + "/none/there/job.prom"));
  EXPECT_EQ(refused.status, 2) << refused.text;
}

TEST_F(MpiLocalJob, ItsPageSaysHowEarlierJobsEnded) {
  const std::string file = folder() + "/job.html";
  const auto page = [&] {
    std::ifstream in(file);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string crash = R"({"kind":"rank_crash","rank":1,"step":10,"op":"reduce_scatter","signal":"kill"})";
  expect_golden(launch("--set 'faults=[" + crash + "]' --html " + in_quotes(file)), 1);
  for (const char* words : {"1 job ended before the time", "the process of rank 1 has ended", "<td>137</td>",
                            "golden:bitwise", "seeksim launch"})
    EXPECT_NE(page().find(words), std::string::npos) << words;
  // No attempt comes to a verdict, and the page says which ones there were.
  const Ran none = launch("--max-restarts 0 --set 'faults=[" + crash + "]' --html " + in_quotes(file));
  EXPECT_EQ(none.status, 3) << none.text;
  EXPECT_NE(page().find("no job came to a verdict"), std::string::npos);
  EXPECT_NE(page().find("the process of rank 1 has ended"), std::string::npos);
  EXPECT_EQ(launch("--html " + in_quotes(folder() + "/none/there/job.html")).status, 2);
}

TEST_F(MpiLocalJob, HoweverAProcessEndsTheJobComesToTheGoldenBits) {
  struct End {
    const char* signal;
    int status;  // of the job
  };
  for (const End& end : {End{"kill", 137}, End{"segv", 139}, End{"exit:7", 7}}) {
    SCOPED_TRACE(end.signal);
    const Ran ran =
        launch_with_fault(std::string(R"({"kind":"rank_crash","rank":1,"step":10,"op":"reduce_scatter","signal":")") +
                          end.signal + R"("})");
    expect_golden(ran, 1);
    if (HasFailure()) return;
    const Json before = report("mpi")["jobs_before"][0];
    EXPECT_EQ(before["why"], "the process of rank 1 has ended");
    EXPECT_EQ(before["status"], end.status) << ran.text;
    EXPECT_NE(ran.text.find("from the checkpoint after step"), std::string::npos) << ran.text;
  }
}

TEST_F(MpiLocalJob, AProcessThatLeavesAsIfAllWereWellIsMissed) {
  expect_golden(
      launch_with_fault(R"({"kind":"rank_crash","rank":1,"step":10,"op":"reduce_scatter","signal":"exit:0"})"), 1);
}

TEST_F(MpiLocalJob, AStoppedRankIsFoundAndEnded) {
  const Ran ran = launch_with_fault(R"({"kind":"pause","rank":2,"step":10,"op":"reduce_scatter","delay_s":60})");
  expect_golden(ran, 1);
  EXPECT_NE(ran.text.find("rank 2 is silent: its process is stopped"), std::string::npos) << ran.text;
}

TEST_F(MpiLocalJob, ARedVerdictEndsIt) {
  const Ran ran = launch("--set bug=drifting_replica");
  EXPECT_EQ(ran.status, 1) << ran.text;
  EXPECT_TRUE(report("mpi")["jobs_before"].empty()) << ran.text;
}

// Its processes have nobody left to report to.
TEST_F(MpiLocalJob, OfAKilledSupervisorNobodyIsLeft) {
  shell("cd " + in_quotes(fs::current_path()) + "; { " + paths::program() + " " + command("--set steps=2000") +
        " >/dev/null 2>&1 & echo $! >" + in_quotes(folder() + "/pid") + "; }");
  std::ifstream file(folder() + "/pid");
  pid_t supervisor = 0;
  ASSERT_TRUE(file >> supervisor);
  const auto within = [&](std::size_t count) {
    for (int i = 0; i < 1200 && ranks().size() != count; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return ranks().size() == count;
  };
  EXPECT_TRUE(within(3));
  EXPECT_EQ(::kill(supervisor, SIGKILL), 0);
  EXPECT_TRUE(within(0));
}

TEST_F(MpiLocalJob, WhatItCannotDoIsRefused) {
  const Ran far = launch("--address 10.0.0.1");
  EXPECT_EQ(far.status, 2) << far.text;
  EXPECT_NE(far.text.find("--no-mpi: starts all processes on this host"), std::string::npos) << far.text;
}

}  // namespace
}  // namespace seeksim
