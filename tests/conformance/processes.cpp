#include "tests/conformance/processes.h"

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include "runtime/backend/control/control_server.h"
#include "runtime/backend/nccl_rank.h"
#include "runtime/backend/real_rank.h"
#include "runtime/backend/wire/mpi_world.h"
#include "runtime/backend/wire/tcp_world.h"
#include "tests/conformance/claims.h"

namespace seeksim::conformance {
namespace {

using runtime::ControlServer;

// The control plane of one claim, beside rank 0.
class Server {
 public:
  Server(int ranks, const std::string& token) : server_(options(ranks, token), [](int, const std::string&) {}) {
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) server_.step(20);
    });
  }
  std::string endpoint() const { return "127.0.0.1:" + std::to_string(server_.port()); }

 private:
  static ControlServer::Options options(int ranks, const std::string& token) {
    ControlServer::Options options;
    options.ranks = ranks;
    options.token = token;
    return options;
  }
  ControlServer server_;
  std::jthread thread_;
};

template <class AnyRank>
void hold_with(const Claim& claim, const Site& site, AnyRank& real) {
  runtime::Rank rank = real.rank(real.seams(), 1);
  try {
    claim.body(rank, site);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "threw " << error.what();
  }
  real.device.drain_by(rank.clock.now() + kSecond, true);
}

void hold(const Claim& claim, const Site& site, runtime::Wire& wire, const runtime::ControlClient::Options& to_control,
          bool over_nccl) {
  const std::string folder = std::filesystem::temp_directory_path();
  constexpr std::size_t kRoom = std::size_t(64) << 20;
  const runtime::HostMemory::Capacities room{kRoom, kRoom, kRoom};
  if (over_nccl) {
#ifdef SEEKSIM_NCCL
    runtime::NcclRank real(wire, room, to_control, folder, runtime::visible_gpu(to_control.rank));
    return hold_with(claim, site, real);
#else
    ADD_FAILURE() << runtime::nccl_problem();
    return;
#endif
  }
  runtime::RealRank real(wire, room, to_control, folder);
  hold_with(claim, site, real);
}

// Whether this claim has failed here: GoogleTest keeps failures for good.
int failures() { return testing::UnitTest::GetInstance()->ad_hoc_test_result().total_part_count(); }

}  // namespace

const char* why_not(const Claim& claim, bool over_nccl, int processes) {
  if (claim.only_simulated != nullptr) return claim.only_simulated;
  if (over_nccl && claim.not_over_nccl != nullptr) return claim.not_over_nccl;
  if (!over_nccl && claim.only_over_nccl != nullptr) return claim.only_over_nccl;
  return claim.ranks > processes ? "there are too few GPUs" : nullptr;
}

int run_as_rank(const char* by) {
  const bool over_nccl = std::strcmp(by, "nccl") == 0;
  std::unique_ptr<runtime::ProcessWorld> world;
  if (std::strcmp(by, "mpi") == 0)
    world = std::make_unique<runtime::MpiWorld>();
  else
    world = std::make_unique<runtime::TcpWorld>();
  const int me = world->rank();
  Site site;
  for (const Claim& claim : all_claims()) {
    site.first_id += 100;
    if (why_not(claim, over_nccl, world->size()) != nullptr) continue;
    std::optional<Server> server;
    const std::string token(runtime::kTokenBytes, 'c');
    if (me == 0) server.emplace(claim.ranks, token);
    const std::string endpoint = world->broadcast(me == 0 ? server->endpoint() : "");
    const int before = failures();
    if (me < claim.ranks) hold(claim, site, world->wire(), {endpoint, token, me, claim.ranks, 0}, over_nccl);
    std::printf("claim %s rank %d: %s\n", claim.name, me, failures() == before ? "holds" : "fails");
    std::fflush(stdout);
    world->gather({std::byte(1)}, world->size(), 60 * kSecond);  // no process begins the next one before
  }
  return 0;
}

}  // namespace seeksim::conformance

int main(int count, char** words) {
  testing::InitGoogleTest(&count, words);
  if (const char* by = std::getenv(seeksim::conformance::kProcess)) return seeksim::conformance::run_as_rank(by);
  return RUN_ALL_TESTS();
}
