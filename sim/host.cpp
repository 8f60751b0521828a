// How a rank's host waits: it parks until it is woken, a deadline passes or it is killed. It is woken only through its
// parked flag, a rule that was broken once.
#include <exception>

#include "sim/loop.h"
#include "sim/timeline.h"

namespace seeksim::sim {

// Destructors that run while it is being told go on at once. Whatever waits after one has kept it to itself is told
// again: nothing that a killed host does may last.
bool Host::leaves() const {
  if (!unwinding_) return false;
  if (std::uncaught_exceptions() == 0) throw runtime::RankDied{rank_};
  return true;
}

void Host::block(Blocked why, TimeNs deadline) {
  if (leaves()) return;
  blocked_ = why;
  deadline_ = deadline;
  if (deadline < armed_) arm_watchdog();
  park();
  deadline_ = runtime::kForever;
}

void Host::sleep_until(TimeNs when) {
  while (!leaves() && loop_.now() < when) {
    const bool for_ever = when == runtime::kForever;
    blocked_ = for_ever ? Blocked::for_ever : Blocked::sleep;
    if (for_ever)
      ++loop_.hanging_;
    else
      loop_.at(when, *this, parks_ + 1);
    park();
  }
}

void Host::arm_watchdog() {
  armed_ = deadline_;
  loop_.watchdog_at(armed_, *this, kWatchdog);
}

void Host::park() {
  parked_ = true;
  ++parks_;
  const Blocked why = blocked_;
  const TimeNs since = loop_.now();
  loop_.switch_away(*this);
  if (why == Blocked::sleep || deadline_ <= loop_.now())
    loop_.touch(object(ObjectKind::park, std::uint64_t(rank_), parks_), Access::read);
  blocked_ = Blocked::no;
  if (timeline_ != nullptr) timeline_->waited(rank_, why, since, loop_.now());
  if (killed_ && !unwinding_) {
    unwinding_ = true;
    throw runtime::RankDied{rank_};
  }
}

// A watchdog's entry stays in the heap while waits come and go: it is looked at when its time has come, and armed anew
// if the host waits for something later by then.
bool Host::live(const Timer& timer) {
  if (timer.arg != kWatchdog) return parked_ && parks_ == timer.arg;
  if (timer.when != armed_) return false;  // an earlier deadline has armed another entry since
  if (parked_ && deadline_ <= timer.when) return true;
  armed_ = runtime::kForever;
  if (parked_ && deadline_ != runtime::kForever) arm_watchdog();
  return false;
}

void Host::fire(const Timer& timer) {
  if (timer.arg == kWatchdog) armed_ = runtime::kForever;
  loop_.wake(*this);
}

}  // namespace seeksim::sim
