// A rank that lies. Ranks 0 and 1 are processes of the program, over TCP; rank 2 is this test, which knows the job's
// secret and sends what no rank of the program sends, in each phase of a run. Whatever it does, the run ends in time:
// as expected, or with a text that names rank 2. It never ends as a bug, and no process dies by a signal.
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <optional>

#include "harness/loading/load.h"
#include "harness/processes/process_run.h"
#include "runtime/backend/wire/rendezvous.h"
#include "runtime/backend/wire/tcp_world.h"
#include "tests/support/processes.h"

namespace seeksim {
namespace {

using harness::RankReport;
using harness::RunRequest;
using runtime::Socket;
using runtime::TcpWire;
using runtime::TcpWorld;
using runtime::Wire;

constexpr const char* kSecret = "the secret of these tests";

// What becomes of a head that rank 2 sends; more than one: it is sent so often.
using Heads = std::vector<std::vector<std::byte>>;
using Change = std::function<Heads(std::vector<std::byte> head, int number)>;

// In front of a wire: what a rank sends goes out changed.
class Meddler final : public Wire, Wire::Listener {
 public:
  Meddler(Wire& wire, Change change) : wire_(wire), change_(std::move(change)) { wire_.listen(this); }
  ~Meddler() override { wire_.listen(nullptr); }

  Ticket send(int to, std::span<const std::byte> head, std::span<const std::byte> payload) override {
    Ticket ticket = 0;
    for (const std::vector<std::byte>& changed : change_({head.begin(), head.end()}, sent_++))
      ticket = wire_.send(to, changed, ticket == 0 ? payload : std::span<const std::byte>{});
    return ticket;
  }
  std::uint64_t announced_bytes(Ticket payload) const override { return wire_.announced_bytes(payload); }
  void receive(Ticket payload, std::span<std::byte> into) override { wire_.receive(payload, into); }
  void discard(Ticket payload) override { wire_.discard(payload); }
  bool poll() override { return wire_.poll(); }

 private:
  void arrived(int from, std::span<const std::byte> head, Ticket payload) override {
    if (listener_ != nullptr)
      listener_->arrived(from, head, payload);
    else if (payload != 0)
      wire_.discard(payload);
  }
  void over(Ticket ticket) override {
    if (listener_ != nullptr) listener_->over(ticket);
  }
  void damaged(int from, Ticket payload) override {
    if (listener_ != nullptr) listener_->damaged(from, payload);
  }
  void failed(const std::string& why) override {
    if (listener_ != nullptr) listener_->failed(why);
  }

  Wire& wire_;
  Change change_;
  int sent_ = 0;
};

constexpr const char* kOfTheScenario =
    R"(checks=["golden:bitwise","golden:gradients","no_recovery","memory_formula","traffic_formula"])";

class MpiHostile : public Mpi {
 protected:
  virtual const char* checks() const { return kOfTheScenario; }
  void SetUp() override {
    Mpi::SetUp();
    if (IsSkipped()) return;
    ::setenv("RANK", "2", 1);
    ::setenv("WORLD_SIZE", "3", 1);
    ::setenv("MASTER_ADDR", "127.0.0.1", 1);
    ::setenv("MASTER_PORT", port_.c_str(), 1);
    ::setenv("SEEKSIM_TOKEN", kSecret, 1);
    for (int rank = 0; rank < 2; ++rank) {
      const std::string command =
          "RANK=" + std::to_string(rank) + " timeout -s KILL 100 " +
          arguments("zero_equivalence",
                    {"sweep=[]", "world.ranks_per_node=3", "batch_arithmetic=by_samples", "steps=6",
                     "deepspeed.zero_optimization.stage=1", "recovery.watchdog_s=3", "recovery.agree_s=3", checks()}) +
          " --backend mpi" + (rank == 0 ? " --report " + in_quotes(folder() + "/mpi.json") : "");
      ranks_[std::size_t(rank)] = std::async(std::launch::async, [command] { return shell(command); });
    }
  }
  // The connections of rank 2, bare.
  std::vector<Socket> connections() {
    runtime::Rendezvous at;
    at.rank = 2;
    at.size = 3;
    at.master = "127.0.0.1";
    at.port = std::uint16_t(std::stoi(port_));
    at.secret = kSecret;
    return meet(at).peers;
  }
  static void send_to_both(std::vector<Socket>& peers, TcpWire::Prefix prefix) {
    runtime::seal(prefix, {}, {});
    for (const int to : {0, 1}) peers[std::size_t(to)].send(std::as_bytes(std::span(&prefix, 1)));
  }
  // Rank 2 takes part in the run; what it sends is changed, and so is what it reports.
  void take_part(Change change, const std::function<std::vector<std::byte>(RankReport)>& report) {
    TcpWorld& world = world_.emplace();
    const RunRequest request = harness::request_from(world.broadcast({}));
    const harness::RunFolder folder(request);
    Meddler wire(world.wire(), std::move(change));
    world.gather(report(train_here(request, folder.path(), wire, 2)), 3, 0);
  }
  void meddle(Change change) {
    take_part(std::move(change), [](const RankReport& report) { return to_bytes(report); });
  }
  void report_that(const std::function<std::vector<std::byte>(RankReport)>& report) {
    take_part([](std::vector<std::byte> head, int) { return Heads{head}; }, report);
  }
  void expect_an_end_in_order() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const Ran ran = ranks_[rank].get();
      EXPECT_TRUE(ran.status >= 0 && ran.status <= 3) << "rank " << rank << ": " << ran.status << '\n' << ran.text;
      EXPECT_EQ(ran.text.find("bug in seeksim"), std::string::npos) << ran.text;
      EXPECT_TRUE(rank != 0 || ran.status == 0 || ran.text.find("rank 2") != std::string::npos) << ran.text;
    }
  }

