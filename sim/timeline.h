// Timeline: what the queues and the hosts of a world did and when, in virtual time, for a picture of a run. It listens
// and never influences anything. Its memory is bounded: where a run is too long, whole steps are left out, evenly,
// between its first steps and its last ones. Steps of faults, failures and recoveries stay, and those beside them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/host/host_memory.h"
#include "runtime/seams/queue.h"
#include "runtime/seams/recorder.h"
#include "sim/loop.h"

namespace seeksim::sim {

// Parts of a run: each step of each epoch, by number in the order in which they began. A job that starts again makes
// new ones.
class Parts {
 public:
  struct Part {
    std::uint32_t epoch = 0;
    std::int64_t step = -1;  // -1: before the first one
    TimeNs begin = 0;        // of all that was drawn in it
    TimeNs end = 0;
    bool matters = false;  // a fault, a failure or a recovery falls into it
  };
  // The number of a part; a new one where it was not met yet.
  std::uint32_t number(std::uint32_t epoch, std::int64_t step, TimeNs now);
  void lasts(std::uint32_t part, TimeNs begin, TimeNs end);
  void matters(std::uint32_t part) { all_[part].matters = true; }
  // Whether the part matters, or one beside it.
  bool matters_near(std::uint32_t part) const;
  void begin_again() { numbers_.clear(); }
  const std::vector<Part>& all() const { return all_; }

 private:
  static constexpr std::size_t kNumbersMax = 1024;  // no rank is so many steps behind another one
  std::vector<Part> all_;
  std::map<std::pair<std::uint32_t, std::int64_t>, std::uint32_t> numbers_;
};

// Items of a run in the order of their reports, at most so many. One too many, and whole parts are left out: of those
// between the first eighth and the last quarter, all but every second, fourth, .. one; parts that matter stay as long
// as there is room. Where few parts are too many, the oldest quarter and the newest half of the items stay.
template <class T>  // with a member `part`
class Thinned {
 public:
  explicit Thinned(std::size_t most) : most_(most) {}
  // True where items were left out: the others have moved.
  bool add(T item, const Parts& parts);
  const std::deque<T>& items() const { return items_; }
  T& at(std::size_t place) { return items_[place]; }
  std::uint64_t left_out() const { return left_out_; }
  // The first item behind a gap in the middle of a part; 0: there is no such gap.
  std::size_t gap() const { return gap_; }

 private:
  void thin(const Parts& parts);
  bool stays(std::uint32_t part, const Parts& parts) const;

  std::size_t most_;
  std::deque<T> items_;
  std::uint64_t left_out_ = 0;
  std::uint32_t first_ = 0;   // parts before it stay
  std::uint32_t recent_ = 0;  // and those behind it
  std::size_t stride_ = 1, stride_of_what_matters_ = 1;
  std::size_t gap_ = 0;
};

class Timeline {
 public:
  static constexpr std::size_t kSpansMax = 500'000;  // about 80 MB; of messages and depths of queues too
  static constexpr std::size_t kMarksMax = 10'000;
  static constexpr std::size_t kLevelsMax = 100'000;  // of memory; about 13 MB

  // A queue of a rank, or its host.
  struct Lane {
    int rank = -1;
    std::string name;  // "compute queue"; "host"
    bool is_host = false;
    std::uint64_t spans = 0;  // so far, left out ones too
  };
  // One launch, one operation of a communicator, or one wait of a host. Spans of a lane do not overlap.
  struct Span {
    std::uint32_t lane = 0;
    TimeNs begin = 0;
    TimeNs end = 0;
    runtime::Op op;                                                // for a wait: the waiting rank only
    runtime::RecordState state = runtime::RecordState::completed;  // else it was cut short
    Blocked why = Blocked::no;                                     // of a wait
    std::uint32_t part = 0;
  };
  // A message between two ranks: by itself, or as a part of an operation that consists of messages.
  struct Arrow {
    std::uint32_t from = 0, to = 0;  // lanes
    TimeNs sent = 0, received = 0;
    std::uint32_t part = 0;
  };
  // Something that happened at an instant.
  struct Mark {
    TimeNs at = 0;
    int rank = -1;  // -1: to the world
    const char* what = "";
    std::string text;
    std::uint32_t part = 0;
  };

