// Hosts as processes, each with a relay and ranks that it forks: nothing is shared between two of them but TCP
// connections over loopback. What ranks say comes back through memory of the test.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "harness/torch/hosts/relay.h"
#include "pytorch/core/group.h"
#include "runtime/backend/wire/sockets.h"

namespace seeksim::harness::torch::testing {

using runtime::Socket;

// Both ends of a connection over loopback.
inline std::pair<Socket, Socket> tcp_pair() {
  std::uint16_t port = 0;
  const Socket listener = runtime::listen_at("127.0.0.1", port);
  Socket one = runtime::connect_to("127.0.0.1:" + std::to_string(port), 10);
  Socket other;
  while (!other.open()) other = runtime::accept_from(listener);
  return {std::move(one), std::move(other)};
}

// By host, and in it by the other host.
using Mesh = std::vector<std::vector<Socket>>;
inline Mesh mesh(int hosts) {
  Mesh all;
  for (int host = 0; host < hosts; ++host) all.emplace_back(std::size_t(hosts));
  for (std::size_t a = 0; a < all.size(); ++a) {
    for (std::size_t b = a + 1; b < all.size(); ++b) {
      auto [one, other] = tcp_pair();
      all[a][b] = std::move(one);
      all[b][a] = std::move(other);
    }
  }
  return all;
}

class ForkedHosts {
 public:
  using Body = std::function<std::string(pytorch::Group&)>;

  // The host of each place of the group.
  explicit ForkedHosts(std::vector<int> hosts)
      : timeout_s(60), hosts_(std::move(hosts)), key_(pytorch::new_group_key()) {
    void* at = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    shared_ = new (at) Shared;
    wires = mesh(1 + *std::max_element(hosts_.begin(), hosts_.end()));
  }
  ForkedHosts(const ForkedHosts&) = delete;
  ForkedHosts& operator=(const ForkedHosts&) = delete;
  ~ForkedHosts() { ::munmap(shared_, sizeof(Shared)); }

  double timeout_s;
  double unreachable_s = 20;
  Mesh wires;                       // a test may put something in between
  std::function<void()> meanwhile;  // runs here while the ranks do

  const pytorch::GroupKey& key() const { return key_; }
  // How often ranks were asked for their stacks.
  int asked_for_stacks() const { return shared_->stacks; }
  // The test itself is this host.
  void leave_out(int host) { absent_ = host; }
  // All ranks have come in.
  bool all_in() const { return shared_->entered == expected(); }
  bool all_over() const { return shared_->over; }

  // Runs it in each rank. What each said, "signal 9" of one that was killed, or "gone with its host".
  std::vector<std::string> run(const Body& body) {
    std::set<int> all(hosts_.begin(), hosts_.end());
    all.erase(absent_);
    std::vector<pid_t> pids(wires.size(), 0);
    for (const int host : all) {
      pids[std::size_t(host)] = ::fork();
      if (pids[std::size_t(host)] == 0) be_a_host(host, body);
    }
    for (const int host : all) wires[std::size_t(host)].clear();
    if (meanwhile) meanwhile();
    await_ranks(pids);
    shared_->over = true;
    for (const int host : all) {
      if (pids[std::size_t(host)] > 0) ::waitpid(pids[std::size_t(host)], nullptr, 0);
    }
    std::vector<std::string> said;
    for (std::size_t place = 0; place < hosts_.size(); ++place)
      said.push_back(shared_->done[place] != 0 ? shared_->said[place] : "gone with its host");
    return said;
  }

 private:
  static constexpr std::size_t kRanks = 8, kText = 2000;
  struct Shared {
    std::atomic<int> entered{0}, stacks{0};
    std::atomic<bool> over{false};
    std::atomic<bool> handed_over[kRanks] = {};  // by host: the memory
    std::atomic<int> done[kRanks] = {};
    char said[kRanks][kText] = {};
  };

  void await_ranks(std::vector<pid_t>& pids) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    for (std::size_t place = 0; place < hosts_.size(); ++place) {
      pid_t& host = pids[std::size_t(hosts_[place])];
      while (shared_->done[place] == 0 && host > 0) {
        if (::waitpid(host, nullptr, WNOHANG) == host) host = 0;
        if (std::chrono::steady_clock::now() > until) ::kill(host, SIGKILL);
        ::usleep(2000);
      }
    }
  }

