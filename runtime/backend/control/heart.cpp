#include "runtime/backend/control/heart.h"

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>

#include "runtime/backend/control/control_frame.h"

namespace seeksim::runtime {
namespace {
constexpr double kHeartToConnect_s = 20;
constexpr int kSupervisorGone = 3;  // the exit status of no progress
}  // namespace

Heart::Heart(const Options& options) : options_(options), socket_(connect_to(options.endpoint, kHeartToConnect_s)) {
  give_up_when_unreachable(socket_);
  socket_.send(frame_bytes(FrameKind::hello, to_bytes(Hello{options.token, options.rank, true})));
  thread_ = std::jthread([this](const std::stop_token& stop) { beat(stop); });
}

Heart::~Heart() {
  thread_.request_stop();
  thread_.join();
  socket_.send(frame_bytes(FrameKind::done, {}));
}

void Heart::beat(const std::stop_token& stop) {
  const std::vector<std::byte> alive = frame_bytes(FrameKind::beat, {}), met = frame_bytes(FrameKind::ready, {});
  std::mutex mutex;
  std::condition_variable_any alarm;
  std::unique_lock lock(mutex);
  bool told = false;
  while (!stop.stop_requested()) {
    const bool tell = !told && ready_;
    std::array<std::byte, 64> answer;  // nothing ever comes: a closed connection is what is looked for
    if (!socket_.send(tell ? met : alive) || socket_.receive(answer) < 0) {
      if (options_.when_lost == WhenLost::end_process) std::_Exit(kSupervisorGone);
      return;
    }
    told |= tell;
    alarm.wait_for(lock, stop, std::chrono::nanoseconds(options_.every_ns), [] { return false; });
  }
}

}  // namespace seeksim::runtime
