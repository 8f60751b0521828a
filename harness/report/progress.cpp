#include "harness/report/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "harness/report/terminal.h"
#include "runtime/seams/time.h"

namespace seeksim::harness {
namespace {

using std::chrono::steady_clock;

constexpr auto kBarBegins = std::chrono::seconds(1);
constexpr auto kBarEach = std::chrono::milliseconds(100);
constexpr auto kLineEach = std::chrono::seconds(60);
constexpr double kToGuess = 0.02;  // share of the work after which the rest can be guessed

std::string duration(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", seconds);
  if (seconds < 90 * 60) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

double share_of(const HowFar& now) {
  if (now.total > 0) return double(now.done) / double(now.total);
  return now.budget_s > 0 ? now.elapsed_s / now.budget_s : 0;
}

}  // namespace

std::string how_far(const HowFar& now, const std::string& unit) {
  std::string text = now.total > 0 ? fmt::format("{} {} of {}", unit, now.done, now.total)
                                   : fmt::format("{} {}{}", now.done, unit, now.done == 1 ? "" : "s");
  if (now.at_ns >= 0) text += fmt::format(", {:.3f} s virtual", runtime::seconds(now.at_ns));
  if (now.red > 0) text += fmt::format(", {} red", now.red);
  const double share = share_of(now);
  if (now.budget_s > 0)
    text += fmt::format(", {} of {}", duration(now.elapsed_s), duration(now.budget_s));
  else if (share >= kToGuess && share < 1)
    text += fmt::format(", about {} left", duration(now.elapsed_s * (1 - share) / share));
  else if (now.total == 0)
    text += fmt::format(", after {}", duration(now.elapsed_s));
  return text;
}

Progress::Progress(bool on, std::string name, std::int64_t total, std::string unit, double budget_s)
    : on_(on),
      bar_(::isatty(STDERR_FILENO) == 1 && shows_colour()),
      name_(std::move(name)),
      unit_(std::move(unit)),
      began_(steady_clock::now()),
      next_(began_ + (bar_ ? steady_clock::duration(kBarBegins) : steady_clock::duration(kLineEach))) {
  now_.total = total;
  now_.budget_s = budget_s;
}

void Progress::update(runtime::TimeNs now, std::int64_t done, std::int64_t red) {
  if (!on_) return;
  const auto wall = steady_clock::now();
  if (wall < next_) return;
  now_.done = done;
  now_.red = red;
  now_.at_ns = now > 0 ? now : -1;
  now_.elapsed_s = std::chrono::duration<double>(wall - began_).count();
  if (!bar_) {
    next_ = wall + kLineEach;
    std::fputs(fmt::format("seeksim: {}: {}\n", name_, how_far(now_, unit_)).c_str(), stderr);
    return;
  }
  next_ = wall + kBarEach;
  constexpr int kWidth = 30;
  const int filled = std::clamp(int(kWidth * share_of(now_)), 0, kWidth);
  const std::string line = fmt::format("\r\033[K{}  [{}{}]  {}", name_, std::string(std::size_t(filled), '#'),
                                       std::string(std::size_t(kWidth - filled), '.'), how_far(now_, unit_));
  std::fwrite(line.data(), 1, line.size(), stderr);
  drawn_ = true;
}

void Progress::finish() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

}  // namespace seeksim::harness
