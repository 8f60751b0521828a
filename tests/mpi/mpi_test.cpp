// Real processes under mpirun: the same scenario gives the simulator's bits, and what processes cannot do is rejected.
// Without MPI these tests are skipped, and say so.
#include <arpa/inet.h>
#include <sys/socket.h>

#include "tests/support/processes.h"

namespace seeksim {
namespace {

std::vector<std::string> zero(int stage, int ranks) {
  return {"deepspeed.zero_optimization.stage=" + std::to_string(stage), "world.ranks_per_node=" + std::to_string(ranks),
          "batch_arithmetic=by_samples"};
}

class MpiZero : public Mpi, public testing::WithParamInterface<std::pair<int, int>> {};

TEST_P(MpiZero, HasTheSimulatorsBits) {
  const auto [stage, processes] = GetParam();
  std::vector<std::string> sets = zero(stage, processes);
  sets.push_back("deepspeed.zero_optimization.overlap_comm=" + std::string(stage % 2 == 0 ? "true" : "false"));
  expect_the_simulators_bits(processes, "zero_equivalence", sets);
}

INSTANTIATE_TEST_SUITE_P(Stages, MpiZero,
                         testing::Values(std::pair{0, 2}, std::pair{1, 2}, std::pair{2, 2}, std::pair{3, 2},
                                         std::pair{0, 4}, std::pair{1, 4}, std::pair{2, 4}, std::pair{3, 4}));

class MpiOffload : public Mpi, public testing::WithParamInterface<std::pair<int, int>> {};

TEST_P(MpiOffload, ToRealFilesHasTheSimulatorsBits) {
  const auto [stage, processes] = GetParam();
  std::vector<std::string> sets = zero(stage, processes);
  sets.push_back("deepspeed.zero_optimization.offload_optimizer.device=nvme");
  if (stage == 3) sets.push_back(R"(deepspeed.zero_optimization.offload_param={"device":"nvme","nvme_path":"nvme"})");
  expect_the_simulators_bits(processes, "equivalence/offload_equivalence", sets);
}

INSTANTIATE_TEST_SUITE_P(Stages, MpiOffload,
                         testing::Values(std::pair{1, 2}, std::pair{2, 2}, std::pair{3, 2}, std::pair{1, 4},
                                         std::pair{2, 4}, std::pair{3, 4}));

TEST_F(Mpi, RunsPipelinesAndTensorWays) {
  expect_the_simulators_bits(2, "equivalence/parallel_3d", {"world.pipeline=2", "world.tensor=1", "world.replicas=1"});
  expect_the_simulators_bits(4, "equivalence/parallel_3d", {"world.pipeline=2", "world.tensor=2", "world.replicas=1"});
}

TEST_F(Mpi, RunsExpertsThatAreDividedAmongRanks) {
  for (const char* stage : {"0", "1", "2", "3"})
    expect_the_simulators_bits(4, "equivalence/expert_parallel",
                               {"model.experts=4", "world.replicas=4", "world.expert=2",
                                std::string("deepspeed.zero_optimization.stage=") + stage});
}

TEST_F(Mpi, RunsExpertsThatAreCountedOverAMicroBatch) {
  expect_the_simulators_bits(2, "quirks/experts_by_micro_batch",
                             {"world.replicas=2", "deepspeed.train_micro_batch_size_per_gpu=4"});
  expect_the_simulators_bits(4, "quirks/experts_by_micro_batch",
                             {"world.expert=2", "deepspeed.zero_optimization.stage=2"});
}

TEST_F(Mpi, RunsADeepSeek) {
  for (const char* stage : {"0", "3"}) {
    const std::string zero = std::string("deepspeed.zero_optimization.stage=") + stage;
    expect_the_simulators_bits(2, "equivalence/deepseek", {zero});
    expect_the_simulators_bits(
        4, "equivalence/deepseek",
        {zero, "world.ranks_per_node=4", "world.expert=2", "deepspeed.train_micro_batch_size_per_gpu=1"});
    expect_the_simulators_bits(4, "equivalence/deepseek_tensor", {zero, "world.sequence_parallel=true"});
  }
}

TEST_F(Mpi, RunsExpertsOnTheStagesOfAPipeline) {
  constexpr const char* kSweep = "equivalence/expert_pipeline";
  for (const char* stage : {"0", "1", "2", "3"})
    expect_the_simulators_bits(4, kSweep,
                               {"world.expert=2", std::string("deepspeed.zero_optimization.stage=") + stage});
  expect_the_simulators_bits(4, kSweep, {"world.expert=2", "world.schedule=zero_bubble"});
  expect_the_simulators_bits(2, kSweep, {"world.replicas=1"});
}

TEST_F(Mpi, RunsExpertsThatTensorWaysHaveSlabsOf) {
  for (const char* stage : {"0", "3"})
    expect_the_simulators_bits(4, "equivalence/expert_tensor",
                               {"world.replicas=2", "world.expert=2", "world.tensor=2",
                                std::string("deepspeed.zero_optimization.stage=") + stage});
}

TEST_F(Mpi, RunsContextGroups) {
  const auto zero = [](int stage) { return "deepspeed.zero_optimization.stage=" + std::to_string(stage); };
  for (const int stage : {0, 1, 2, 3})
    expect_the_simulators_bits(2, "equivalence/context_parallel", {"world.replicas=1", zero(stage)});
  for (const int stage : {0, 3})
    expect_the_simulators_bits(4, "equivalence/context_parallel",
                               {"world.context_cut=zigzag", "model.family=llama", "model.dropout=0.2", zero(stage)});
}

TEST_F(Mpi, RunsWorkersThatTrainApart) {
  for (const char* outer : {"average", "nesterov"})
    for (const int processes : {2, 4})
      expect_the_simulators_bits(
          processes, "equivalence/local_sgd",
          {"world.ranks_per_node=" + std::to_string(processes), std::string("local_sgd.outer.type=") + outer});
}

TEST_F(Mpi, RunsWorkersWhoseGradientsComeLate) {
  for (const char* delays : {"most", "drawn"})
    for (const char* stage : {"0", "1"})
      for (const int processes : {2, 4})
        expect_the_simulators_bits(
            processes, "equivalence/staleness",
            {"world.ranks_per_node=" + std::to_string(processes), std::string("staleness.delays=") + delays,
             std::string("deepspeed.zero_optimization.stage=") + stage});
}

TEST_F(Mpi, RunsLayoutsInFsdpsWords) {
  for (const char* fsdp : {R"(fsdp={"shard_size":2})", R"(fsdp={"reshard_after_forward":2,"param_dtype":"bf16"})",
                           R"(fsdp={"version":1,"sharding_strategy":"SHARD_GRAD_OP"})"})
    expect_the_simulators_bits(4, "equivalence/fsdp", {"world.ranks_per_node=4", fsdp});
}

TEST_F(Mpi, RunsOneBitAdam) {
  for (const int processes : {2, 4})
    expect_the_simulators_bits(
        processes, "equivalence/onebit_adam",
        {"world.ranks_per_node=" + std::to_string(processes), "deepspeed.bf16.enabled=true", "compression.groups=8"});
}

TEST_F(Mpi, SumsFactorsOfMatrices) {
  for (const int processes : {2, 4})
    expect_the_simulators_bits(
        processes, "equivalence/power",
        {"world.ranks_per_node=" + std::to_string(processes), "deepspeed.bf16.enabled=true", "compression.groups=8"});
}

TEST_F(Mpi, GathersQuantisedWeights) {
  for (const int processes : {2, 4}) {
    const std::string world = "world.ranks_per_node=" + std::to_string(processes);
    for (const char* threshold : {"0", "3000"})
      expect_the_simulators_bits(
          processes, "equivalence/qwz",
          {world, std::string("deepspeed.zero_optimization.stage3_param_persistence_threshold=") + threshold});
    expect_the_simulators_bits(processes, "equivalence/qwz",
                               {world, "deepspeed.bf16.enabled=true", "model.family=llama",
                                "quantized_weights_block=64", "checkpointing={\"every\":1}"});
  }
}

TEST_F(Mpi, SendsQuantisedGradients) {
  for (const int processes : {2, 4}) {
    const std::string world = "world.ranks_per_node=" + std::to_string(processes);
    for (const char* stage : {"2", "3"})
      for (const char* codes :
           {R"({"groups":8,"block":64})", R"({"groups":16,"inner":2})", R"({"groups":16,"inner":16})"})
        expect_the_simulators_bits(processes, "equivalence/qgz",
                                   {world, std::string("deepspeed.zero_optimization.stage=") + stage,
                                    std::string("quantized_gradients=") + codes});
    expect_the_simulators_bits(processes, "equivalence/qgz",
                               {world, "deepspeed.bf16.enabled=true", "model.family=llama",
                                "deepspeed.zero_optimization.zero_quantized_weights=true"});
  }
}

TEST_F(Mpi, RunsGathersInRounds) {
  for (const char* rule : {"ring", "doubling"})
    for (const char* stage : {"0", "1", "2", "3"})
      for (const int processes : {2, 4})
        expect_the_simulators_bits(
            processes, "equivalence/gather_rounds",
            {"world.ranks_per_node=" + std::to_string(processes), std::string("world.all_gather=") + rule,
             std::string("deepspeed.zero_optimization.stage=") + stage});
}

TEST_F(Mpi, RunsRings) {
  const auto zero = [](int stage) { return "deepspeed.zero_optimization.stage=" + std::to_string(stage); };
  for (const int stage : {0, 1, 2, 3})
    expect_the_simulators_bits(2, "equivalence/ring_attention", {"world.replicas=1", zero(stage)});
  for (const int stage : {0, 3}) {
    expect_the_simulators_bits(4, "equivalence/ring_attention",
                               {"world.context_cut=zigzag", "model.dropout=0.2", zero(stage)});
    expect_the_simulators_bits(4, "equivalence/ring_attention",
                               {"world.context=4", "world.replicas=1", "model.family=llama", zero(stage)});
  }
}

TEST_F(Mpi, RunsShardGroups) {
  for (const char* stage : {"1", "2", "3"})
    expect_the_simulators_bits(
        4, "equivalence/hsdp",
        {"world.nodes=1", "world.replicas=4", std::string("deepspeed.zero_optimization.stage=") + stage});
}

TEST_F(Mpi, RunsTensorWaysWithSequenceParallelism) {
  for (const char* stage : {"0", "3"}) {
    expect_the_simulators_bits(
        4, "equivalence/tensor_equivalence",
        {"world.tensor=2", "world.ranks_per_node=4", "world.sequence_parallel=true", "batch_arithmetic=by_samples",
         "model.dropout=0.2", std::string("deepspeed.zero_optimization.stage=") + stage});
  }
}

// Fast arithmetic has bits of its own; they are the same wherever the same ring goes round.
TEST_F(Mpi, FastArithmeticHasTheSimulatorsFastBits) {
  for (const int stage : {0, 2}) expect_the_simulators_bits(2, "equivalence/fast_within_bounds", zero(stage, 2));
}

// The comparison with the contract is made where the run is: each process compares its own operations.
TEST_F(Mpi, FastArithmeticIsComparedOnTheProcesses) {
  std::vector<std::string> sets = zero(2, 3);
  sets.push_back("sweep=[]");
  const Ran simulated =
      shell(arguments("equivalence/fast_within_bounds", sets) + " --report " + in_quotes(folder() + "/sim.json"));
  ASSERT_EQ(simulated.status, 0) << simulated.text;
  const Ran real = mpi(3, "equivalence/fast_within_bounds", sets);
  ASSERT_EQ(real.status, 0) << real.text;
  EXPECT_NE(real.text.find("compared on these processes"), std::string::npos) << real.text;
  const Json mine = report("mpi")["fast"], theirs = report("sim")["fast"];
  EXPECT_EQ(mine["compared_on"], "mpi");
  EXPECT_EQ(theirs["compared_on"], "sim");
  EXPECT_TRUE(mine["operands_are_canonical"].get<bool>());
  EXPECT_EQ(mine["loss_by_contract"], theirs["loss_by_contract"]);
  for (const char* kind : {"products", "sums"}) {
    for (const char* key : {"ops", "elements", "worst_ratio"}) EXPECT_EQ(mine[kind][key], theirs[kind][key]) << key;
  }
  sets.push_back("bug=fast_ring_in_bf16");
  const Ran red = mpi(3, "equivalence/fast_within_bounds", sets);
  EXPECT_EQ(red.status, 1) << red.text;
  const Json first = report("mpi")["fast"]["first_over"];
  EXPECT_EQ(first["what"], "sum");
  EXPECT_EQ(first["step"], 0);
  EXPECT_GE(first["rank"].get<int>(), 0);
}

// A file of the scenario is missing for one process, as on another host: that process says so, and none waits for it.
TEST_F(Mpi, AProcessThatCannotTakePartEndsAll) {
  const std::string as_root = ::getuid() == 0 ? " --allow-run-as-root" : "";
  std::ofstream(folder() + "/text.txt") << std::string(5000, 'x');
  std::ofstream(folder() + "/s.json") << R"({ "name": "s", "model": { "family": "gpt2", "layers": 1, "width": 16,
      "heads": 2, "context": 8, "vocab": 256 }, "data": { "text": "text.txt" },
      "world": { "nodes": 1, "ranks_per_node": 2 }, "deepspeed": { "train_batch_size": 4,
      "train_micro_batch_size_per_gpu": 1 }, "steps": 2 })";
  const std::string run = seeksim::paths::program() + " run s.json --backend mpi";
  const auto together = [&](const std::string& elsewhere) {
    return shell("cd " + in_quotes(folder()) + " && timeout 60 mpirun --oversubscribe" + as_root + " -np 1 " + run +
                 " : -np 1 -wdir " + elsewhere + " " + run);
  };
  const Ran whole = together(in_quotes(folder()));
  EXPECT_EQ(whole.status, 0) << whole.text;
  const Ran ran = together("/");
  EXPECT_EQ(ran.status, 2) << ran.text;
  EXPECT_NE(ran.text.find("process 1 cannot take part: "), std::string::npos) << ran.text;
  EXPECT_NE(ran.text.find("text.txt"), std::string::npos) << ran.text;
}

