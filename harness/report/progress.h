// A bar on stderr for runs that take longer than a second. It only looks, and only when there is a person to look at
// it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "runtime/seams/time.h"

namespace seeksim::harness {

class Progress {
 public:
  Progress(bool on, std::string name, std::int64_t steps);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(runtime::TimeNs now, std::int64_t steps_done);
  void finish();

 private:
  bool on_;
  bool drawn_ = false;
  std::string name_;
  std::int64_t steps_;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace seeksim::harness
