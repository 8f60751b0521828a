// The loop and its scheduling algorithm. Rules that were each broken once: queues are stepped and timers fired by the
// loop alone, never while a fiber suspends; a fiber that parks takes its exception state with it; stacks are freed only
// when Boost's dispatcher runs.
#include "sim/loop.h"

#include <cxxabi.h>

#include <boost/fiber/all.hpp>
#include <chrono>
#include <utility>

#include "kernels/check.h"

namespace seeksim::sim {

namespace {
AskedToStop asked_to_stop = nullptr;
}
void stop_worlds_when(AskedToStop asked) { asked_to_stop = asked; }
bool worlds_shall_stop() { return asked_to_stop != nullptr && asked_to_stop(); }

namespace fibers = boost::fibers;

// Installed once a thread, as Boost demands; it outlives every Loop and follows the one that runs.
class SeededAlgorithm final : public fibers::algo::algorithm {
 public:
  static SeededAlgorithm& install() {
    if (instance_ == nullptr) fibers::use_scheduling_algorithm<SeededAlgorithm>();
    SEEKSIM_CHECK(instance_ != nullptr, "Boost.Fiber did not install the scheduling algorithm");
    return *instance_;
  }
  SeededAlgorithm() { instance_ = this; }
  ~SeededAlgorithm() override { instance_ = nullptr; }

  void follow(Loop* loop) { loop_ = loop; }
  bool followed() const { return loop_ != nullptr; }
  void reap() { reap_ = true; }

  void awakened(fibers::context* context) noexcept override {
    if (context->is_context(fibers::type::dispatcher_context))
      dispatcher_ = context;
    else if (context->is_context(fibers::type::main_context))
      main_ = context;
    else
      loop_->fibers_.ready.push_back({context, nullptr, nullptr, loop_->spawning_});
  }

  fibers::context* pick_next() noexcept override {
    if (reap_ && dispatcher_ != nullptr) {
      reap_ = false;
      return std::exchange(dispatcher_, nullptr);
    }
    if (main_ != nullptr) return std::exchange(main_, nullptr);
    if (loop_ == nullptr) return std::exchange(dispatcher_, nullptr);
    if (fibers::context::active() == loop_->fibers_.main) return std::exchange(loop_->fibers_.chosen, nullptr);
    return loop_->after_fiber();
  }

  bool has_ready_fibers() const noexcept override { return main_ != nullptr; }
  void suspend_until(const std::chrono::steady_clock::time_point&) noexcept override {}
  void notify() noexcept override {}

