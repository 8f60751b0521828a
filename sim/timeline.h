// Timeline: what the queues and the hosts of a world did and when, in virtual time, for a picture of a run. It listens
// and never influences anything. Its memory is bounded: past kSpansMax the oldest spans are forgotten and counted.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "runtime/host/host_memory.h"
#include "runtime/seams/queue.h"
#include "runtime/seams/recorder.h"
#include "sim/loop.h"

namespace seeksim::sim {

class Timeline {
 public:
  static constexpr std::size_t kSpansMax = 500'000;  // about 80 MB
  static constexpr std::size_t kMarksMax = 10'000;
  static constexpr std::size_t kLevelsMax = 100'000;  // of each kind; about 12 MB

  // A queue of a rank, or its host.
  struct Lane {
    int rank = -1;
    std::string name;  // "compute queue"; "host"
    bool is_host = false;
    std::uint64_t spans = 0;  // so far, forgotten ones too
  };
  // One launch, one operation of a communicator, or one wait of a host. Spans of a lane do not overlap.
  struct Span {
    std::uint32_t lane = 0;
    TimeNs begin = 0;
    TimeNs end = 0;
    runtime::Op op;                                                // for a wait: the waiting rank only
    runtime::RecordState state = runtime::RecordState::completed;  // else it was cut short
    Blocked why = Blocked::no;                                     // of a wait
  };
  // A message between two ranks: by itself, or as a part of an operation that consists of messages.
  struct Arrow {
    std::uint32_t from = 0, to = 0;  // lanes
    TimeNs sent = 0, received = 0;
  };
  // Something that happened at an instant.
  struct Mark {
    TimeNs at = 0;
    int rank = -1;  // -1: to the world
    const char* what = "";
    std::string text;
  };

  // What a rank's device holds from here on.
  struct Memory {
    TimeNs at = 0;
    int rank = 0;
    runtime::BytesByTag bytes{};
  };
  // How much stands in a queue when a launch begins, itself included; 0 where it ends as the last one.
  struct Depth {
    TimeNs at = 0;
    std::uint32_t lane = 0;
    std::size_t depth = 0;
  };

  explicit Timeline(int ranks)
      : lanes_of_(std::size_t(ranks)), undrawn_(std::size_t(ranks)), held_(std::size_t(ranks)) {}

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

  const std::vector<Lane>& lanes() const { return lanes_; }
  const std::deque<Span>& spans() const { return spans_; }
  const std::deque<Arrow>& arrows() const { return arrows_; }
  const std::deque<Mark>& marks() const { return marks_; }
  const std::deque<Memory>& memory() const { return memory_; }
  const std::deque<Depth>& depths() const { return depths_; }
  std::uint64_t forgotten() const { return forgotten_; }  // spans; the oldest
  int ranks() const { return int(lanes_of_.size()); }

 private:
  struct LaneOf {
    const runtime::Queue* queue;  // null: the host
    std::uint32_t lane;
    std::uint64_t last = 0;  // number of its newest span
  };
  LaneOf& lane_of(int rank, const runtime::Queue* queue);
  void add(LaneOf& lane, Span span);

  std::vector<Lane> lanes_;
  std::vector<std::vector<LaneOf>> lanes_of_;  // by rank, in the order of first use
  std::vector<bool> undrawn_;                  // by rank: its host's waits
  std::deque<Span> spans_;
  std::deque<Arrow> arrows_;
  std::deque<Mark> marks_;
  std::vector<runtime::BytesByTag> held_;  // by rank: its newest
  std::deque<Memory> memory_;
  std::deque<Depth> depths_;
  std::uint64_t forgotten_ = 0;
};

}  // namespace seeksim::sim
