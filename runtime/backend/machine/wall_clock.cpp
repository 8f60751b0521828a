#include "runtime/backend/machine/wall_clock.h"

#include <thread>

namespace seeksim::runtime {

TimeNs WallClock::now() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start_).count();
}

void WallClock::sleep_until(TimeNs t) {
  // kForever would overflow the clock's own type; a year is as good, and the process is killed long before.
  constexpr TimeNs kLongest = 365 * 24 * 3600 * kSecond;
  do {
    const TimeNs left = t - now();
    if (left <= 0) return;
    std::this_thread::sleep_for(std::chrono::nanoseconds(left < kLongest ? left : kLongest));
  } while (true);
}

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

}  // namespace seeksim::runtime
