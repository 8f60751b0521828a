#include "runtime/backend/wire/tcp_world.h"

#include <fmt/format.h>

#include <cstdlib>
#include <stdexcept>

#include "runtime/backend/machine/wall_clock.h"
#include "runtime/backend/wire/rendezvous.h"

namespace seeksim::runtime {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

int number(const char* name, int least, int most) {
  const std::string text = variable(name);
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != 0 || value < least || value > most)
    throw std::runtime_error(fmt::format("{}={}: a number from {} to {} is expected", name, text, least, most));
  return int(value);
}

// Rank 0 reads while it trains and while it waits for reports. In between it may be busy for a while.
constexpr int kTakesNothing_s = 60;

constexpr std::size_t kSecretMin = 16;  // characters; what is shorter can be guessed

}  // namespace

// SEEKSIM_TOKEN was meant as one, whatever its length; torchrun sets its run's id without being asked, to "none" even.
std::string secret_of_the_job() {
  const std::string token = variable("SEEKSIM_TOKEN"), run = variable("TORCHELASTIC_RUN_ID");
  if (!token.empty() && token.size() < kSecretMin)
    throw std::runtime_error(
        fmt::format("SEEKSIM_TOKEN has {} characters: at least {} are needed", token.size(), kSecretMin));
  if (!token.empty()) return token;
  return run.size() >= kSecretMin ? run : "";
}

bool TcpWorld::asked_for() { return !variable("RANK").empty() && !variable("WORLD_SIZE").empty(); }

TcpWorld::TcpWorld(bool insecure) {
  size_ = number("WORLD_SIZE", 1, 4096);
  rank_ = number("RANK", 0, size_ - 1);
  const std::string master = variable("MASTER_ADDR");
  if (master.empty()) throw std::runtime_error("MASTER_ADDR is not set");
  const int port = number("MASTER_PORT", 1, 65534);
  // torchrun's own store holds that port.
  const bool taken = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  Rendezvous at;
  at.rank = rank_;
  at.size = size_;
  at.master = address_ = master;
  at.port = std::uint16_t(taken ? port + 1 : port);
  at.secret = secret_of_the_job();
  at.insecure = insecure;
  Met met = meet(at);
  hosts_ = met.hosts;
  wire_.emplace(rank_, std::move(met.peers));
}

TcpWorld::~TcpWorld() {
  // What is still to be sent goes out: the last word of rank 0.
  for (int i = 0; i < 100 && wire_->poll(); ++i) {
  }
}

std::string TcpWorld::broadcast(std::string text) {
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  if (rank_ == 0) {
    for (int to = 1; to < size_; ++to) wire_->send_text(to, {bytes, text.size()});
    while (wire_->poll()) {
    }
    return text;
  }
  for (;;) {
    if (const auto told = wire_->text_from(0)) return {reinterpret_cast<const char*>(told->data()), told->size()};
    if (wire_->closed(0)) throw PeerGone(fmt::format("rank 0 is gone: {}", wire_->why_closed(0)));
    if (!wire_->poll()) nap();
  }
}

std::vector<std::vector<std::byte>> TcpWorld::gather(std::vector<std::byte> mine, int count, TimeNs patience) {
  std::vector<std::vector<std::byte>> all;
  if (rank_ != 0) {
    wire_->send_text(0, mine);
    wire_->give_up_when_unreachable(0, kTakesNothing_s);
    while (wire_->unsent(0) && !wire_->closed(0)) {
      if (!wire_->poll()) nap();
    }
    return all;
  }
  all.resize(std::size_t(count));
  all[0] = std::move(mine);
  std::vector<bool> here(all.size(), false);
  here[0] = true;
  const WallClock clock;
  TimeNs last = clock.now();
  for (int missing = count - 1; missing > 0 && clock.now() - last < patience;) {
    if (!wire_->poll()) nap();
    for (int from = 1; from < count; ++from) {
      if (here[std::size_t(from)]) continue;
      if (auto text = wire_->text_from(from)) {
        all[std::size_t(from)] = std::move(*text);
      } else if (!wire_->closed(from)) {
        continue;
      }
      here[std::size_t(from)] = true;
      last = clock.now();
      --missing;
    }
  }
  return all;
}

// The others see that the connections are closed.
void TcpWorld::abort(int exit_status) { std::_Exit(exit_status); }

}  // namespace seeksim::runtime
