// The program on the stand-in: simulated ranks whose tensors lie on the one "GPU", and processes with NCCL, whose bits
// are those of the simulator, under faults too. Streams are delayed at random, by a seed, so that what nothing orders
// comes in other orders. Where there is no MPI the tests with processes are skipped, and say so.
#include <signal.h>

#include <atomic>
#include <functional>
#include <thread>

#include "tests/support/processes.h"

namespace seeksim {
namespace {

namespace fs = std::filesystem;
using Sets = std::vector<std::string>;

struct Case {
  const char* name;
  int ranks;
  const char* scenario;
  Sets sets;
  const char* environment = "SEEKSIM_STANDIN_DELAYS=1";
};
std::ostream& operator<<(std::ostream& out, const Case& of) { return out << of.name; }
std::string name_of(const testing::TestParamInfo<Case>& of) { return of.param.name; }

class MpiStandin : public Mpi {
 protected:
  Ran nccl(int processes, const std::string& scenario, Sets sets,
           const std::string& environment = "X=", const std::string& more = "") {
    sets.insert(sets.begin(), "sweep=[]");
    const std::string as_root = ::getuid() == 0 ? " --allow-run-as-root" : "";
    return shell(environment + " timeout 60 mpirun --oversubscribe" + as_root + " -np " + std::to_string(processes) +
                 " " + arguments(scenario, sets) + " --backend nccl --report " + in_quotes(folder() + "/nccl.json") +
                 " " + more);
  }
};

// ---- the same bits -------------------------------------------------------------------------------------------------

std::string stage(int which) { return "deepspeed.zero_optimization.stage=" + std::to_string(which); }
Case zero(const char* name, int which, int ranks) {
  return {name,
          ranks,
          "zero_equivalence",
          {stage(which), "world.ranks_per_node=" + std::to_string(ranks), "batch_arithmetic=by_samples",
           std::string("deepspeed.zero_optimization.overlap_comm=") + (which % 2 == 0 ? "true" : "false")}};
}
Case plain(Case of) {  // as fast as it gets
  of.environment = "X=";
  return of;
}

class MpiStandinBits : public MpiStandin, public testing::WithParamInterface<Case> {};

TEST_P(MpiStandinBits, AreTheSimulators) {
  const Case& of = GetParam();
  const Ran real = nccl(of.ranks, of.scenario, of.sets, of.environment);
  ASSERT_EQ(real.status, 0) << real.text;
  Sets sets = of.sets;
  sets.insert(sets.begin(), "sweep=[]");
  const Ran simulated = shell(arguments(of.scenario, sets) + " --report " + in_quotes(folder() + "/sim.json"));
  ASSERT_EQ(simulated.status, 0) << simulated.text;
  const Json mine = report("nccl"), theirs = report("sim");
  EXPECT_EQ(mine["backend"], "nccl");
  for (const char* key : {"params_digest", "loss", "grad_norm", "loss_scale", "steps_committed"})
    EXPECT_EQ(mine[key], theirs[key]) << key;
  EXPECT_FALSE(mine["params_digest"].get<std::string>().empty());
}

INSTANTIATE_TEST_SUITE_P(
    Runs, MpiStandinBits,
    testing::Values(
        zero("Stage0OnTwo", 0, 2), zero("Stage1OnTwo", 1, 2), zero("Stage2OnTwo", 2, 2), zero("Stage3OnTwo", 3, 2),
        zero("Stage0OnFour", 0, 4), zero("Stage1OnFour", 1, 4), zero("Stage2OnFour", 2, 4), zero("Stage3OnFour", 3, 4),
        plain(zero("Stage3OnFourUndelayed", 3, 4)),
        Case{"PipelineOfTwo",
             2,
             "equivalence/parallel_3d",
             {"world.pipeline=2", "world.tensor=1", "world.replicas=1"},
             "SEEKSIM_STANDIN_DELAYS=2"},
        Case{"PipelineOfTensorWays",
             4,
             "equivalence/parallel_3d",
             {"world.pipeline=2", "world.tensor=2", "world.replicas=1"},
             "X="},
        // Its links connected while receives waited, and hung on a GPU.
        Case{"PipelineWhoseLinksConnectAlone",
             4,
             "equivalence/pipeline_equivalence",
             {"world.schedule=1f1b", "world.pipeline=4", "world.replicas=1"},
             "SEEKSIM_STANDIN_CONNECTS_ALONE=1"},
        // Each stage has four communicators with both neighbours: they ended in a circle.
        Case{"PipelineThatIsInterleaved",
             4,
             "equivalence/pipeline_equivalence",
             {"world.schedule=interleaved", "world.pipeline=4", "world.virtual_stages=2", "world.replicas=1"}},
        Case{"TensorWaysAndSequences",
             4,
             "equivalence/tensor_equivalence",
             {"world.tensor=2", "world.ranks_per_node=4", "world.sequence_parallel=true", "batch_arithmetic=by_samples",
              "model.dropout=0.2", stage(3)}},
        Case{"Bf16",
             2,
             "equivalence/precision_equivalence",
             {"deepspeed.bf16.enabled=true", stage(2), "world.ranks_per_node=2"}},
        Case{"Fp16",
             2,
             "equivalence/precision_equivalence",
             {"deepspeed.fp16.enabled=true", stage(1), "world.ranks_per_node=2"}},
        Case{"OffloadToTheHost",
             2,
             "equivalence/offload_equivalence",
             {stage(3), "world.ranks_per_node=2", "deepspeed.zero_optimization.offload_optimizer.device=cpu",
              R"(deepspeed.zero_optimization.offload_param={"device":"cpu"})"}},
        Case{"OffloadToFiles",
             2,
             "equivalence/offload_equivalence",
             {stage(3), "world.ranks_per_node=2", "deepspeed.zero_optimization.offload_optimizer.device=nvme",
              R"(deepspeed.zero_optimization.offload_param={"device":"nvme","nvme_path":"nvme"})"}},
        Case{"PageableMemoryIsReadLate",
             2,
             "equivalence/offload_equivalence",
             {stage(2), "world.ranks_per_node=2", "deepspeed.zero_optimization.offload_optimizer.device=cpu"},
             "SEEKSIM_STANDIN_READS_PAGEABLE=1 SEEKSIM_STANDIN_DELAYS=3"}),
    name_of);

TEST_F(MpiStandin, WritesCheckpointsAndGoesOnFromThem) {
  Sets sets = {stage(2),
               "world.ranks_per_node=2",
               "golden={}",
               R"(checks=["golden:bitwise"])",
               R"(checkpoint={"path":"checkpoints","at_end":true})",
               "steps=2"};
  const std::string out = "--out " + in_quotes(folder() + "/out");
  ASSERT_EQ(nccl(2, "zero_equivalence", sets, "X=", out).status, 0);
  sets.back() = "steps=3";
  const Ran again = nccl(2, "zero_equivalence", sets, "X=", out + " --resume");
  EXPECT_EQ(again.status, 0) << again.text;
}

// ---- faults --------------------------------------------------------------------------------------------------------

const char* const kUndisturbed = R"(checks=["golden:bitwise","ranks_agree","faults_fired",{"evicted":[]}])";

class MpiStandinFaults : public MpiStandin, public testing::WithParamInterface<Case> {};

TEST_P(MpiStandinFaults, AreSurvived) {
  const Case& of = GetParam();
  const Ran ran = nccl(of.ranks, std::string("faults/") + of.scenario, of.sets, of.environment);
  ASSERT_EQ(ran.status, 0) << ran.text;
  const Json told = report("nccl");
  ASSERT_FALSE(told["faults"].empty());
  for (const Json& fault : told["faults"]) EXPECT_GT(fault["fired"].get<int>(), 0) << fault;
}

INSTANTIATE_TEST_SUITE_P(
    Scenarios, MpiStandinFaults,
    testing::Values(Case{"Late", 4, "f01_late", {"recovery.watchdog_s=20", "faults.0.delay_s=0.5", kUndisturbed}},
                    // Only our watchdog notices: all communicators are aborted, and the step is done again.
                    Case{"SilentBeyondTheWatchdog",
                         4,
                         "f01_late",
                         {"recovery.watchdog_s=2", "faults.0.delay_s=4", kUndisturbed},
                         "X="},
                    Case{"NaN", 4, "f11_nan", {"recovery.watchdog_s=3"}},
                    Case{"FlippedGradient", 4, "f13_gradient_flip", {"recovery.watchdog_s=20"}},
                    Case{"FlippedParameter", 4, "f12_parameter_flip", {"recovery.watchdog_s=20"}},
                    Case{"OutOfMemoryAtOnce",
                         4,
                         "f16_oom",
                         {"recovery.watchdog_s=30", R"(faults.0={"kind":"oom","rank":1,"call":20})"}},
                    Case{"OutOfMemoryInACommunicator",
                         4,
                         "f16_oom",
                         {"recovery.watchdog_s=30", R"(faults.0={"kind":"oom","rank":1,"op":"comm_create"})"}},
                    Case{"PinnedMemory", 4, "f17_pinned", {}},
                    Case{"DataError",
                         4,
                         "f25_data_stall",
                         {"recovery.watchdog_s=3",
                          R"(faults=[{"kind":"data_error","rank":1,"step":2,"micro_batch":1}])", kUndisturbed}},
                    Case{"DeviceLost", 4, "f27_device_error", {"recovery.watchdog_s=3", "recovery.agree_s=2"}, "X="},
                    Case{"Pause",
                         4,
                         "f32_false_positive",
                         {"recovery.watchdog_s=20", kUndisturbed,
                          R"(faults=[{"kind":"pause","rank":2,"step":2,"op":"reduce_scatter","delay_s":0.5}])"}}),
    name_of);

// ---- a killed process ----------------------------------------------------------------------------------------------

class MpiStandinLaunch : public MpiStandin {
 protected:
  void SetUp() override {
    MpiStandin::SetUp();
    if (IsSkipped()) return;
    std::ofstream(folder() + "/job.json") << R"({ "name": "job", "why": "Killed in the middle.",
      "model": { "layers": 1, "width": 16, "heads": 2, "context": 8, "vocab": 64 },
      "data": { "synthetic": true },
      "world": { "nodes": 1, "ranks_per_node": 3 },
      "deepspeed": { "train_batch_size": 12, "train_micro_batch_size_per_gpu": 2, "zero_optimization": { "stage": 2 } },
      "steps": 12,
      "recovery": { "policy": "restart_from_checkpoint", "agree_s": 5 },
      "checkpoint": { "path": "checkpoints", "every_steps": 3 },
      "checks": [ "golden:bitwise", "ranks_agree", "one_history" ] })";
  }
};

