// Real scripts with a real torch on two hosts: what docs/torch-hosts.md promises. The hosts are two commands on this
// machine, each with a folder, a memory and ranks of its own, joined by TCP over loopback.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <thread>

#include "tests/torch/script_runs.h"

namespace seeksim::harness::torch {
namespace {

using nlohmann::json;

class TorchOnTwoHosts : public testing::ScriptRuns {
 protected:
  // Both commands, the first host's last. "NODE" and "PORT" in the script's words stand for the host and a port.
  std::vector<Captured> run_hosts(const std::string& name, const std::vector<std::string>& options,
                                  const std::vector<std::string>& script) {
    const std::string port = std::to_string(next_port());
    std::vector<std::future<Captured>> hosts;
    for (const std::string host : {"0", "1"}) {
      std::vector<std::string> more = {"--nnodes", "2", "--node-rank", host, "--rdzv", "127.0.0.1:" + port};
      more.insert(more.end(), options.begin(), options.end());
      std::vector<std::string> words;
      for (const std::string& word : script)
        words.push_back(word == "NODE" ? host : word == "AT" ? "127.0.0.1:" + port : word);
      hosts.push_back(std::async(std::launch::async, [=, this] { return run(name + "-" + host, more, words); }));
    }
    std::vector<Captured> ran;
    for (auto& host : hosts) ran.push_back(host.get());
    return ran;
  }
  static int next_port() {
    static int used = 0;
    return 12'000 + (::getpid() * 8 + 2 * used++) % 18'000;
  }
};

void expect_both(const std::vector<Captured>& ran, int status) {
  for (const Captured& host : ran) EXPECT_STATUS(host, status);
  EXPECT_NE(ran[1].out.find("judged    by host 0"), std::string::npos) << ran[1].out;
}

TEST_F(TorchOnTwoHosts, DdpAndFsdp2UseTheBitsOfOneHost) {
  EXPECT_STATUS(run("one", {"--np", "2"}, {example("ddp.py")}), 0);
  for (const std::string script : {"ddp.py", "fsdp2.py"}) {
    expect_both(run_hosts(script, {"--np", "2"}, {example(script)}), 0);
    EXPECT_EQ(compared("one", script + "-0", 0)["grade"], "bits");
    const json found = report(script + "-0");
    EXPECT_NE(detail(found, "recorded").find("of 2 ranks on 2 hosts"), std::string::npos) << found;
    EXPECT_EQ(found["hosts"][1]["ranks"], json::array({1}));
  }
}

TEST_F(TorchOnTwoHosts, EveryOperationOfTorchDistributedIsRight) {
  const std::string script = paths::source_dir() + "/tests/pytorch/scripts/operations.py";
  const auto ran = run_hosts("operations", {"--np", "4"}, {script});
  expect_both(ran, 0);
  EXPECT_NE(ran[0].out.find("operations are right"), std::string::npos) << ran[0].out;
}

TEST_F(TorchOnTwoHosts, TorchrunsWordsAreEnough) {
  EXPECT_STATUS(run("one", {"--np", "4"}, {example("ddp.py"), "--steps", "4"}), 0);
  const auto ran = run_hosts("two", {"--np", "4"},
                             {"torchrun", "--nnodes", "2", "--node-rank", "NODE", "--nproc-per-node", "2",
                              "--rdzv-backend", "c10d", "--rdzv-endpoint", "AT", example("ddp.py"), "--steps", "4"});
  expect_both(ran, 0);
  EXPECT_EQ(compared("one", "two-0", 0)["grade"], "bits");
}

TEST_F(TorchOnTwoHosts, ARankThatNeverJoinsIsNamedWithItsHostAndWhereItStands) {
  expect_both(run_hosts("run", {example("never_joins.json"), "--set", "expect=pass"}, {example("ddp.py")}), 3);
  const json found = report("run-0");
  EXPECT_EQ(found["culprits"]["ranks"], json::array({1}));
  EXPECT_EQ(found["culprits"]["blame"], "did_not_join");
  const std::string text = detail(found, "no_hang");
  EXPECT_NE(text.find("rank 1 on host 1 ("), std::string::npos) << text;
  EXPECT_NE(text.find("it is alive and stands at ddp.py:"), std::string::npos) << text;  // its stack has come, too
}

TEST_F(TorchOnTwoHosts, ADeathOnTheOtherHostIsNoticedBeforeTheTimeout) {
  expect_both(run_hosts("run", {example("crash.json")}, {example("ddp.py")}), 0);
  const json found = report("run-0");
  EXPECT_EQ(found["culprits"]["blame"], "is_dead");
  EXPECT_LT(found["culprits"]["waited_s"].get<double>(), 5.0);
}

TEST_F(TorchOnTwoHosts, AFaultOnTheOtherHostMakesTheComparisonRed) {
  EXPECT_STATUS(run("one", {"--np", "2"}, {example("ddp.py")}), 0);
  expect_both(run_hosts("two", {example("bit_flip.json")}, {example("ddp.py")}), 0);
  EXPECT_EQ(compared("one", "two-0", 1)["first"]["step"], 3);
}

TEST_F(TorchOnTwoHosts, WithOtherScenariosAreBadInput) {
  const int port = next_port();
  const std::vector<std::string> at = {"--nnodes", "2", "--rdzv", "127.0.0.1:" + std::to_string(port), "--node-rank"};
  std::vector<std::string> first = at, second = at;
  first.insert(first.end(), {"0", "--np", "2"});
  second.insert(second.end(), {"1", "--np", "4"});
  auto other = std::async(std::launch::async, [&] { return run("b", second, {example("ddp.py")}); });
  EXPECT_STATUS(run("a", first, {example("ddp.py")}), 2);
  EXPECT_STATUS(other.get(), 2);
}

}  // namespace
}  // namespace seeksim::harness::torch