 private:
  static inline thread_local SeededAlgorithm* instance_ = nullptr;
  Loop* loop_ = nullptr;
  fibers::context* dispatcher_ = nullptr;
  fibers::context* main_ = nullptr;  // only when the main context yields, which it does to have stacks freed
  bool reap_ = false;
};

namespace {
std::int64_t wall_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
// How often the loop looks at the wall clock: a turn may be a kernel of milliseconds, or 100 ns.
constexpr std::uint64_t kTurnsPerLook = 64;
constexpr double kProgressEveryS = 0.05;
// With queues ready, the loop leaves them for a fiber once in so many times.
constexpr std::uint32_t kStayOdds = 8;
// Up to so many hosts, all that they touch stays in the caches.
constexpr std::size_t kSmallWorld = 256;
// Above this many fibers, guard pages exhaust the kernel's memory maps.
constexpr std::size_t kGuardedFibersMax = 30'000;
}  // namespace

std::uint64_t Loop::number_of_host(int rank) { return std::uint64_t(rank) << 32; }

std::uint64_t Loop::number_of(const runtime::SteppedQueue& queue) {
  std::uint32_t hash = 2166136261u;  // FNV-1a, of what the queue is called
  for (const char* c = queue.name(); *c != 0; ++c)
    hash = (hash ^ std::uint32_t(static_cast<unsigned char>(*c))) * 16777619u;
  return std::uint64_t(queue.rank()) << 32 | hash | 1;
}

Loop::Loop(const Config& config, Client& client)
    : config_(config),
      client_(client),
      schedule_(config.seed, Stream::schedule),
      untimed_(config.schedule.strategy == Strategy::untimed),
      steering_(untimed_ ? config.steering : nullptr),
      large_(config.hosts > kSmallWorld),
      change_odds_(large_ ? 2 : 8) {
  if (config.schedule.strategy != Strategy::seeded) chooser_.emplace(config.schedule, config.seed);
}

Loop::~Loop() = default;

double Loop::wall_s() const { return double(wall_ns() - wall_.start_ns) * 1e-9; }

void Loop::note(std::uint64_t what) {
  fingerprint_ = (fingerprint_ ^ what) * 0x9fb21c651e98df25ull;
  fingerprint_ ^= fingerprint_ >> 32;
}

void Loop::spawn(Host& host) {
  auto body = [this, &host] {
    host.context_ = fibers::context::active();
    if (!host.killed_) client_.host_main(host);
    host.ended_ = true;
    --living_;
    client_.host_ended(host);
  };
  const auto launch = [&](auto stack) {
    fibers::fiber(fibers::launch::post, std::allocator_arg, stack, body).detach();
  };
  spawning_ = host.rank();
  if (living_ < kGuardedFibersMax)
    launch(fibers::protected_fixedsize_stack(config_.stack_bytes));
  else
    launch(fibers::fixedsize_stack(config_.stack_bytes));
  spawning_ = -1;
}

void Loop::add(Host& host) {
  hosts_.push_back(&host);
  ++living_;
  spawn(host);
}

void Loop::run(const std::vector<Host*>& hosts) {
  SeededAlgorithm& algorithm = SeededAlgorithm::install();
  SEEKSIM_CHECK(!algorithm.followed(), "a world runs inside another one");
  fibers_.main = fibers::context::active();
  SEEKSIM_CHECK(fibers_.main->is_context(fibers::type::main_context), "a world runs on a fiber");
  algorithm.follow(this);
  wall_.start_ns = wall_ns();
  hosts_ = hosts;
  if (steering_ != nullptr) steering_->clock_moved();  // from another world of the same job
  living_ = hosts.size();
  fibers_.ready.reserve(hosts.size() + 1);
  for (Host* host : hosts) spawn(*host);

  std::exception_ptr failure;
  // In an untimed world an event that comes too late for all ranks might have come earlier: the steering has to see it.
  bool more = untimed_;
  while (living_ > 0 || (more && !ending_.stopping)) {
    bool failed = false;
    try {
      if (living_ > 0)
        turn();
      else
        more = turn_untimed();
    } catch (...) {
      failed = true;
      if (!failure) failure = std::current_exception();
    }
    if (failed) end_all();  // outside the catch block, since hosts run from here on
  }

  algorithm.reap();
  boost::this_fiber::yield();  // to Boost's dispatcher, which frees the stacks
  algorithm.follow(nullptr);
  if (failure) std::rethrow_exception(failure);
}

void Loop::end_all() {
  ending_.stopping = true;
  for (Host* host : hosts_) kill(*host);
}

void Loop::turn() {
  if (++turns_ % kTurnsPerLook == 0) look_outside();
  if (ending_.livelock && !ending_.stopping) {
    ending_.stopping = true;
    return client_.livelocked();
  }
  if (untimed_) {
    if (!turn_untimed()) move_clock();
    return;
  }
  if (chooser_) {
    if (!turn_by_choice()) advance();
    return;
  }
  // Going from queue to queue, or from fiber to fiber, costs half of going to and fro; the seed decides when to change.
  if (!ready_queues_.empty() && (!fiber_ready() || schedule_.below(kStayOdds) != 0)) {
    const std::size_t i = schedule_.below(std::uint32_t(ready_queues_.size()));
    runtime::SteppedQueue& queue = *ready_queues_[i];
    ready_queues_[i] = ready_queues_.back();
    ready_queues_.pop_back();
    note(std::uint64_t(queue.rank()) * 2 + 1);
    queue.step();
  } else if (fiber_ready()) {
    switch_to(take_fiber());
  } else {
    advance();
  }
}

// The rest stay in the order in which they became ready.
bool Loop::turn_by_choice() {
  choice_.candidates.clear();
  for (const ReadyFiber& fiber : fibers_.ready) choice_.candidates.push_back(number_of_host(fiber.rank));
  for (const runtime::SteppedQueue* queue : ready_queues_) choice_.candidates.push_back(number_of(*queue));
  if (choice_.candidates.empty()) return false;
  const std::size_t choice = chooser_->choose(choice_.candidates);
  note(choice_.candidates[choice]);
  if (choice < fibers_.ready.size()) {
    boost::fibers::context* const fiber = fibers_.ready[choice].context;
    fibers_.ready.erase(fibers_.ready.begin() + std::ptrdiff_t(choice));
    switch_to(fiber);
  } else {
    const auto place = ready_queues_.begin() + std::ptrdiff_t(choice - fibers_.ready.size());
    runtime::SteppedQueue& queue = **place;
    ready_queues_.erase(place);
    queue.step();
  }
  return true;
}

void Loop::make_ready(runtime::SteppedQueue& queue) {
  ready_queues_.push_back(&queue);
  if (steering_ != nullptr) steering_->enabled(number_of(queue));
}

Loop::ReadyFiber Loop::draw_fiber() {
  if (fibers_.ready.empty()) return {};
  const std::size_t i = schedule_.below(std::uint32_t(fibers_.ready.size()));
  const ReadyFiber fiber = fibers_.ready[i];
  fibers_.ready[i] = fibers_.ready.back();
  fibers_.ready.pop_back();
  note(i * 2);
  if (large_ && fiber.host != nullptr) {
    fiber.fetch_stack();
    client_.fetch_soon(*fiber.host);
  }
  return fiber;
}

void Loop::draw_ahead() {
  fibers_.next = fibers_.next_but_one.context != nullptr ? fibers_.next_but_one : draw_fiber();
  if (large_ && fibers_.next.host != nullptr) client_.fetch_now(*fibers_.next.host);
  fibers_.next_but_one = draw_fiber();
}

fibers::context* Loop::take_fiber() {
  if (fibers_.next.context == nullptr) draw_ahead();
  fibers::context* fiber = fibers_.next.context;
  draw_ahead();
  return fiber;
}

// In a world of thousands everything that a fiber touches has left the caches since it ran last. The lines near its
// stack's end, its rank's and its context's come in while another one still runs.
void Loop::ReadyFiber::fetch_stack() const {
  for (int line = -6; line < 10; ++line) __builtin_prefetch(frame + line * 64, 1);
  const char* own = reinterpret_cast<const char*>(context);
  for (int line = 0; line < 5; ++line) __builtin_prefetch(own + line * 64, 1);
}

// Called when a host suspends: to which context now? In a large world its queue had better be stepped while it is in
// the caches.
fibers::context* Loop::after_fiber() {
  if (chooser_ || !fiber_ready() || (!ready_queues_.empty() && schedule_.below(change_odds_) == 0)) return fibers_.main;
  return take_fiber();
}

void Loop::switch_to(fibers::context* fiber) {
  fibers_.chosen = fiber;
  ++switches_;
  fibers_.main->suspend();
}

void Loop::switch_away(Host& host) {
  struct Globals {  // the C++ ABI's exception state of a thread, which every fiber needs for itself
    void* caught;
    unsigned int uncaught;
  };
  auto* globals = reinterpret_cast<Globals*>(abi::__cxa_get_globals());
  const Globals mine = std::exchange(*globals, Globals{nullptr, 0});
  ++switches_;
  host.frame_ = static_cast<const char*>(__builtin_frame_address(0));
  host.context_->suspend();
  *globals = mine;
}

void Loop::wake(Host& host) {
  if (!host.parked_) return;
  host.parked_ = false;
  if (host.blocked_ == Blocked::for_ever) --hanging_;
  fibers_.ready.push_back({host.context_, &host, host.frame_, host.rank_});
  if (steering_ != nullptr) steering_->enabled(number_of_host(host.rank_));
}

void Loop::kill(Host& host) {
  touch(object(ObjectKind::host, std::uint64_t(host.rank_)), Access::write);
  if (host.ended_) return;
  host.killed_ = true;
  wake(host);
}

void Loop::at(TimeNs when, TimerTarget& target, std::uint64_t arg) {
  timers_.push({when < now_ ? now_ : when, ++timer_numbers_, &target, arg});
}

void Loop::watchdog_at(TimeNs when, TimerTarget& target, std::uint64_t arg) {
  watchdogs_.push({when < now_ ? now_ : when, ++timer_numbers_, &target, arg});
}

void Loop::call_at(TimeNs when, std::uint64_t process, std::function<void()> call) {
  at(when, calls_, calls_.add(process, std::move(call)));
}

std::uint64_t Loop::Calls::add(std::uint64_t process, std::function<void()> call) {
  if (free_.empty()) {
    calls_.push_back({std::move(call), process});
    return calls_.size() - 1;
  }
  const std::uint64_t place = free_.back();
  free_.pop_back();
  calls_[place] = {std::move(call), process};
  return place;
}

void Loop::Calls::fire(const Timer& timer) {
  const std::function<void()> call = std::exchange(calls_[timer.arg].call, nullptr);
  free_.push_back(timer.arg);
  call();
}

// The clock moves here and in move_clock(), and nowhere else.
void Loop::advance() {
  purge(timers_);
  // The first watchdog's time is never later than the first deadline: until a timer reaches it, no watchdog has to be
  // looked at.
  const bool timers_first = !timers_.empty() && (watchdogs_.empty() || timers_.top().when <= watchdogs_.top().when);
  if (!timers_first) purge(watchdogs_);
  if (timers_.empty() && watchdogs_.empty()) {
    client_.stuck();
    SEEKSIM_CHECK(fiber_ready() || !ready_queues_.empty() || !timers_.empty(), "a stuck world was not ended");
  } else if (watchdogs_.empty() || (!timers_.empty() && timers_.top().when <= watchdogs_.top().when)) {
    fire_due(timers_);
  } else {
    client_.before_watchdogs();
    fire_due(watchdogs_);
  }
}

void Loop::purge(TimerHeap& heap) {
  while (!heap.empty() && !heap.top().target->live(heap.top())) heap.pop();
}

void Loop::fire_due(TimerHeap& heap) {
  now_ = heap.top().when;
  while (!heap.empty() && heap.top().when == now_) {
    const Timer timer = heap.pop();
    if (large_) heap.fetch();
    if (timer.target->live(timer)) timer.target->fire(timer);
  }
}

// The one place where the wall clock is read: for the limit and for progress bars, never for what is simulated.
void Loop::look_outside() {
  if (!ending_.stopping && worlds_shall_stop()) {
    ending_.stopping = true;
    return client_.interrupted();
  }
  const double wall = wall_s();
  if (wall > wall_.last_progress_s + kProgressEveryS) {
    wall_.last_progress_s = wall;
    client_.progress(now_);
  }
  if (ending_.stopping || config_.wall_limit_s <= 0 || wall < config_.wall_limit_s) return;
  ending_.stopping = true;
  client_.out_of_wall_time();
}

}  // namespace seeksim::sim