  void say(int place, const std::string& text) {
    std::strncpy(shared_->said[place], text.c_str(), kText - 1);
    shared_->done[place] = 1;
  }

  [[noreturn]] void be_a_host(int host, const Body& body) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::vector<Socket> own = std::move(wires[std::size_t(host)]);
    wires.clear();
    std::vector<pid_t> ranks(hosts_.size(), 0);
    {
      const pytorch::Segment memory = pytorch::Segment::create(int(hosts_.size()));
      RelayPlan plan;
      plan.host = host;
      for (std::size_t i = 0; i < own.size(); ++i) plan.names.push_back("node" + std::to_string(i));
      plan.unreachable_s = unreachable_s;
      plan.folder = "/nowhere";
      Relay relay(plan, std::make_unique<runtime::TcpWire>(host, std::move(own)));
      const pid_t parent = ::getpid();
      for (int place = 0; place < int(hosts_.size()); ++place) {
        if (hosts_[std::size_t(place)] != host) continue;
        ranks[std::size_t(place)] = ::fork();
        if (ranks[std::size_t(place)] == 0) be_a_rank(place, parent, memory, relay.path(), body);
        // The first one hands the memory over before the others come.
        while (place == first_of(host) && !shared_->handed_over[host]) ::usleep(200);
      }
      for (std::size_t place = 0; place < ranks.size(); ++place) {
        int status = 0;
        if (ranks[place] <= 0 || ::waitpid(ranks[place], &status, 0) != ranks[place]) continue;
        if (WIFSIGNALED(status)) say(int(place), "signal " + std::to_string(WTERMSIG(status)));
      }
      while (!shared_->over) ::usleep(1000);
    }
    ::_exit(0);
  }

  int expected() const { return int(hosts_.size() - std::size_t(std::count(hosts_.begin(), hosts_.end(), absent_))); }
  int first_of(int host) const { return int(std::find(hosts_.begin(), hosts_.end(), host) - hosts_.begin()); }

  [[noreturn]] void be_a_rank(int place, pid_t parent, const pytorch::Segment& memory, const std::string& path,
                              const Body& body) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    stacks_ = &shared_->stacks;
    ::signal(SIGUSR2, [](int) { ++*stacks_; });
    try {
      say(place, in_the_group(place, memory, path, body));
    } catch (const std::exception& wrong) {
      say(place, wrong.what());
    }
    ::_exit(0);
  }

  std::string in_the_group(int place, const pytorch::Segment& memory, const std::string& path, const Body& body) {
    pytorch::Group::Settings settings;
    settings.name = "0";
    settings.ranks.resize(hosts_.size());
    std::iota(settings.ranks.begin(), settings.ranks.end(), 0);
    settings.place = place;
    settings.timeout_s = timeout_s;
    settings.shows_stacks = true;
    settings.hosts = hosts_;
    for (int host = 0; host <= *std::max_element(hosts_.begin(), hosts_.end()); ++host)
      settings.host_names.push_back("node" + std::to_string(host));
    settings.relay = std::make_shared<pytorch::RelayLine>(path);
    pytorch::Entrance entrance;
    entrance.key = key_;
    entrance.size = int(hosts_.size());
    entrance.place = place;
    std::copy(hosts_.begin(), hosts_.end(), entrance.hosts.begin());
    const int host = hosts_[std::size_t(place)];
    settings.relay->enter(entrance, place == first_of(host) ? memory.file() : -1);
    shared_->handed_over[host] = true;
    pytorch::Group group(pytorch::Segment::open(memory.address(), int(hosts_.size())), settings);
    group.come_in();
    ++shared_->entered;
    while (!all_in()) ::usleep(200);
    group.know_all();
    return body(group);
  }

  inline static std::atomic<int>* stacks_ = nullptr;
  std::vector<int> hosts_;
  int absent_ = -1;
  pytorch::GroupKey key_;
  Shared* shared_ = nullptr;
};

}  // namespace seeksim::harness::torch::testing