  const std::string port_ = std::to_string(10'000 + ::getpid() % 20'000);
  std::array<std::future<Ran>, 2> ranks_;
  std::optional<TcpWorld> world_;  // its connections stay open until the other ranks have ended
};

TEST_F(MpiHostile, GarbageBeforeTheRunBegins) {
  std::vector<Socket> peers = connections();
  for (const int to : {0, 1}) peers[std::size_t(to)].send(std::vector<std::byte>(5000, std::byte{'x'}));
  expect_an_end_in_order();
}
TEST_F(MpiHostile, HeadsThatAnnounceFourGigabytes) {
  std::vector<Socket> peers = connections();
  TcpWire::Prefix prefix;
  prefix.head_bytes = 0xffffffff;
  send_to_both(peers, prefix);
  expect_an_end_in_order();
}
TEST_F(MpiHostile, TextsThatNobodyAskedFor) {
  std::vector<Socket> peers = connections();
  TcpWire::Prefix prefix;
  prefix.payload_bytes = std::uint64_t(1) << 62;
  prefix.is_text = 1;
  send_to_both(peers, prefix);
  expect_an_end_in_order();
}
TEST_F(MpiHostile, Silence) {
  const std::vector<Socket> peers = connections();
  expect_an_end_in_order();
}
TEST_F(MpiHostile, ALeaveAtOnce) {
  connections().clear();
  expect_an_end_in_order();
}

// Where the run passed without it, those that are left have not failed. Where it failed, they have: torchrun then
// starts all of them again.
class MpiHostileWhoIsExpected : public MpiHostile {
  const char* checks() const override { return "checks=[\"golden:bitwise\",{\"evicted\":[2]}]"; }
};
TEST_F(MpiHostileWhoIsExpected, LeavesOthersThatEndAsTheRunDoes) {
  connections().clear();
  const Ran zero = ranks_[0].get(), one = ranks_[1].get();
  EXPECT_EQ(zero.status, 0) << zero.text;
  EXPECT_EQ(one.status, 0) << one.text;
}
TEST_F(MpiHostile, LeavesOthersThatEndAsTheRunDoes) {
  connections().clear();
  const Ran zero = ranks_[0].get(), one = ranks_[1].get();
  EXPECT_EQ(zero.status, 1) << zero.text;
  EXPECT_EQ(one.status, 3) << one.text;
}

TEST_F(MpiHostile, LongerPiecesThanTheirHeadsSay) {
  meddle([](std::vector<std::byte> head, int number) {
    if (number >= 12 && head.size() > 80) head.resize(4096, std::byte{0x41});
    return Heads{head};
  });
  expect_an_end_in_order();
}
TEST_F(MpiHostile, ShorterPiecesThanTheirHeadsSay) {
  meddle([](std::vector<std::byte> head, int number) {
    if (number == 12 && head.size() > 80) head.resize(80);
    return Heads{head};
  });
  expect_an_end_in_order();
}
TEST_F(MpiHostile, EverythingTwice) {
  meddle([](const std::vector<std::byte>& head, int) { return Heads{head, head}; });
  expect_an_end_in_order();
}
TEST_F(MpiHostile, OldPiecesAgain) {
  auto old = std::make_shared<std::vector<std::byte>>();
  meddle([old](const std::vector<std::byte>& head, int number) {
    if (number == 10) *old = head;
    return number == 30 ? Heads{head, *old} : Heads{head};
  });
  expect_an_end_in_order();
}
TEST_F(MpiHostile, HeadsOfAnotherProgram) {
  meddle([](std::vector<std::byte> head, int number) {
    if (number == 20) head[0] = std::byte{'X'};
    return Heads{head};
  });
  expect_an_end_in_order();
}
TEST_F(MpiHostile, OperationsThatDoNotExist) {
  meddle([](std::vector<std::byte> head, int number) {
    for (std::size_t at = 5; number == 20 && at < 8; ++at) head[at] = std::byte{250};
    return Heads{head};
  });
  expect_an_end_in_order();
}

