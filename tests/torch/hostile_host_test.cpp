// What another host sends, with the secret proved: it can spoil a run's values or end its part in it, never a process
// of seeksim, and never the work of hosts that have nothing to do with it.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "harness/input/problem.h"
#include "harness/torch/hosts/frames.h"
#include "harness/torch/hosts/host_files.h"
#include "harness/torch/hosts/meeting.h"
#include "runtime/backend/wire/bytes.h"
#include "runtime/backend/wire/tcp_world.h"
#include "tests/pytorch/rank_bodies.h"
#include "tests/support/scenarios.h"
#include "tests/torch/forked_hosts.h"

namespace seeksim::harness::torch {
namespace {

using pytorch::Group;
using runtime::TcpWire;
using runtime::to_bytes;
using testing::ForkedHosts;

struct Attack {
  const char* name;
  // wire: to host 1 of the group; key: of a group whose places 0 and 1 are on hosts 0 and 1.
  void (*send)(TcpWire& wire, const pytorch::GroupKey& key);
};
void PrintTo(const Attack& attack, std::ostream* out) { *out << attack.name; }

std::vector<std::byte> filled(std::size_t n) { return std::vector<std::byte>(n, std::byte{7}); }

CameFrame came(const pytorch::GroupKey& key, int place, std::uint32_t meeting, std::size_t sizes) {
  CameFrame frame;
  frame.key = key;
  frame.place = place;
  frame.meeting = meeting;
  frame.op = pytorch::OpName::all_reduce;
  frame.reduce = pytorch::ReduceName::sum;
  frame.dtype = pytorch::DType::fp32;
  frame.gives.resize(sizes);
  frame.takes.resize(sizes);
  return frame;
}

void send_with(TcpWire& wire, const std::vector<std::byte>& head, std::size_t payload_bytes) {
  static std::vector<std::byte> payload;  // it has to stay
  payload = filled(payload_bytes);
  wire.send(1, head, payload);
}

constexpr Attack kAttacks[] = {
    {"AnUnknownKind", [](TcpWire& w, const auto&) { w.send(1, to_bytes(std::uint8_t(200)), {}); }},
    {"TheKindBehindTheLast", [](TcpWire& w, const auto&) { w.send(1, to_bytes(FrameKind::count_), {}); }},
    {"AnEmptyHead", [](TcpWire& w, const auto&) { w.send(1, {}, {}); }},
    {"AHeadThatEndsTooEarly", [](TcpWire& w, const auto& key) { w.send(1, to_bytes(FrameKind::came, key), {}); }},
    {"AHeadThatGoesOn",
     [](TcpWire& w, const auto& key) {
       w.send(1, to_bytes(FrameKind::ended, PlaceFrame{key, 0}, 1), {});
     }},
    {"AListLongerThanItsMessage",
     [](TcpWire& w, const auto& key) {
       CameFrame frame = came(key, 0, 1, 2);
       std::vector<std::byte> bytes = to_bytes(FrameKind::came, frame);
       std::memset(bytes.data() + bytes.size() - 20, 0x7f, 4);
       w.send(1, bytes, {});
     }},
    {"TheVoiceOfAnotherHostsRank",
     [](TcpWire& w, const auto& key) { w.send(1, to_bytes(FrameKind::came, came(key, 0, 1, 2)), {}); }},
    {"TheVoiceOfARankThere",
     [](TcpWire& w, const auto& key) { w.send(1, to_bytes(FrameKind::came, came(key, 1, 1, 2)), {}); }},
    {"APlaceThatIsNone",
     [](TcpWire& w, const auto& key) {
       w.send(1, to_bytes(FrameKind::state, StateFrame{key, -5, 1, 1}), {});
     }},
    {"BytesInAnotherRanksSlot",
     [](TcpWire& w, const auto& key) {
       send_with(w, to_bytes(FrameKind::part, PartFrame{key, 0, 0, 0}), 64);
     }},
    {"TheDeathOfAnotherHostsRank",
     [](TcpWire& w, const auto& key) {
       w.send(1, to_bytes(FrameKind::ended, PlaceFrame{key, 0}), {});
     }},
    {"ThePoisonOfAGroupThatIsNotIts",
     [](TcpWire& w, const auto& key) {
       w.send(1, to_bytes(FrameKind::poison, PoisonFrame{key, {{0, 0}}, "ha"}), {});
     }},
    {"StacksOfARankThatIsNotThere",
     [](TcpWire& w, const auto& key) {
       w.send(1, to_bytes(FrameKind::stacks, PlaceFrame{key, 0}), {});
     }},
    {"BytesWithABeat", [](TcpWire& w, const auto&) { send_with(w, to_bytes(FrameKind::beat, Beat{}), 64); }},
    {"AFileForAHostThatTakesNone",
     [](TcpWire& w, const auto&) {
       send_with(w, to_bytes(FrameKind::file, FileFrame{"rank-0.rec", 0, true}), 64);
     }},
    {"TooManyTexts",
     [](TcpWire& w, const auto&) {
       for (int i = 0; i < 400; ++i) w.send_text(1, filled(100'000));
     }},
};

// Host 2 is in no group, and knows the key of one.
class AHostWithoutARank : public ::testing::TestWithParam<Attack> {};

// Until the other side has closed; false: it has not.
bool is_cut_off(TcpWire& wire) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!wire.closed(1) && std::chrono::steady_clock::now() < until) {
    if (!wire.poll()) usleep(1000);
  }
  return wire.closed(1);
}

std::string sums_for_a_while(Group& group) {
  for (int i = 0; i < 20; ++i) {
    if (const std::string said = pytorch::rank_bodies::sums_and_keeps_that_up(group); said != "ok") return said;
  }
  return "ok";
}

// Runs sums on hosts 0 and 1, while `attack` has host 2's connection to host 1.
std::vector<std::string> run_beside(const std::function<void(TcpWire&, const pytorch::GroupKey&)>& attack) {
  ForkedHosts hosts({0, 1});
  hosts.wires = testing::mesh(3);
  std::vector<runtime::Socket> own(3);
  own[1] = std::move(hosts.wires[2][1]);
  hosts.wires.pop_back();
  TcpWire wire(2, std::move(own));
  hosts.meanwhile = [&] {
    while (!hosts.all_in()) usleep(1000);
    attack(wire, hosts.key());
  };
  return hosts.run(sums_for_a_while);
}

TEST_P(AHostWithoutARank, IsCutOffAndTheOthersGoOn) {
  bool cut = false;
  const auto said = run_beside([&](TcpWire& wire, const pytorch::GroupKey& key) {
    GetParam().send(wire, key);
    cut = is_cut_off(wire);
  });
  EXPECT_EQ(said, std::vector<std::string>(2, "ok"));
  EXPECT_TRUE(cut);
}
INSTANTIATE_TEST_SUITE_P(Hostile, AHostWithoutARank, ::testing::ValuesIn(kAttacks),
                         [](const auto& attack) { return attack.param.name; });

TEST(Hostile, GarbageIsDroppedAndTheOthersGoOn) {
  std::mt19937 random(5);
  bool cut = false;
  const auto said = run_beside([&](TcpWire& wire, const pytorch::GroupKey&) {
    runtime::Socket raw(::dup(wire.descriptor(1)));
    std::vector<std::byte> garbage(100'000);
    for (std::byte& byte : garbage) byte = std::byte(random());
    raw.send(garbage);
    cut = is_cut_off(wire);
  });
  EXPECT_EQ(said, std::vector<std::string>(2, "ok"));
  EXPECT_TRUE(cut);
}

TEST(Hostile, AHostThatSaysWhatRelaysSayIsNotCutOff) {
  bool cut = true;
  const auto said = run_beside([&](TcpWire& wire, const pytorch::GroupKey& key) {
    wire.send(1, to_bytes(FrameKind::beat, Beat{1, 0, 0}), {});
    pytorch::GroupKey unknown = key;
    unknown[0] ^= 1;
    wire.send(1, to_bytes(FrameKind::ended, PlaceFrame{unknown, 7}), {});  // of a group that has gone: passed over
    for (int i = 0; i < 300; ++i) {
      wire.poll();
      usleep(1000);
    }
    cut = wire.closed(1);
  });
  EXPECT_EQ(said, std::vector<std::string>(2, "ok"));
  EXPECT_FALSE(cut);
}

// It announces what it never sends, and sends one byte now and then: nobody waits for it.
TEST(Hostile, ASlowHostKeepsNobodyWaiting) {
  const auto said = run_beside([&](TcpWire& wire, const pytorch::GroupKey&) {
    runtime::Socket raw(::dup(wire.descriptor(1)));
    for (int i = 0; i < 20; ++i) {
      raw.send(to_bytes(std::uint8_t(0x32)));
      usleep(20'000);
    }
  });
  EXPECT_EQ(said, std::vector<std::string>(2, "ok"));
}

// A member of the group: who believes it is told which host it was, and nobody crashes.
struct Lie {
  const char* name;
  void (*send)(TcpWire& wire, const pytorch::GroupKey& key);
};
void PrintTo(const Lie& lie, std::ostream* out) { *out << lie.name; }
constexpr Lie kLies[] = {
    {"AMeetingThatIsLeftOut",
     [](TcpWire& w, const auto& key) { w.send(1, to_bytes(FrameKind::came, came(key, 0, 7, 2)), {}); }},
    {"ABankThatIsNone",
     [](TcpWire& w, const auto& key) {
       CameFrame frame = came(key, 0, 1, 2);
       frame.bank = 2;
       w.send(1, to_bytes(FrameKind::came, frame), {});
     }},
    {"SizesForMoreRanks",
     [](TcpWire& w, const auto& key) { w.send(1, to_bytes(FrameKind::came, came(key, 0, 1, 200)), {}); }},
    {"BytesBehindTheSlot",
     [](TcpWire& w, const auto& key) {
       send_with(w, to_bytes(FrameKind::part, PartFrame{key, 0, 1, pytorch::kSlotBytes - 10}), 64);
     }},
    {"BytesFarBehindTheSlot",
     [](TcpWire& w, const auto& key) {
       send_with(w, to_bytes(FrameKind::part, PartFrame{key, 0, 1, 0xffffffff}), 64);
     }},
    {"MoreBytesThanASlot",
     [](TcpWire& w, const auto& key) {
       send_with(w, to_bytes(FrameKind::part, PartFrame{key, 0, 1, 0}), pytorch::kSlotBytes + 1);
     }},
    {"APartOfAMessageOutOfOrder",
     [](TcpWire& w, const auto& key) {
       send_with(w, to_bytes(FrameKind::chunk, ChunkFrame{key, 0, 1, 3, 1, 10, 0, 0}), 10);
     }},
    {"AFifthPartOfAMessage",
     [](TcpWire& w, const auto& key) {
       for (std::uint32_t n = 1; n <= 5; ++n)
         w.send(1, to_bytes(FrameKind::chunk, ChunkFrame{key, 0, 1, n, 1, 10, 0, 0}), {});
     }},
    {"WhatNobodyHadSentIsTaken",
     [](TcpWire& w, const auto& key) {
       w.send(1, to_bytes(FrameKind::took, TookFrame{key, 1, 0, 1}), {});
     }},
    {"ThePoisonOfManyCulprits",
     [](TcpWire& w, const auto& key) {
       PoisonFrame frame{key, std::vector<std::pair<std::int32_t, std::uint8_t>>(300, {0, 99}), "x"};
       w.send(1, to_bytes(FrameKind::poison, frame), {});
     }},
    {"APayloadThatEndsTooEarly",
     [](TcpWire& w, const auto& key) {
       runtime::TcpWire::Prefix prefix;
       const std::vector<std::byte> head = to_bytes(FrameKind::part, PartFrame{key, 0, 1, 0});
       prefix.head_bytes = std::uint32_t(head.size());
       prefix.payload_bytes = 1000;
       runtime::seal(prefix, head, {});
       runtime::Socket raw(::dup(w.descriptor(1)));
       raw.send(std::as_bytes(std::span(&prefix, 1)));
       raw.send(head);
       ::shutdown(raw.fd(), SHUT_WR);
     }},
};

class AMemberThatLies : public ::testing::TestWithParam<Lie> {};

// Host 0 with place 0 is the test itself.
TEST_P(AMemberThatLies, IsCutOffAndNamedByItsHost) {
  ForkedHosts hosts({0, 1});
  hosts.timeout_s = 30;
  hosts.leave_out(0);
  std::vector<runtime::Socket> own(2);
  own[1] = std::move(hosts.wires[0][1]);
  TcpWire wire(0, std::move(own));
  bool cut = false;
  hosts.meanwhile = [&] {
    while (!hosts.all_in()) usleep(1000);
    GetParam().send(wire, hosts.key());
    cut = is_cut_off(wire);
  };
  const auto said = hosts.run([](Group& group) { return pytorch::rank_bodies::sums_once(group); });
  EXPECT_TRUE(cut);
  EXPECT_NE(said[1].find("rank 0 is gone with host 0 (node0)"), std::string::npos) << said[1];
}
INSTANTIATE_TEST_SUITE_P(Hostile, AMemberThatLies, ::testing::ValuesIn(kLies),
                         [](const auto& lie) { return lie.param.name; });

// ---- files at the end

TEST(FilesOfOtherHosts, HaveNamesOfRanksFiles) {
  for (const char* good : {"rank-0.rec", "rank-12.attempt-3.rec", "stack-0.txt", "refused-1.txt", "output-host-1.txt"})
    EXPECT_TRUE(is_name_of_a_rank_file(good)) << good;
  for (const char* bad : {"", "plan.json", "rank-0", "../rank-0.rec", "rank-../../x.rec", "rank-/x.rec", "/rank-0.rec",
                          "rank-0.rec\n", "report.json", ".rec", "Rank-0.rec"})
    EXPECT_FALSE(is_name_of_a_rank_file(bad)) << bad;
  EXPECT_FALSE(is_name_of_a_rank_file("rank-" + std::string(100, '1') + ".rec"));
}

TEST(FilesOfOtherHosts, AreNeverWrittenOverAFileNorBeyondTheirLimit) {
  const harness::testing::TemporaryFolder folder;
  const std::string there = folder.write("rank-0.rec", "mine");
  FileReceiver files(std::filesystem::path(there).parent_path(), 100);
  files.take({"rank-0.rec", 0, true}, filled(4));
  EXPECT_NE(files.problem().find("rank-0.rec: File exists"), std::string::npos) << files.problem();
  files.take({"rank-1.rec", 0, false}, filled(60));
  files.take({"rank-1.rec", 60, true}, filled(10));
  files.take({"rank-2.rec", 0, false}, filled(20));
  files.take({"rank-2.rec", 20, true}, filled(20));  // more than a host may
  files.take({"rank-3.rec", 5, true}, filled(1));    // without a beginning
  EXPECT_EQ(files.whole(), std::vector<std::string>{"rank-1.rec"});
  EXPECT_EQ(std::filesystem::file_size(folder.file("rank-1.rec")), 70u);
  EXPECT_EQ(harness::testing::read_all(there), "mine");
}

TEST(FilesOfOtherHosts, ArriveAsTheyWere) {
  const harness::testing::TemporaryFolder folder;
  const std::string big(2 * kFilePart + 17, 'x'), empty;
  FileSender sender({{folder.write("a", big), "rank-0.rec"},
                     {folder.write("b", empty), "stack-0.txt"},
                     {folder.write("c", std::string(kFilePart, 'y')), "output-0.txt"}});
  std::filesystem::create_directory(folder.file("there"));
  FileReceiver files(folder.file("there"), std::uint64_t(1) << 30);
  FileFrame frame;
  for (std::span<const std::byte> bytes; sender.next(frame, bytes);) files.take(frame, bytes);
  EXPECT_EQ(files.problem(), "");
  EXPECT_EQ(harness::testing::read_all(folder.file("there/rank-0.rec")), big);
  EXPECT_EQ(harness::testing::read_all(folder.file("there/stack-0.txt")), empty);
  EXPECT_EQ(harness::testing::read_all(folder.file("there/output-0.txt")), std::string(kFilePart, 'y'));
}

// ---- before the run

HostsPlan plan_for(const std::vector<std::string>& words) { return hosts_plan({}, words); }

TEST(HostsOfACommand, AreReadFromTheLaunchersWords) {
  const HostsPlan torchrun = plan_for({"torchrun", "--nnodes=2", "--node-rank", "1", "--rdzv-backend", "c10d",
                                       "--rdzv-endpoint", "node1:29500", "train.py", "--nnodes", "9"});
  EXPECT_EQ(torchrun.count, 2);
  EXPECT_EQ(torchrun.host, 1);
  EXPECT_EQ(torchrun.master, "node1");
  EXPECT_EQ(torchrun.port, 29500);
  const HostsPlan accelerate = plan_for({"accelerate", "launch", "--num_machines", "3", "--machine_rank=2",
                                         "--main_process_ip", "10.0.0.1", "--main_process_port", "1234", "train.py"});
  EXPECT_EQ(accelerate.count, 3);
  EXPECT_EQ(accelerate.host, 2);
  EXPECT_EQ(accelerate.master, "10.0.0.1");
  EXPECT_EQ(accelerate.port, 1234);
  EXPECT_EQ(plan_for({"torchrun", "--nproc-per-node", "2", "train.py"}).count, 1);
  EXPECT_EQ(hosts_plan({2, 0, "node1:1000", false}, {"train.py"}).port, 1000);
}

TEST(HostsOfACommand, ThatMakeNoSenseAreBadInput) {
  const std::vector<std::string> none = {"train.py"};
  for (const HostsAsked& asked :
       {HostsAsked{2, {}, "node1:1000", false}, HostsAsked{2, 2, "node1:1000", false}, HostsAsked{2, 0, "", false},
        HostsAsked{2, 0, "node1:0", false}, HostsAsked{2, 0, "node1:70000", false}, HostsAsked{2, 0, "node1:x", false},
        HostsAsked{{}, 1, "", false}, HostsAsked{{}, {}, "node1:1000", false}})
    EXPECT_THROW(hosts_plan(asked, none), BadInput);
  EXPECT_THROW(plan_for({"torchrun", "--nnodes", "2:4", "--node-rank", "0", "train.py"}), BadInput);
  EXPECT_THROW(plan_for({"torchrun", "--nnodes", "many", "--node-rank", "0", "train.py"}), BadInput);
}

TEST(HostsOfACommand, DoNotMeetOverAnOpenNetworkWithoutASecret) {
  ::unsetenv("SEEKSIM_TOKEN");
  try {
    meet_hosts({2, 0, "192.0.2.1", 29400, false}, "a task");
    FAIL() << "they met";
  } catch (const BadInput& bad) {
    EXPECT_NE(std::string(bad.what()).find("share no secret"), std::string::npos) << bad.what();
  }
}

std::string meet_as(int host, int port, const std::string& task) {
  try {
    const MetHosts met = meet_hosts({2, host, "127.0.0.1", std::uint16_t(port), false}, task);
    usleep(300'000);  // the other one still reads
    return std::to_string(met.names.size()) + " hosts";
  } catch (const BadInput& bad) {
    return bad.what();
  }
}

TEST(HostsOfACommand, HaveToHaveOneScenario) {
  const int port = 11'000 + ::getpid() % 9'000 * 2;
  for (const char* other : {"a task", "another task"}) {
    std::string said;
    std::thread thread([&] { said = meet_as(1, port, other); });
    const std::string here = meet_as(0, port, "a task");
    thread.join();
    if (std::string(other) == "a task") {
      EXPECT_EQ(here, "2 hosts");
      EXPECT_EQ(said, "2 hosts");
    } else {
      EXPECT_NE(here.find("has another scenario"), std::string::npos) << here;
      EXPECT_NE(said.find("has another scenario"), std::string::npos) << said;
    }
  }
}

}  // namespace
}  // namespace seeksim::harness::torch
