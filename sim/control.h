// The control plane: out of band, shaped like ULFM. One centre decides each agreement at one instant of virtual time,
// so all ranks that get an answer get the same one; messages to and from it take time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/seams/seams.h"
#include "sim/random.h"
#include "sim/timers.h"
#include "sim/world.h"

namespace seeksim::sim {

struct Core;
struct SimRank;

// How many agreements are remembered after they are over; a rank that comes later has been fenced.
inline constexpr std::size_t kRemembered = 64;
// A rank that hears nothing for so long after an agreement's deadline is cut off from the centre.
inline constexpr TimeNs kCutOff = runtime::kSecond;

// What a rank learns at the end of an agreement, or of its wait to be taken in.
struct Answer {
  enum class Kind : std::uint8_t { none, decided, cut_short, fenced, taken_in, run_is_over } kind = Kind::none;
  std::shared_ptr<const runtime::Agreement> agreement = nullptr;
  std::shared_ptr<const runtime::TakenIn> taken_in = nullptr;
};

class SimControl final : public runtime::ControlPlane {
 public:
  SimControl(Core& core, SimRank& rank) : core_(core), rank_(rank) {}

  std::uint32_t epoch() const override { return epoch_; }
  std::vector<int> members() const override;
  void revoke(std::uint32_t epoch, const runtime::Op& op, runtime::ErrorKind why) override;
  bool revoked(std::uint32_t epoch) const override;
  runtime::Agreement agree(const runtime::Op& op, std::uint32_t epoch, const runtime::Ballot& ballot,
                           TimeNs deadline) override;
  void enter_epoch(std::uint32_t epoch, std::span<const int> members) override;
  void stopped_until(TimeNs when) override;
  runtime::TakenIn join(const runtime::Op& op, TimeNs deadline) override;

  const std::string& waits_in() const { return waits_in_; }
  void hear_of_revoke(std::uint32_t epoch);
  void hear_answer(const Answer& answer);

 private:
  Core& core_;
  SimRank& rank_;
  std::uint32_t epoch_ = 0;
  Answer answer_;
  std::string waits_in_;  // for wait-for graphs
  std::map<std::tuple<std::uint32_t, std::uint8_t, std::int64_t, std::uint64_t>, std::uint32_t> calls_;
};

class ControlCenter {
 public:
  // members: of epoch 0, the first ranks. All others wait in join() if they want to come in.
  ControlCenter(Core& core, std::uint64_t seed, int ranks, int members);

  // Epoch, kind, step (votes only: recovering ranks may be at different steps) and sequence identify an agreement;
  // instance counts earlier agreements with the same four.
  struct Key {
    std::uint32_t epoch;
    runtime::OpKind kind;
    std::int64_t step;
    std::uint64_t sequence;
    std::uint32_t instance;
    std::uint64_t digest() const;
    auto operator<=>(const Key&) const = default;
  };

  bool fenced(int rank) const;
  const std::vector<int>& members(std::uint32_t epoch) const { return members_.at(epoch); }
  void enter(std::uint32_t epoch, std::span<const int> members, const runtime::Op& op);

  // Messages on their way to the centre.
  void send_ballot(int rank, const Key& key, const runtime::Ballot& ballot, TimeNs deadline);
  void send_revoke(int rank, std::uint32_t epoch);
  void send_join(int rank, bool waits);  // waits: or gives it up
  void died(int rank, TimeNs noticed_after);
  // Its process sends no heartbeat from now until then (kForever: never again).
  void falls_silent(int rank, TimeNs until);
  void ended(int rank);  // its process is over, in whatever way: when all members are, so is the run
  void started_again(int rank) { ended_[std::size_t(rank)] = false; }
  // All living ranks hang for ever or wait to be admitted: the waiting ones hear that the run is over. False where none
  // waits.
  bool send_home(std::size_t living, std::size_t hanging);
  // How often a rank was taken in. What is noticed late of a life before does not concern the one after it.
  std::uint32_t lives(int rank) const { return lives_[std::size_t(rank)]; }
  // Meanwhile these ranks and the centre do not hear of each other; what is sent then arrives when it is over.
  void outage(const ControlOutage& outage) { outages_.push_back(outage); }
  // The same, from now on, for the side that has no quorum.
  void split(ControlOutage outage);
  // One line an undecided agreement: the missing ranks. For wait-for graphs.
  std::string undecided() const;
  std::uint64_t decided_without_step() const { return without_step_; }

 private:
  struct Poll {
    std::map<int, runtime::Ballot> ballots;
    bool decided = false;
    bool cut_short = false;
    bool timed = false;
    bool over() const { return decided || cut_short; }
  };
  void ballot_arrives(int rank, const Key& key, const runtime::Ballot& ballot, TimeNs deadline);
  void revoke_arrives(int rank, std::uint32_t epoch);
  void revoke_for_all(std::uint32_t epoch, int but);
  void declare_silent(int rank);
  void is_dead(int rank);
  void decide_if_complete(const Key& key, Poll& poll);
  void decide(const Key& key, Poll& poll);
  void count(const Key& key);
  void decide_where_complete();
  void join_arrives(int rank);
  void take_in(int rank, std::uint32_t epoch);
  void end_run();
  bool members_ended() const;
  void fence(int rank, bool fenced);
  void reply(int rank, const Answer& answer);
  void to_center(int rank, std::function<void()> arrive);
  TimeNs latency();
  // When something that is sent now gets through; kForever: never.
  TimeNs gets_through(int rank) const;
  // Until when the centre itself stands still; now, if it does not.
  TimeNs stands_until() const;

  // The deadline of an agreement: a watchdog like those of hosts.
  class Deadlines final : public TimerTarget {
   public:
    explicit Deadlines(ControlCenter& center) : center_(center) {}
    std::uint64_t add(const Key& key);
    bool live(const Timer& timer) override;
    void fire(const Timer& timer) override;
    DueTimer due(const Timer& timer) override;

   private:
    ControlCenter& center_;
    std::vector<Key> keys_;
    std::vector<std::uint64_t> free_;
  };

  Core& core_;
  Random random_;
  std::map<std::uint32_t, std::vector<int>> members_;  // by epoch
  std::map<Key, Poll> polls_;
  std::int64_t revoked_ = -1;
  std::int64_t voted_step_ = -1;    // of the last vote that was decided
  std::uint64_t without_step_ = 0;  // decisions since one was of a later step than the one before
  std::vector<bool> fenced_;
  std::vector<bool> known_dead_;
  std::vector<bool> silent_;      // declared dead since their heartbeats stopped
  std::vector<TimeNs> arrivals_;  // of each rank's last message
  std::vector<bool> ended_;
  std::vector<std::uint32_t> lives_;
  std::vector<std::uint64_t> replies_;  // to each rank, so far
  std::set<int> joiners_;               // ranks that wait in join()
  std::set<int> announced_;             // ... as the last agreement said: only these can be admitted by an epoch
  bool over_ = false;                   // no rank is admitted any more
  std::vector<ControlOutage> outages_;
  Deadlines deadlines_{*this};
};

}  // namespace seeksim::sim
