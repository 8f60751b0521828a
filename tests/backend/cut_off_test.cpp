// A host that is cut off says nothing, and nobody can tell it anything. This process gets a network of its own for
// that, whose only interface goes down in the middle.
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "runtime/backend/control/control_client.h"
#include "runtime/backend/control/control_server.h"
#include "tests/backend/run_token.h"

namespace seeksim::runtime {
namespace {

constexpr int kCannot = 77, kWrong = 1, kRight = 0;

bool set_loopback(bool up) {
  const Socket any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq wish{};
  std::strcpy(wish.ifr_name, "lo");
  wish.ifr_flags = up ? IFF_UP : 0;
  return ::ioctl(any.fd(), SIOCSIFFLAGS, &wish) == 0;
}

bool has_a_network_of_its_own() {
  return (::unshare(CLONE_NEWNET) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0) && set_loopback(true);
}

// Whether this machine lets a test have one: asked in a child.
bool can_be_cut_off() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(has_a_network_of_its_own() ? kRight : kCannot);
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == kRight;
}

// Rank 0 of two votes, is cut off from the store, which waits for the other vote, and has to find that out.
int vote_and_be_cut_off() {
  if (!has_a_network_of_its_own()) return kCannot;
  ControlServer::Options options;
  options.ranks = 2;
  options.token = kToken;
  ControlServer server(options, [](int, const std::string&) {});
  std::jthread serving([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) server.step(5);
  });
  Signals signals;
  WallClock wall;
  ProgressLoop loop{wall};
  ControlClient client(loop, signals, {"127.0.0.1:" + std::to_string(server.port()), kToken, 0, 2, 0});
  if (!set_loopback(false)) return kCannot;
  Op op;
  op.kind = OpKind::vote;
  try {
    client.agree(op, 0, Ballot{}, kForever);
  } catch (const SeamError& error) {
    return error.kind() == ErrorKind::no_progress ? kRight : kWrong;
  }
  return kWrong;
}

TEST(CutOffSlowDeathTest, ARankThatCannotReachTheControlPlaneDoesNotWaitForEver) {
  if (!can_be_cut_off()) GTEST_SKIP() << "a process may have no network of its own here";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(vote_and_be_cut_off()), testing::ExitedWithCode(kRight), "");
}

}  // namespace
}  // namespace seeksim::runtime
