// The loop of an untimed world: everything that can happen now is a candidate, and the steering or a chooser picks one.
// Nothing takes time but waiting; the clock moves when there is no candidate left.
#include <algorithm>
#include <cstddef>

#include "kernels/check.h"
#include "sim/loop.h"

namespace seeksim::sim {

// The deadline is that of the wait that it is in now, whatever it waits for when this timer's turn comes.
DueTimer Host::due(const Timer& timer) {
  const bool watchdog = timer.arg == kWatchdog;
  if (watchdog) armed_ = runtime::kForever;
  DueTimer due{timer, arrival(watchdog ? Arrival::deadline : Arrival::sleep, rank_, parks_),
               object(ObjectKind::park, std::uint64_t(rank_), parks_)};
  due.timer.arg = parks_;
  return due;
}

void Host::let_others() {
  if (!loop_.untimed() || leaves()) return;
  parked_ = true;
  ++parks_;
  loop_.wake(*this);
  loop_.switch_away(*this);
  if (!killed_ || unwinding_) return;
  unwinding_ = true;
  throw runtime::RankDied{rank_};
}

// Candidates are ordered by their names, not by age: so the default choice depends on the state alone.
void Loop::collect_candidates() {
  collect_due(timers_);
  collect_due(watchdogs_);
  choice_.ready.clear();
  std::size_t place = 0;
  for (const ReadyFiber& fiber : fibers_.ready) choice_.ready.push_back({number_of_host(fiber.rank), place++});
  for (const runtime::SteppedQueue* queue : ready_queues_) choice_.ready.push_back({number_of(*queue), place++});
  for (const DueTimer& due : choice_.due) choice_.ready.push_back({due.process, place++});
  std::stable_sort(choice_.ready.begin(), choice_.ready.end(),
                   [](const Candidate& a, const Candidate& b) { return a.process < b.process; });
  const auto same = [](const Candidate& a, const Candidate& b) { return a.process == b.process; };
  choice_.ready.erase(std::unique(choice_.ready.begin(), choice_.ready.end(), same), choice_.ready.end());
  choice_.candidates.clear();
  for (const Candidate& one : choice_.ready) choice_.candidates.push_back(one.process);
}

// False: nothing can run.
bool Loop::turn_untimed() {
  collect_candidates();
  if (choice_.candidates.empty()) return false;
  std::uint32_t choice = 0;
  if (steering_ != nullptr) {
    choice = steering_->choose(choice_.candidates);
    if (choice == Steering::kEnough) {
      steering_ = nullptr;
      end_all();
      return true;
    }
    chooser_->take(choice_.candidates.size(), choice);
  } else {
    choice = chooser_->choose(choice_.candidates);
  }
  note(choice_.candidates[choice]);
  run_candidate(choice_.ready[choice].place);
  return true;
}

void Loop::run_candidate(std::size_t place) {
  if (place < fibers_.ready.size()) {
    const ReadyFiber fiber = fibers_.ready[place];
    fibers_.ready.erase(fibers_.ready.begin() + std::ptrdiff_t(place));
    touch(object(ObjectKind::host, std::uint64_t(fiber.rank)), Access::read);
    return switch_to(fiber.context);
  }
  place -= fibers_.ready.size();
  if (place < ready_queues_.size()) {
    runtime::SteppedQueue& queue = *ready_queues_[place];
    ready_queues_.erase(ready_queues_.begin() + std::ptrdiff_t(place));
    touch(object_of(queue), Access::add);
    return queue.step();
  }
  place -= ready_queues_.size();
  const DueTimer due = choice_.due[place];
  choice_.due.erase(choice_.due.begin() + std::ptrdiff_t(place));
  run_due(due);
}

// What no longer matters when its time comes is forgotten; what ceases to matter only then stays, since it might have
// come first.
void Loop::collect_due(TimerHeap& heap) {
  while (!heap.empty() && heap.top().when <= now_) {
    const Timer timer = heap.pop();
    if (!timer.target->live(timer)) continue;
    choice_.due.push_back(timer.target->due(timer));
    if (steering_ != nullptr) steering_->enabled(choice_.due.back().process);
  }
}

void Loop::run_due(const DueTimer& due) {
  if (due.object.kind() != ObjectKind::none) touch(due.object, due.how);
  if (due.timer.target->live(due.timer)) due.timer.target->fire(due.timer);
}

void Loop::move_clock() {
  purge(timers_);
  purge(watchdogs_);
  if (steering_ != nullptr) steering_->clock_moved();
  if (timers_.empty() && watchdogs_.empty()) {
    client_.stuck();
    SEEKSIM_CHECK(fiber_ready() || !ready_queues_.empty() || !timers_.empty(), "a stuck world was not ended");
    return;
  }
  const bool timers_first = !timers_.empty() && (watchdogs_.empty() || timers_.top().when <= watchdogs_.top().when);
  if (!timers_first) client_.before_watchdogs();
  now_ = timers_first ? timers_.top().when : watchdogs_.top().when;
}

Object Loop::object_of(const runtime::SteppedQueue& queue) {
  return object(ObjectKind::queue, std::uint64_t(queue.rank()), number_of(queue) & 0xffffffff);
}

}  // namespace seeksim::sim