TEST_F(Mpi, ASweepRunsEachRowOnTheFirstProcesses) {
  const Ran ran = mpi(3, "zero_equivalence",
                      {R"(sweep=[{"deepspeed.zero_optimization.stage":[0,3],"world.ranks_per_node":[1,2,3]}])"});
  EXPECT_EQ(ran.status, 0) << ran.text;
  EXPECT_EQ(report("mpi")["rows"].size(), 6u);
}

TEST_F(Mpi, RowsOfMoreRanksThanProcessesAreLeftOutAndSaidToBe) {
  const Ran ran = mpi(2, "zero_equivalence",
                      {R"(sweep=[{"deepspeed.zero_optimization.stage":[0,3],"world.ranks_per_node":[1,2,3]}])"});
  EXPECT_EQ(ran.status, 0) << ran.text;
  EXPECT_NE(ran.text.find("all 4 rows are as expected; 2 more were not run, with more ranks than the 2 processes here"),
            ran.text.npos)
      << ran.text;
  EXPECT_EQ(report("mpi")["rows_not_run"], 2);
  const Ran none = mpi(2, "zero_equivalence", {R"(sweep=[{"seed":[1,2],"world.ranks_per_node":[3]}])"});
  EXPECT_EQ(none.status, 2) << none.text;
  EXPECT_NE(none.text.find("each row of the sweep has 3 ranks or more, and there are 2 processes"), none.text.npos)
      << none.text;
}