  // What a rank's device holds from here on.
  struct Memory {
    TimeNs at = 0;
    int rank = 0;
    runtime::BytesByTag bytes{};
    std::uint32_t part = 0;
    std::size_t total() const;
  };
  // How much stands in a queue when a launch begins, itself included; 0 where it ends as the last one.
  struct Depth {
    TimeNs at = 0;
    std::uint32_t lane = 0;
    std::size_t depth = 0;
    std::uint32_t part = 0;
  };
  // A stretch of which nothing is kept.
  struct LeftOut {
    TimeNs begin = 0, end = 0;
    std::int64_t first_step = 0, last_step = 0;  // that lie in it
    bool whole = true;                           // false: it begins and ends within these steps
  };

  explicit Timeline(int ranks)
      : lanes_of_(std::size_t(ranks)),
        part_of_(std::size_t(ranks)),
        undrawn_(std::size_t(ranks)),
        held_(std::size_t(ranks)),
        peaks_(std::size_t(ranks)) {}

  void ran(const runtime::Queue& queue, int rank, const runtime::Op& op, TimeNs begin, TimeNs end,
           runtime::RecordState state = runtime::RecordState::completed);
  void waited(int rank, Blocked why, TimeNs begin, TimeNs end);
  void message(const runtime::Queue& from, int sender, const runtime::Queue& to, int receiver, TimeNs sent,
               TimeNs received);
  // What the device holds now; what has not changed is not kept.
  void holds(int rank, TimeNs now, const runtime::BytesByTag& bytes);
  void depth(const runtime::Queue& queue, int rank, TimeNs begin, TimeNs end, std::size_t depth);
  void mark(TimeNs at, int rank, const char* what, std::string text);  // what: a literal
  // Whether the waits of the rank's host are drawn from here on.
  void draw_waits(int rank, bool drawn) { undrawn_[std::size_t(rank)] = !drawn; }
  // The rank is gone: what it was about to do ends here.
  void cut(int rank, TimeNs now);
  // The processes of all ranks have started again, on other queues and empty devices: goes on behind what was drawn of
  // those before.
  void go_on(Timeline&& before, TimeNs now);

  const std::vector<Lane>& lanes() const { return lanes_; }
  const std::deque<Span>& spans() const { return spans_.items(); }
  const std::deque<Arrow>& arrows() const { return arrows_.items(); }
  const std::deque<Mark>& marks() const { return marks_.items(); }
  const std::deque<Memory>& memory() const { return memory_.items(); }
  const std::deque<Depth>& depths() const { return depths_.items(); }
  const std::vector<Parts::Part>& parts() const { return parts_.all(); }
  // What a rank's device held when that was most, exactly.
  const Memory& memory_peak(int rank) const { return peaks_[std::size_t(rank)]; }
  std::uint64_t forgotten() const { return spans_.left_out(); }  // spans
  std::vector<LeftOut> left_out() const;                         // of the spans, in the order of time
  int ranks() const { return int(lanes_of_.size()); }

 private:
  struct LaneOf {
    const runtime::Queue* queue;  // null: the host
    std::uint32_t lane;
    bool free = false;  // its queue is gone; the next one of its name takes its place
  };
  static constexpr std::size_t kNone = ~std::size_t(0);
  LaneOf& lane_of(int rank, const runtime::Queue* queue);
  void add(const LaneOf& lane, Span span);
  std::uint32_t here(int rank, TimeNs now);  // the part in which the rank is
  void find_newest();

  Parts parts_;
  std::vector<Lane> lanes_;
  std::vector<std::size_t> newest_;            // by lane: the place of its newest span; kNone: it was left out
  std::vector<std::vector<LaneOf>> lanes_of_;  // by rank, in the order of first use
  std::vector<std::uint32_t> part_of_;         // by rank: where it is
  std::vector<bool> undrawn_;                  // by rank: its host's waits
  Thinned<Span> spans_{kSpansMax};
  Thinned<Arrow> arrows_{kSpansMax};
  Thinned<Mark> marks_{kMarksMax};
  std::vector<runtime::BytesByTag> held_;  // by rank: its newest
  std::vector<Memory> peaks_;              // by rank
  Thinned<Memory> memory_{kLevelsMax};
  Thinned<Depth> depths_{kSpansMax};
};

}  // namespace seeksim::sim
