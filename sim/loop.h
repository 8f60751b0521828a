// Loop: one thread, many hosts (fibers) and queues (stepped FIFOs), one virtual clock. What runs next is drawn from the
// seed among everything that can run; the clock moves only here, and only when nothing can.
//
// The hosts are Boost.Fiber fibers under our own scheduling algorithm. The loop itself runs on the thread's main
// context, not on Boost's dispatcher: kernels get the process's whole stack, errors of the loop propagate as exceptions
// (hooks of an algorithm are noexcept), and Boost's dispatcher is needed only to free the stacks at the end.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/host/stepped_queue.h"
#include "runtime/seams/error.h"
#include "sim/random.h"
#include "sim/schedule.h"
#include "sim/timers.h"

namespace boost::fibers {
class context;
}

namespace seeksim::sim {

class Loop;
class Timeline;

// Whether somebody outside wants every world of this process to end: each asks now and then. Never part of what is
// simulated. null: nobody ever does.
using AskedToStop = bool (*)();
void stop_worlds_when(AskedToStop asked);
bool worlds_shall_stop();

// What a host waits for, for wait-for graphs.
enum class Blocked : std::uint8_t { no, event, sleep, for_ever, rendezvous, agreement, abort, drain };

// A rank's host thread, as the loop sees it.
class Host final : public TimerTarget {
 public:
  Host(Loop& loop, int rank) : loop_(loop), rank_(rank) {}

  int rank() const { return rank_; }
  bool ended() const { return ended_; }
  bool dying() const { return killed_; }  // killed: nothing that it still does may be seen by anybody
  Blocked blocked() const { return parked_ ? blocked_ : Blocked::no; }
  TimeNs deadline() const { return deadline_; }

  // Parks until woken, for whatever reason, or until the deadline: callers loop over their condition. Throws RankDied
  // when the rank has been killed, but returns at once in destructors that run because of that.
  void block(Blocked why, TimeNs deadline);
  void sleep_until(TimeNs when);
  void draw_on(Timeline* timeline) { timeline_ = timeline; }  // null: no drawing

  bool live(const Timer& timer) override;
  void fire(const Timer& timer) override;
  DueTimer due(const Timer& timer) override;

  // In an untimed world others may run now: for where a host would otherwise go on from one wait to the next within one
  // step.
  void let_others();

 private:
  friend class Loop;
  static constexpr std::uint64_t kWatchdog = 0;  // timer arguments; others: the number of the park that sleeps
  void arm_watchdog();
  void park();
  bool leaves() const;  // it was killed, and destructors run; throws RankDied where none do

  Loop& loop_;
  int rank_;
  Blocked blocked_ = Blocked::no;
  bool parked_ = false;
  bool killed_ = false;
  bool unwinding_ = false;
  bool ended_ = false;
  boost::fibers::context* context_ = nullptr;
  const char* frame_ = nullptr;  // where its stack is in use, to be fetched ahead of a switch
  std::uint64_t parks_ = 0;
  Timeline* timeline_ = nullptr;
  TimeNs deadline_ = runtime::kForever;
  TimeNs armed_ = runtime::kForever;  // when this host's one entry among the watchdogs fires
};

class Loop {
 public:
  struct Config {
    std::uint64_t seed = 1;
    std::size_t stack_bytes = 256 << 10;
    double wall_limit_s = 0;
    std::size_t hosts = 0;
    Schedule schedule;
    Steering* steering = nullptr;
  };
  // Told by the loop, on the loop's own stack.
  class Client {
   public:
    virtual void host_main(Host& host) = 0;  // on the host's fiber; must not throw
    virtual void host_ended(Host& host) = 0;
    virtual void before_watchdogs() = 0;  // a deadline is about to pass
    virtual void stuck() = 0;             // nothing can run and no timer is left: must make hosts end
    virtual void livelocked() = 0;        // found_livelock() was called: must make hosts end
    virtual void interrupted() = 0;       // worlds_shall_stop(): must make hosts end
    virtual void out_of_wall_time() = 0;  // must make hosts end
    virtual void progress(TimeNs now) = 0;
    // It runs soon (next but one, then next): ask for the memory that it will touch.
    virtual void fetch_soon(const Host& host) = 0;
    virtual void fetch_now(const Host& host) = 0;

   protected:
    ~Client() = default;
  };

  Loop(const Config& config, Client& client);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Runs all hosts to their end. What the loop's own code throws ends all hosts and comes out here.
  void run(const std::vector<Host*>& hosts);

  TimeNs now() const { return now_; }
  void begin_at(TimeNs now) { now_ = now; }  // before it runs
  void make_ready(runtime::SteppedQueue& queue);
  void add(Host& host);  // one more, while they run
  void wake(Host& host);
  void kill(Host& host);  // its host ends with RankDied when it next runs