// A death ends the whole job here. One scenario with it is refused; of a sweep the other rows are run.
TEST_F(Mpi, RowsThatProcessesCannotRunAreLeftOutAndSaidToBe) {
  const std::string death = R"([{"kind":"rank_crash","rank":1,"step":1,"op":"vote"}])";
  std::vector<std::string> sets = zero(0, 2);
  sets.push_back(R"(sweep=[{"deepspeed.zero_optimization.stage":[0,3],"faults":[[],)" + death + "]}]");
  const Ran ran = mpi(2, "zero_equivalence", sets);
  EXPECT_EQ(ran.status, 0) << ran.text;
  EXPECT_NE(ran.text.find("all 2 rows are as expected; 2 more were not run: --backend mpi: rank_crash ends a process"),
            ran.text.npos)
      << ran.text;
  EXPECT_EQ(report("mpi")["rows_not_run"], 2);
  sets.back() = "sweep=[]";
  sets.push_back("faults=" + death);
  EXPECT_EQ(mpi(2, "zero_equivalence", sets).status, 2);
}

// Without MPI: the test starts the processes itself, with torchrun's variables.
TEST_F(Mpi, ProcessesWithTorchrunsVariablesHaveTheSimulatorsBits) {
  std::vector<std::string> sets = zero(3, 3);
  sets.emplace_back("sweep=[]");
  const std::string port = std::to_string(10'000 + ::getpid() % 20'000);  // below what connections are given
  std::string command;
  for (const char* rank : {"2", "1", "0"}) {
    command += std::string("RANK=") + rank + " LOCAL_RANK=" + rank +
               " WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port + " timeout 60 " +
               arguments("zero_equivalence", sets) + " --backend mpi --report " + in_quotes(folder() + "/mpi.json") +
               (*rank != '0' ? " & " : "");
  }
  const Ran real = shell("(" + command + ")");
  ASSERT_EQ(real.status, 0) << real.text;
  const Ran simulated = shell(arguments("zero_equivalence", sets) + " --report " + in_quotes(folder() + "/sim.json"));
  ASSERT_EQ(simulated.status, 0) << simulated.text;
  EXPECT_EQ(report("mpi")["backend"], "tcp");
  EXPECT_EQ(report("mpi")["params_digest"], report("sim")["params_digest"]);
}

