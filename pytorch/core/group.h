// One rank's place in a group: meeting the others, sending to one of them, noticing who does not come and why.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "pytorch/core/digest.h"
#include "pytorch/core/relay_line.h"
#include "pytorch/core/segment.h"

namespace seeksim::pytorch {

struct Culprit {
  int rank = -1;  // launch rank
  Blame blame = Blame::did_not_join;
};

// A collective failed. what(): for the script; its first line says which and why.
struct CollectiveError : std::runtime_error {
  CollectiveError(const std::string& text, std::vector<Culprit> who)
      : std::runtime_error(text), culprits(std::move(who)) {}
  std::vector<Culprit> culprits;
};

// A change of what the others see of a contribution, of whose flat bytes it touches one.
struct Strike {
  std::size_t byte = 0;
  std::uint8_t flip = 0;  // bits
};

// One collective of one rank, while it runs.
struct Call {
  std::uint64_t seq = 0;  // in the group; 0 for messages
  std::int64_t step = 0;
  Expectation expected;
  bool lost = false;                          // a fault: the others never see that this rank came
  std::function<void(Expectation&)> mistake;  // a fault: what the others are told of `expected` instead
  std::vector<Strike> strikes;                // faults
  bool doubled = false;                       // a fault: a sum has what this rank gives twice
  // Another backend carries the data and adds it up: the ranks only meet here, and compare what they mean.
  bool carried_elsewhere = false;
  // Where the sums of all_reduce take digests of what they read and write, while it is in the cache; null: nowhere.
  Digester* digest_in = nullptr;
  Digester* digest_out = nullptr;
  // Filled by Group:
  bool compared = false;
  std::vector<Expectation> all;  // by place, once compared
};

// A process, for as long as one looks at it: its number is never mistaken for a later process.
class ProcessHandle {
 public:
  explicit ProcessHandle(int pid);
  ~ProcessHandle();
  ProcessHandle(ProcessHandle&& other) noexcept;
  ProcessHandle& operator=(ProcessHandle&&) = delete;
  bool gone() const;
  void signal(int number) const;

 private:
  int pid_;
  int file_;  // -1 where the kernel has no pidfd
};

class Group {
 public:
  struct Settings {
    std::string name;           // for texts
    std::vector<int> ranks;     // launch ranks, by place
    int place = 0;              // of this rank
    double timeout_s = 1800;    // of one wait
    bool shows_stacks = false;  // this process writes its Python stacks on SIGUSR2
    // Of a group on several hosts; empty: all its ranks are here.
    std::vector<int> hosts = {};               // by place
    std::vector<std::string> host_names = {};  // by host
    std::shared_ptr<RelayLine> relay = {};     // over which this rank has entered the group
  };
  // `segment` is mapped; come_in() follows, then, once all ranks have come in, know_all().
  Group(Segment segment, Settings settings);

  void come_in();
  void know_all();

  int size() const { return int(settings_.ranks.size()); }
  int place() const { return settings_.place; }
  int launch_rank(int place) const { return settings_.ranks[std::size_t(place)]; }
  const std::string& name() const { return settings_.name; }
  Segment& segment() { return segment_; }
  // Whether ranks of other hosts belong to it.
  bool far() const { return settings_.relay != nullptr; }
  void timeout(double seconds) { settings_.timeout_s = seconds; }
  double timeout() const { return settings_.timeout_s; }

  // This rank begins a collective, or has ended it; one after the other.
  void begin(const Call& call);
  void end(const Call& call);
  // All ranks meet. At the first meeting of a collective each compares what the others believe it to be. Throws
  // CollectiveError where someone does not come, is gone or means something else.
  void meet(Call& call);
  // Slots of this round; turn() at its end. What a rank wrote before a meeting, all may read after it, until they meet
  // the second next time.
  char* slot(int place) const { return segment_.slot(bank_, place); }
  char* result() const { return segment_.result(bank_); }
  // This rank has filled so much of its slot, for one place or for all: what other hosts get of it at the next meeting.
  void filled(std::size_t offset, std::size_t bytes, int to = -1);
  void turn() { bank_ = 1 - bank_; }

  // While another backend carries a collective in which all have met. entered(): its call has come back to this rank.
  // look_around(), every few milliseconds until it has ended, and failed(), where it reports an error, throw
  // CollectiveError and let the others know. since_ns: when this rank began to wait (CLOCK_MONOTONIC). here: it
  // refused this rank's call.
  void entered(const Call& call);
  void look_around(const Call& call, std::int64_t since_ns) const;
  [[noreturn]] void failed(const Call& call, const std::string& why, bool here) const;

  // A message to one place, and from one. Throws CollectiveError.
  struct Message {
    DType dtype = DType::none;
    int tag = 0;
    std::string what;  // for texts: "send to rank 3 (step 2)"
    // Another backend carries so many bytes: both ends only meet here, and compare what they mean.
    std::optional<std::size_t> elsewhere = std::nullopt;
  };
  void send(int to, std::span<const std::byte> bytes, const Message& message);
  void receive(int from, std::span<std::byte> bytes, const Message& message);
  // The first place from which a message waits. Throws where none comes in time.
  int sender_of_any(const Message& message);

  // "all_reduce #8 of group 0 (step 2)"
  std::string where(const Call& call) const;

 private:
  using Ready = std::function<bool(std::uint32_t)>;
  // Waits until ready(count of the bell). on_timeout throws.
  // place: whose process it is that has to do something.
  void wait(Bell& bell, int place, const Ready& ready, const std::function<void(bool gone)>& on_end);
  bool is_far(int place) const { return far() && settings_.hosts[std::size_t(place)] != settings_.hosts[at()]; }
  std::size_t at() const { return std::size_t(settings_.place); }
  bool gone(int place) const;
  void publish(std::uint32_t meeting);
  // What is to be said of a rank that does not come, beside what the collective tells.
  struct State {
    Blame blame;       // did_not_join: nothing is wrong with it
    std::string text;  // "is alive", "is dead (its process is gone)"
  };
  State state_of(int place) const;
  void ask_for_stacks(int place) const;
  void compare(Call& call);
  void throw_poison() const;
  [[noreturn]] void fail(const std::string& text, const std::vector<int>& places,
                         const std::vector<Blame>& blames) const;
  std::vector<int> gone_before_end_of(const Call& call) const;
  [[noreturn]] void fail_unanswered(int place, const Message& message, const char* what_it_does_not) const;
  [[noreturn]] void fail_missing(const Call& call, std::uint32_t target, std::int64_t since_ns);

  Segment segment_;
  Settings settings_;
  std::vector<std::unique_ptr<ProcessHandle>> processes_;  // by place, after know_all(); null: on another host
  std::uint32_t meetings_ = 0;
  int bank_ = 0;
  int spins_ = 0;
  std::vector<std::uint64_t> sent_, received_;  // messages, by place
  std::vector<Part> filled_;                    // of this round's slot
};

}  // namespace seeksim::pytorch