  void at(TimeNs when, TimerTarget& target, std::uint64_t arg);
  void watchdog_at(TimeNs when, TimerTarget& target, std::uint64_t arg);
  // The caller has counted too much without a step. The next turn ends the world.
  void found_livelock() { ending_.livelock = true; }

  // For what is rare. process: what it is called in an untimed world.
  void call_at(TimeNs when, std::uint64_t process, std::function<void()> call);

  // True in untimed worlds: nothing takes time, and the steering hears what each step touches.
  bool untimed() const { return untimed_; }
  void touch(Object what, Access how) const {
    if (steering_ != nullptr) steering_->touched(what, how);
  }
  void decided(int rank, std::uint64_t what) const {
    if (steering_ != nullptr) steering_->decided(rank, what);
  }
  static Object object_of(const runtime::SteppedQueue& queue);

  std::size_t living() const { return living_; }    // hosts that have not ended
  std::size_t hanging() const { return hanging_; }  // of these, asleep for ever
  std::uint64_t switches() const { return switches_; }
  std::uint64_t fingerprint() const { return fingerprint_; }
  const Chooser* chooser() const { return chooser_ ? &*chooser_ : nullptr; }  // null: the schedule is `seeded`
  // The wall clock spent so far, for the limit; the simulation itself never sees it.
  double wall_s() const;

 private:
  friend class Host;
  friend class SeededAlgorithm;

  class Calls final : public TimerTarget {
   public:
    bool live(const Timer&) override { return true; }
    void fire(const Timer& timer) override;
    DueTimer due(const Timer& timer) override { return {timer, calls_[timer.arg].process}; }
    std::uint64_t add(std::uint64_t process, std::function<void()> call);

   private:
    struct Call {
      std::function<void()> call;
      std::uint64_t process = 0;
    };
    std::vector<Call> calls_;
    std::vector<std::uint64_t> free_;
  };

  // A fiber that can run, with what is needed to fetch its memory before it does.
  struct ReadyFiber {
    boost::fibers::context* context = nullptr;
    const Host* host = nullptr;
    const char* frame = nullptr;
    int rank = -1;
    void fetch_stack() const;
  };

  // Numbers by which a chooser and the steering know hosts and queues.
  static std::uint64_t number_of_host(int rank);
  static std::uint64_t number_of(const runtime::SteppedQueue& queue);
  void spawn(Host& host);
  void turn();            // one decision of the loop
  bool turn_by_choice();  // the same where decisions are numbered; false: nothing can run
  bool turn_untimed();
  void collect_candidates();
  void run_candidate(std::size_t place);
  void collect_due(TimerHeap& heap);
  void run_due(const DueTimer& due);
  void move_clock();  // of an untimed world
  void advance();
  void fire_due(TimerHeap& heap);
  static void purge(TimerHeap& heap);
  void switch_to(boost::fibers::context* fiber);
  void switch_away(Host& host);
  bool fiber_ready() const { return fibers_.next.context != nullptr || !fibers_.ready.empty(); }
  ReadyFiber draw_fiber();
  void draw_ahead();
  boost::fibers::context* take_fiber();
  boost::fibers::context* after_fiber();  // called by the algorithm when a host suspends or ends
  void end_all();
  void look_outside();
  void note(std::uint64_t what);

  Config config_;
  Client& client_;
  Random schedule_;
  std::optional<Chooser> chooser_;  // instead, unless the schedule is `seeded`
  const bool untimed_;
  Steering* steering_;  // null: no steering, or no longer
  struct Candidate {
    std::uint64_t process;
    std::size_t place;  // among hosts, queues and timers in turn
  };
  // What can be chosen from in one decision.
  struct Choice {
    std::vector<DueTimer> due;
    std::vector<Candidate> ready;
    std::vector<std::uint64_t> candidates;
  } choice_;
  int spawning_ = -1;  // the rank whose fiber is being made
  TimeNs now_ = 0;
  struct Fibers {
    std::vector<ReadyFiber> ready;
    ReadyFiber next, next_but_one;  // drawn already, so that their memory is there when they run
    boost::fibers::context* main = nullptr;
    boost::fibers::context* chosen = nullptr;
  } fibers_;
  bool large_;                 // what it touches does not stay in the caches
  std::uint32_t change_odds_;  // 1 in so many: leave the fibers for the queues though fibers are ready
  std::vector<runtime::SteppedQueue*> ready_queues_;
  TimerHeap timers_;
  TimerHeap watchdogs_;
  std::uint64_t timer_numbers_ = 0;
  Calls calls_;
  std::vector<Host*> hosts_;
  std::size_t living_ = 0;
  std::size_t hanging_ = 0;
  struct Ending {
    bool stopping = false;
    bool livelock = false;
  } ending_;
  std::uint64_t switches_ = 0;
  std::uint64_t fingerprint_ = 0x243f6a8885a308d3ull;
  std::uint64_t turns_ = 0;
  struct Wall {
    std::int64_t start_ns = 0;
    double last_progress_s = 0;
  } wall_;
};

}  // namespace seeksim::sim