TEST_F(Mpi, APortThatSomebodyElseHasIsToldSo) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  socklen_t length = sizeof at;
  ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&at), length), 0);
  ASSERT_EQ(::listen(socket, 1), 0);
  ASSERT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&at), &length), 0);
  const std::string port = std::to_string(ntohs(at.sin_port));
  const Ran ran = shell("RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port + " timeout 60 " +
                        arguments("zero_equivalence", {}) + " --backend mpi");
  ::close(socket);
  EXPECT_EQ(ran.status, 2) << ran.text;
  EXPECT_NE(ran.text.find(":" + port + ": Address already in use"), std::string::npos) << ran.text;
  EXPECT_NE(ran.text.find("MASTER_PORT that is free"), std::string::npos) << ran.text;
}

TEST_F(Mpi, WritesCheckpointsAndGoesOnFromThem) {
  std::vector<std::string> sets = zero(2, 2);
  sets.insert(sets.end(), {"sweep=[]", "golden={}", R"(checks=["golden:bitwise"])",
                           R"(checkpoint={"path":"checkpoints","at_end":true})"});
  const std::string out = "--out " + in_quotes(folder() + "/out");
  sets.emplace_back("steps=2");
  ASSERT_EQ(mpi(2, "zero_equivalence", sets, out).status, 0);
  sets.back() = "steps=3";
  const Ran again = mpi(2, "zero_equivalence", sets, out + " --resume");
  EXPECT_EQ(again.status, 0) << again.text;
}

