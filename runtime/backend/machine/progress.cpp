#include "runtime/backend/machine/progress.h"

#include <chrono>
#include <thread>

namespace seeksim::runtime {
namespace {
// A message between processes of one host takes about a microsecond, so looking again at once is best at first. Later
// naps are better than yields: a thread that wakes up runs at once, one that yields waits for a whole time slice.
constexpr int kSpins = 300;
constexpr auto kNap = std::chrono::microseconds(20);
}  // namespace

void ProgressLoop::turn() {
  bool moved = false;
  for (Poller* poller : pollers_) moved |= poller->poll();
  idle_ = moved ? 0 : idle_ + 1;
  if (idle_ > kSpins) std::this_thread::sleep_for(kNap);
}

}  // namespace seeksim::runtime
