// The real Clock: nanoseconds of the monotonic clock since this object was made.
#pragma once

#include <chrono>

#include "runtime/seams/seams.h"

namespace seeksim::runtime {

class WallClock : public Clock {
 public:
  WallClock() : start_(std::chrono::steady_clock::now()) {}
  TimeNs now() const override;
  void sleep_until(TimeNs t) override;

 private:
  std::chrono::steady_clock::time_point start_;
};

// Sleeps for a millisecond. Loops that look again and again for something call it between two looks.
void nap();

}  // namespace seeksim::runtime