// The first process reports for both, also what only the other one has found.
TEST_F(Mpi, ExplorationIsSpreadOverProcesses) {
  const std::string scenario = folder() + "/tiny.json";
  std::ofstream(scenario)
      << R"({ "name": "tiny", "model": { "layers": 1, "width": 8, "heads": 2, "context": 4, "vocab": 16 },
    "data": { "synthetic": true }, "world": { "nodes": 2, "ranks_per_node": 2 },
    "deepspeed": { "train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "zero_optimization": { "stage": 1 },
                   "optimizer": { "type": "AdamW", "params": { "lr": 1e-2 } } },
    "steps": 3, "recovery": { "policy": "rebuild_and_redo", "watchdog_s": 60 }, "checks": [ "golden:bitwise" ] })";
  const auto explore = [&](const std::string& more) {
    const std::string as_root = ::getuid() == 0 ? " --allow-run-as-root" : "";
    return shell("timeout 120 mpirun --oversubscribe" + as_root + " -np 2 " + seeksim::paths::program() + " explore " +
                 in_quotes(scenario) + " -j 1 --budget 100s --out " + in_quotes(folder() + "/found") + " --report " +
                 in_quotes(folder() + "/explore.json") + " " + more);
  };
  const Ran fine = explore("--cases 10");
  EXPECT_EQ(fine.status, 0) << fine.text;
  EXPECT_EQ(report("explore")["cases"], 20);
  const Ran red = explore("--cases 60 --set bug=redoes_committed_step");
  EXPECT_EQ(red.status, 1) << red.text;
  EXPECT_EQ(report("explore")["cases"], 120);
  ASSERT_FALSE(report("explore")["found"].empty());
  for (const Json& found : report("explore")["found"])
    EXPECT_TRUE(std::filesystem::exists(found["file"].get<std::string>())) << found;
}

