// The arms: every claim on fibers, on MPI processes, on processes over TCP, and on NCCL. An arm that cannot run says
// why.
#include <fmt/format.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "runtime/backend/gpu/cuda_memory.h"
#include "runtime/backend/gpu/nccl_api.h"
#include "runtime/backend/wire/mpi_world.h"
#include "tests/conformance/claims.h"
#include "tests/conformance/processes.h"

namespace seeksim::conformance {
namespace {

// ---- fibers --------------------------------------------------------------------------------------------------------

void run_on_fibers(const Claim& claim) {
  World world(claim.one_node ? small_world(claim.ranks)
                             : spread_world(claim.ranks, 1, claim.killed < 0 ? "ib" : "tcp"));
  if (claim.killed >= 0) world.kill_at(claim.killed, kSecond, nullptr);
  const WorldResult result = world.run([&](Rank& rank) { claim.body(rank, Site{}); });
  EXPECT_EQ(result.end, claim.ends == Ends::all_return ? WorldEnd::finished : WorldEnd::deadlock)
      << result.wait_for_graph;
  for (const RankEnd& rank : result.ranks) EXPECT_NE(rank.how, RankEnd::How::threw) << rank.what;
}

class Conformance : public testing::TestWithParam<Claim> {};

TEST_P(Conformance, HoldsOnFibers) {
  static Claim claim;
  claim = GetParam();
  if (claim.only_over_nccl != nullptr) GTEST_SKIP() << claim.only_over_nccl;
  if (claim.is_false)
    EXPECT_NONFATAL_FAILURE(run_on_fibers(claim), "planted");
  else
    run_on_fibers(claim);
}

INSTANTIATE_TEST_SUITE_P(Claims, Conformance, testing::ValuesIn(all_claims()),
                         [](const auto& of) { return std::string(of.param.name); });

// ---- processes -----------------------------------------------------------------------------------------------------

std::string own_path() {
  std::array<char, 4096> path{};
  const ssize_t n = ::readlink("/proc/self/exe", path.data(), path.size() - 1);
  return {path.data(), std::size_t(std::max<ssize_t>(n, 0))};
}

struct Ran {
  int status = -1;
  std::string text;
};
Ran shell(const std::string& command) {
  Ran ran;
  FILE* pipe = ::popen((command + " 2>&1 </dev/null").c_str(), "r");
  if (pipe == nullptr) return ran;
  std::array<char, 4096> bytes;
  for (std::size_t n = 0; (n = std::fread(bytes.data(), 1, bytes.size(), pipe)) > 0;) ran.text.append(bytes.data(), n);
  ran.status = WEXITSTATUS(::pclose(pipe));
  return ran;
}

// Every claim that processes can keep was held by each of its ranks, and the planted one was not.
void judge(const Ran& ran, bool over_nccl, int processes) {
  EXPECT_EQ(ran.status, 0) << ran.text;
  for (const Claim& claim : all_claims()) {
    if (const char* const why = why_not(claim, over_nccl, processes)) {
      std::printf("  not on processes%s: %s: %s\n", over_nccl ? " with NCCL" : "", claim.name, why);
      continue;
    }
    for (int rank = 0; rank < claim.ranks; ++rank) {
      const std::string line = fmt::format("claim {} rank {}: ", claim.name, rank);
      EXPECT_NE(ran.text.find(line + (claim.is_false && rank == 0 ? "fails" : "holds")), std::string::npos)
          << "not found: " << line << '\n'
          << ran.text;
    }
  }
}

TEST(MpiConformance, EveryClaimHoldsOnProcesses) {
  if (const std::string problem = runtime::MpiWorld::problem(); !problem.empty()) GTEST_SKIP() << problem;
  if (shell("command -v mpirun").status != 0) GTEST_SKIP() << "there is no mpirun here (openmpi-bin)";
  const std::string as_root = ::getuid() == 0 ? " --allow-run-as-root" : "";
  judge(shell(fmt::format("timeout 120 mpirun --oversubscribe{} -np {} -x {}=mpi '{}'", as_root, kRanks, kProcess,
                          own_path())),
        false, kRanks);
}

// Started by hand, with torchrun's variables.
Ran run_over_tcp(const char* by, int processes) {
  std::string command;
  const int port = 10'000 + ::getpid() % 20'000;  // below what connections are given
  for (int rank = processes - 1; rank >= 0; --rank) {
    command += fmt::format(
        "{}={} RANK={} LOCAL_RANK={} WORLD_SIZE={} MASTER_ADDR=127.0.0.1 MASTER_PORT={} timeout 120 "
        "'{}'{}",
        kProcess, by, rank, rank, processes, port, own_path(), rank > 0 ? " & " : "; wait");
  }
  return shell("(" + command + ")");
}

TEST(MpiConformance, EveryClaimHoldsOverTcp) { judge(run_over_tcp("tcp", kRanks), false, kRanks); }

// A GPU each, unless NCCL takes several ranks a GPU: else with one, the claims of one rank.
TEST(GpuConformance, EveryClaimHoldsOverNccl) {
  if (const std::string problem = runtime::nccl_problem(); !problem.empty()) GTEST_SKIP() << problem;
  const bool shared =
      runtime::gpu_sharing_problem(runtime::nccl_version(), std::getenv(runtime::kGpuSharingVariable)).empty();
  const int processes = shared ? kRanks : std::min(kRanks, runtime::gpu_count());
  judge(run_over_tcp("nccl", processes), true, processes);
}

}  // namespace
}  // namespace seeksim::conformance