TEST_F(MpiStandinLaunch, AKilledRankIsSurvived) {
  const Ran ran = shell("timeout 100 " + seeksim::paths::program() +
                        " launch --backend nccl --heartbeat 0.2 --silent 2 --start-limit 20 --max-restarts 3 --out " +
                        in_quotes(folder() + "/out") + " --report " + in_quotes(folder() + "/nccl.json") + " " +
                        in_quotes(folder() + "/job.json") +
                        R"( --set 'faults=[{"kind":"rank_crash","rank":1,"step":7,"op":"reduce_scatter"}]')");
  ASSERT_EQ(ran.status, 0) << ran.text;
  const Json told = report("nccl");
  EXPECT_EQ(told["verdict"], "pass");
  EXPECT_EQ(told["jobs_before"].size(), 1u) << ran.text;
  EXPECT_EQ(told["faults"][0]["fired"], 1);
}

// Processes that no launcher ends together: the others go on without one that is gone.
class StandinTcp : public MpiStandinLaunch, public testing::WithParamInterface<const char*> {
 protected:
  static constexpr int kRanks = 3;

  // environment: of the last rank.
  pid_t start(int rank, int port, const char* environment = nullptr) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    const std::string number = std::to_string(rank), job = folder() + "/job.json", out = folder() + "/out";
    const std::string to = folder() + "/rank" + number, report = folder() + "/nccl.json";
    for (const auto& [name, value] : {std::pair<const char*, std::string>{"RANK", number},
                                      {"LOCAL_RANK", number},
                                      {"WORLD_SIZE", "3"},
                                      {"MASTER_ADDR", "127.0.0.1"},
                                      {"MASTER_PORT", std::to_string(port)},
                                      {"SEEKSIM_STANDIN_NETWORK", GetParam()}})
      ::setenv(name, value.c_str(), 1);
    if (environment != nullptr && rank == kRanks - 1) ::putenv(const_cast<char*>(environment));
    if (std::freopen(to.c_str(), "w", stdout) == nullptr || std::freopen(to.c_str(), "a", stderr) == nullptr)
      ::_exit(9);
    ::execl(seeksim::paths::program().c_str(), "seeksim", "run", job.c_str(), "--backend", "nccl", "--out", out.c_str(),
            "--report", report.c_str(), "--set", R"(recovery={"policy":"rebuild_and_redo","watchdog_s":3,"agree_s":3})",
            "--set", R"(checks=["golden:bitwise","one_history",{"evicted":[2]}])", "--set",
            "batch_arithmetic=by_samples", "--set", "deepspeed.zero_optimization.stage=1", "--set", "steps=60",
            nullptr);
    ::_exit(9);
  }
  std::vector<pid_t> start_all(const char* environment = nullptr) {
    const int port = 10'000 + ::getpid() % 20'000;  // below what connections are given
    std::vector<pid_t> processes;
    for (int rank = 0; rank < kRanks; ++rank) processes.push_back(start(rank, port, environment));
    return processes;
  }
  // When it has ended, well, without the last rank.
  std::string text_of_the_first(const std::vector<pid_t>& processes, bool last_lives) {
    int status = -1;
    const bool ended = within(40, [&] { return ::waitpid(processes[0], &status, WNOHANG) == processes[0]; });
    EXPECT_TRUE(ended);
    if (ended && last_lives) {
      int of_the_last = -1;
      EXPECT_TRUE(within(20, [&] { return ::waitpid(processes[2], &of_the_last, WNOHANG) == processes[2]; }));
      EXPECT_TRUE(WIFEXITED(of_the_last)) << "by signal " << WTERMSIG(of_the_last);
    }
    for (const pid_t process : processes) ::kill(process, SIGKILL), ::waitpid(process, nullptr, 0);
    std::ifstream file(folder() + "/rank0");
    std::string text(std::istreambuf_iterator<char>(file), {});
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << text;
    EXPECT_NE(text.find("evicted rank 2; 2 survivors: 0, 1"), std::string::npos) << text;
    return text;
  }
  bool has_saved() const {
    std::error_code none;
    for (fs::directory_iterator at(folder() + "/out/checkpoints", none), end; !none && at != end; at.increment(none)) {
      if (fs::exists(at->path() / "manifest.json", none)) return true;
    }
    return false;
  }
  static bool within(int seconds, const std::function<bool()>& what) {
    for (int i = 0; i < seconds * 500; ++i) {
      if (what()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }
};

// As within a node: no peer hears of it, and the watchdog notices. As over a network: the peers hear of it at once.
TEST_P(StandinTcp, AKilledProcessIsSurvived) {
  const std::vector<pid_t> processes = start_all();
  EXPECT_TRUE(within(40, [&] { return has_saved(); }));
  EXPECT_EQ(::kill(processes[2], SIGKILL), 0);
  const std::string text = text_of_the_first(processes, false);
  const auto told = [&](const char* what) { return text.find(what) != std::string::npos; };
  if (*GetParam() == '1')
    EXPECT_TRUE(told("remote_error in")) << text;
  else  // in a vote it is missed at once: the control plane sees its connection
    EXPECT_TRUE(told("timeout in") || told("in vote")) << text;
}

// Its process lives, and ends in order; once while communicators are made, once in training.
TEST_P(StandinTcp, ALostGpuIsSurvived) {
  for (const char* breaks : {"SEEKSIM_STANDIN_BREAKS=50", "SEEKSIM_STANDIN_BREAKS=300"}) {
    const std::vector<pid_t> processes = start_all(breaks);
    const std::string text = text_of_the_first(processes, true);
    EXPECT_NE(text.find("its device is lost"), std::string::npos) << text;
    shell("rm -rf " + in_quotes(folder() + "/out"));
  }
}

INSTANTIATE_TEST_SUITE_P(MpiRuns, StandinTcp, testing::Values("0", "1"),
                         [](const auto& of) { return *of.param == '1' ? "OverANetwork" : "WithinANode"; });

// ---- red -----------------------------------------------------------------------------------------------------------

TEST_F(MpiStandin, APlantedBugTurnsItRed) {
  const Ran ran = nccl(2, "zero_equivalence", {stage(0), "world.ranks_per_node=2", "bug=drifting_replica"});
  EXPECT_EQ(ran.status, 1) << ran.text;
  EXPECT_NE(ran.text.find("replicas_equal"), std::string::npos) << ran.text;
}

// The oracle of all the bits above: were a wait for an event missing, they would be others.
TEST_F(MpiStandin, ForgottenWaitsTurnItRed) {
  const Ran ran =
      nccl(2, "zero_equivalence",
           {stage(3), "world.ranks_per_node=2", "recovery={\"policy\":\"rebuild_and_redo\",\"watchdog_s\":5}"},
           "SEEKSIM_STANDIN_FORGETS_WAITS=1 SEEKSIM_STANDIN_DELAYS=1");
  EXPECT_EQ(ran.status, 1) << ran.text;
  EXPECT_NE(ran.text.find("failed: golden:bitwise"), std::string::npos) << ran.text;
}

// The budget has room, but the "GPU" has not.
TEST_F(MpiStandin, MemoryThatOthersHaveIsOutOfMemory) {
  const Ran ran = nccl(2, "zero_equivalence", {stage(0), "world.ranks_per_node=2"}, "SEEKSIM_STANDIN_MEMORY=50000");
  EXPECT_EQ(ran.status, 1) << ran.text;
  EXPECT_NE(ran.text.find("has none left, though the budget"), std::string::npos) << ran.text;
  EXPECT_EQ(ran.text.find("bug in seeksim"), std::string::npos) << ran.text;
}

// ---- several ranks on one "GPU" ------------------------------------------------------------------------------------

// Told before anything runs, by what the processes see of their GPUs.
TEST_F(MpiStandin, TwoRanksOnOneGpuAreRefusedWhereNcclDoesNotTakeThem) {
  for (const auto& [nccl_is, words] :
       {std::pair{"SEEKSIM_STANDIN_NCCL=22809 NCCL_MULTI_RANK_GPU_ENABLE=1", "from 2.30 on it takes several"},
        std::pair{"SEEKSIM_STANDIN_NCCL=23003", "unless NCCL_MULTI_RANK_GPU_ENABLE=1 is set"}}) {
    const Ran ran = nccl(2, "zero_equivalence", {stage(0), "world.ranks_per_node=2"},
                         std::string("SEEKSIM_STANDIN_GPUS=1 ") + nccl_is);
    EXPECT_EQ(ran.status, 2) << ran.text;
    EXPECT_NE(ran.text.find("ranks 0 and 1 would share one GPU"), std::string::npos) << ran.text;
    EXPECT_NE(ran.text.find(words), std::string::npos) << ran.text;
  }
}

TEST_F(MpiStandin, RanksShareOneGpuWhereNcclTakesThem) {
  for (const int ranks : {2, 4}) {
    const Ran ran = nccl(ranks, "zero_equivalence",
                         {stage(3), "world.ranks_per_node=" + std::to_string(ranks), "batch_arithmetic=by_samples"},
                         "SEEKSIM_STANDIN_GPUS=1 SEEKSIM_STANDIN_NCCL=23003 NCCL_MULTI_RANK_GPU_ENABLE=1");
    EXPECT_EQ(ran.status, 0) << ran.text;
    EXPECT_EQ(report("nccl")["verdict"], "pass");
  }
}

// ---- simulated ranks on one "GPU" ----------------------------------------------------------------------------------

class StandinDevice : public testing::TestWithParam<Case> {};

TEST_P(StandinDevice, HasTheCpusBits) {
  std::string command = std::string(GetParam().environment) + " " + seeksim::paths::program() + " run scenarios/" +
                        GetParam().scenario + ".json --device cuda --set 'sweep=[]'";
  for (const std::string& set : GetParam().sets) command += " --set " + in_quotes(set);
  const Ran ran = shell(command);
  EXPECT_EQ(ran.status, 0) << ran.text;  // golden:bitwise, of the CPU
}

INSTANTIATE_TEST_SUITE_P(
    Runs, StandinDevice,
    testing::Values(
        Case{"Stage0", 3, "zero_equivalence", {stage(0), "world.ranks_per_node=3"}},
        Case{"Stage3", 3, "zero_equivalence", {stage(3), "world.ranks_per_node=3"}},
        Case{"Pipeline", 2, "equivalence/pipeline_equivalence", {}},
        Case{"Tensor", 4, "equivalence/tensor_equivalence", {"world.tensor=4", "world.ranks_per_node=4"}, "X="},
        Case{"Llama", 1, "equivalence/llama_equivalence", {stage(3)}, "X="},
        Case{"Bf16",
             2,
             "equivalence/precision_equivalence",
             {"deepspeed.bf16.enabled=true", stage(2), "world.ranks_per_node=2"}},
        Case{"NaNAndItsBirth", 1, "numbers/nan_anywhere", {}, "X="},
        Case{"FlipFoundByRunningTwice", 1, "numbers/rerun_bit_flip", {}, "X="},
        Case{"Restart", 1, "deaths/job_restart", {}, "X="}),
    name_of);

// Rows of a sweep, and scenarios beside each other, run in processes that are forked: CUDA must be fresh in them.
TEST(StandinDeviceForks, RowsOfASweepRunInProcessesOfTheirOwn) {
  const Ran ran = shell(seeksim::paths::program() +
                        " run scenarios/zero_equivalence.json --device cuda -j 2 --set "
                        "'sweep=[{\"world.ranks_per_node\":[1,2,3]}]'");
  EXPECT_EQ(ran.status, 0) << ran.text;
  EXPECT_NE(ran.text.find("all 3 rows are as expected"), std::string::npos) << ran.text;
}

TEST(StandinDeviceMemory, WithoutMemoryItSaysSo) {
  const Ran ran = shell("SEEKSIM_STANDIN_MEMORY=50000 " + seeksim::paths::program() +
                        " run scenarios/zero_equivalence.json --device cuda --set 'sweep=[]'");
  EXPECT_EQ(ran.status, 1) << ran.text;
  EXPECT_NE(ran.text.find("has none left, though the budget"), std::string::npos) << ran.text;
}

}  // namespace
}  // namespace seeksim