// ---- red -----------------------------------------------------------------------------------------------------------

TEST_F(Mpi, APlantedBugTurnsItRed) {
  std::vector<std::string> sets = zero(0, 2);
  sets.insert(sets.end(), {"sweep=[]", "bug=drifting_replica"});
  const Ran ran = mpi(2, "zero_equivalence", sets);
  EXPECT_EQ(ran.status, 1) << ran.text;
  EXPECT_NE(ran.text.find("replicas_equal"), std::string::npos) << ran.text;
}

TEST_F(Mpi, MembersThatBringOtherOperationsAreTold) {
  std::vector<std::string> sets = zero(0, 2);
  sets.insert(sets.end(), {"sweep=[]", "bug=half_message", "world.pipeline=2", R"(recovery={"policy":"stop"})",
                           R"(checks=["golden:bitwise"])"});  // the formulas know no pipeline
  const Ran ran = mpi(2, "zero_equivalence", sets);
  EXPECT_EQ(ran.status, 1) << ran.text;
  for (const char* words : {"rank 1 called a different operation than send_gradient #1 of step 0", "collectives_match",
                            "rank 1 sent 120 bytes of a send_gradient (step 0, micro-batch 0)"})
    EXPECT_NE(ran.text.find(words), std::string::npos) << "not said: " << words << '\n' << ran.text;
}

// A scenario of simulated ranks runs as it is: what only virtual time can judge is skipped, and counted.
TEST_F(Mpi, ChecksOfVirtualTimeAreSkipped) {
  const Ran ran = mpi(4, "baseline", {}, "--junit " + in_quotes(folder() + "/j.xml"));
  EXPECT_EQ(ran.status, 0) << ran.text;
  for (const char* words :
       {"skip      finishes_within_virtual_s:60", "ok    golden:bitwise", ", 1 skipped; 4 of 4 ranks"})
    EXPECT_NE(ran.text.find(words), std::string::npos) << "not said: " << words << '\n' << ran.text;
}

TEST_F(Mpi, WhatProcessesCannotDoIsRefusedByName) {
  const auto refused = [&](const std::string& scenario, const std::vector<std::string>& sets, const std::string& words,
                           const std::string& more = "") {
    const Ran ran = mpi(2, scenario, sets, more);
    EXPECT_EQ(ran.status, 2) << ran.text;
    EXPECT_NE(ran.text.find(words), std::string::npos) << "not said: " << words << '\n' << ran.text;
  };
  refused("baseline", {"world.nodes=1", "batch_arithmetic=by_samples"}, "finishes_within_virtual_s", "--no-skip");
  refused("baseline", {"world.nodes=1", "batch_arithmetic=by_samples", R"(checks=["finishes_within_virtual_s:9"])"},
          "each of its checks would be skipped");
  refused("zero_equivalence", {"sweep=[]"}, "the world has 1 ranks, and there are 2 processes");
  refused("zero_equivalence", {"sweep=[]", "world.ranks_per_node=3"}, "mpirun -np 3");
  refused("zero_equivalence", zero(0, 2), "--trace", "--trace t.json");
}

}  // namespace
}  // namespace seeksim