TEST_F(MpiHostile, AReportThatIsGarbage) {
  report_that([](const RankReport&) { return std::vector<std::byte>(1000, std::byte{0xee}); });
  expect_an_end_in_order();
}
TEST_F(MpiHostile, AReportThatIsCutOff) {
  report_that([](const RankReport& report) {
    std::vector<std::byte> bytes = to_bytes(report);
    bytes.resize(bytes.size() / 2);
    return bytes;
  });
  expect_an_end_in_order();
}
TEST_F(MpiHostile, AReportOfStepsThatTheRunDoesNotHave) {
  report_that([](RankReport report) {
    harness::NoteTaker taker(true, -1, false);
    runtime::StepRecord record;
    record.step = std::int64_t(1) << 60;
    taker.step_committed(2, record);
    report.notes = taker.take();
    return to_bytes(report);
  });
  expect_an_end_in_order();
}
TEST_F(MpiHostile, AReportWithListsThatDoNotFit) {
  report_that([](RankReport report) {
    report.pinned.peak_by_tag.clear();
    report.host.peak_by_tag.resize(3);
    return to_bytes(report);
  });
  expect_an_end_in_order();
}

// ---- a false rank 0 ---------------------------------------------------------------------------------------------

class MpiFalseLeader : public Mpi {
 protected:
  void TearDown() override {
    ::unsetenv("TMPDIR");
    Mpi::TearDown();
  }
  // The request makes rank 1 of two use this folder, and calls it a temporary one.
  Ran obey(const std::string& request_folder) {
    const std::string port = std::to_string(10'000 + ::getpid() % 20'000);
    for (const auto& [name, value] : {std::pair{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}})
      ::setenv(name, value, 1);
    ::setenv("MASTER_PORT", port.c_str(), 1);
    ::setenv("TMPDIR", folder().c_str(), 1);
    std::future<Ran> one = std::async(std::launch::async, [] {
      return shell("RANK=1 timeout -s KILL 60 " + arguments("zero_equivalence", {}) + " --backend mpi");
    });
    TcpWorld world;
    harness::LoadOptions options;
    options.sets = {"sweep=[]", "world.ranks_per_node=2", "batch_arithmetic=by_samples"};
    const harness::Scenario scenario = harness::load_scenario("scenarios/zero_equivalence.json", options);
    RunRequest request;
    request.scenario = to_travel(scenario);
    request.file = "scenarios/zero_equivalence.json";
    request.folder = request_folder;
    request.temporary = true;
    request.endpoint = "127.0.0.1:1";  // nothing listens there
    request.token = std::string(32, '0');
    world.broadcast(text_of(request));
    return one.get();
  }
  std::string precious(const std::string& name) {
    const std::string made = folder() + "/" + name;
    std::filesystem::create_directories(made);
    std::ofstream(made + "/data.txt") << "do not delete";
    return made;
  }
};

TEST_F(MpiFalseLeader, CannotHaveAFolderRemovedByItsPath) {
  const std::string victim = precious("victim");
  const Ran ran = obey(victim);
  EXPECT_EQ(ran.status, 2) << ran.text;
  EXPECT_NE(ran.text.find("not the name of a temporary folder"), std::string::npos) << ran.text;
  EXPECT_TRUE(std::filesystem::exists(victim + "/data.txt"));
}
TEST_F(MpiFalseLeader, CannotHaveAFolderRemovedThatWasThereBefore) {
  const std::string name = "seeksim-" + std::string(32, 'a');
  const std::string victim = precious(name);
  const Ran ran = obey(name);
  EXPECT_EQ(ran.status, 3) << ran.text;  // no control plane answers
  EXPECT_TRUE(std::filesystem::exists(victim + "/data.txt"));
}

}  // namespace
}  // namespace seeksim
