#include "harness/report/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace seeksim::harness {

using std::chrono::steady_clock;

Progress::Progress(bool on, std::string name, std::int64_t steps)
    : on_(on),
      name_(std::move(name)),
      steps_(std::max<std::int64_t>(1, steps)),
      next_(steady_clock::now() + std::chrono::seconds(1)) {}

void Progress::update(runtime::TimeNs now, std::int64_t steps_done) {
  if (!on_) return;
  const auto wall = steady_clock::now();
  if (wall < next_) return;
  next_ = wall + std::chrono::milliseconds(100);
  constexpr int kWidth = 30;
  const int filled = int(std::min<std::int64_t>(kWidth, kWidth * steps_done / steps_));
  const std::string line =
      fmt::format("\r\033[K{}  [{}{}]  step {} of {}, {:.3f} s virtual", name_, std::string(std::size_t(filled), '#'),
                  std::string(std::size_t(kWidth - filled), '.'), steps_done, steps_, double(now) / 1e9);
  std::fwrite(line.data(), 1, line.size(), stderr);
  drawn_ = true;
}

void Progress::finish() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

}  // namespace seeksim::harness
