#include "harness/torch/hosts/relay.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "harness/torch/hosts/relay_loop.h"

namespace seeksim::harness::torch {

struct Relay::Impl {
  Impl(RelayPlan plan_given, std::unique_ptr<runtime::TcpWire> wire)
      : plan(std::move(plan_given)), bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (bell < 0) throw std::runtime_error("no eventfd");
    board.gave.resize(plan.names.size());
    board.why_lost.resize(plan.names.size());
    loop = std::make_unique<RelayLoop>(plan, std::move(wire), board, door, bell);
    thread = std::thread([this] { loop->run(); });
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    ask([](Board& all) { all.stop = true; });
    thread.join();
    ::close(bell);
  }

  void ask(const std::function<void(Board&)>& change) {
    {
      const std::lock_guard lock(board.mutex);
      change(board);
    }
    const std::uint64_t one = 1;
    if (::write(bell, &one, sizeof one) < 0) return;  // full: it is awake
  }
  // Until ready(board) holds, or the caller no longer wants to wait.
  bool await(const std::function<bool(const Board&)>& ready, const std::function<bool()>& give_up) {
    std::unique_lock lock(board.mutex);
    while (!ready(board)) {
      if (give_up()) return false;
      board.changed.wait_for(lock, std::chrono::milliseconds(50));
    }
    return true;
  }

  const RelayPlan plan;
  Board board;
  RanksDoor door;
  const int bell;
  std::unique_ptr<RelayLoop> loop;
  std::thread thread;
};

Relay::Relay(RelayPlan plan, std::unique_ptr<runtime::TcpWire> wire)
    : impl_(std::make_unique<Impl>(std::move(plan), std::move(wire))) {}
Relay::~Relay() = default;

const std::string& Relay::path() const { return impl_->door.path(); }

void Relay::job_failed(const std::string& text) {
  impl_->ask([&](Board& all) { all.own_failure = text; });
}

std::string Relay::failed_elsewhere() const {
  const std::lock_guard lock(impl_->board.mutex);
  return impl_->board.failed_elsewhere;
}

std::string Relay::why_lost(int host) const {
  const std::lock_guard lock(impl_->board.mutex);
  return impl_->board.why_lost.at(std::size_t(host));
}

std::vector<HostGave> Relay::collect(const std::function<bool()>& give_up) {
  impl_->await(
      [this](const Board& all) {
        for (std::size_t host = 0; host < all.gave.size(); ++host) {
          if (int(host) != impl_->plan.host && !all.gave[host].summary && all.why_lost[host].empty()) return false;
        }
        return true;
      },
      give_up);
  const std::lock_guard lock(impl_->board.mutex);
  std::vector<HostGave> gave = impl_->board.gave;
  for (std::size_t host = 0; host < gave.size(); ++host) {
    if (int(host) == impl_->plan.host || gave[host].summary) continue;
    const std::string& lost = impl_->board.why_lost[host];
    gave[host].problem = lost.empty() ? "this host no longer waited for it" : lost;
  }
  return gave;
}

void Relay::tell_verdict(const std::string& verdict) {
  impl_->ask([&](Board& all) { all.verdict = verdict; });
}

std::optional<std::string> Relay::give(std::vector<HostFile> files, const std::string& summary,
                                       const std::function<bool()>& give_up) {
  impl_->ask([&](Board& all) {
    all.files = std::move(files);
    all.summary = summary;
  });
  impl_->await([](const Board& all) { return all.verdict_came || !all.why_lost[0].empty(); }, give_up);
  const std::lock_guard lock(impl_->board.mutex);
  return impl_->board.verdict_came;
}

}  // namespace seeksim::harness::torch
