// ControlStore: what the control plane decides, without sockets and clocks: ballots, deaths and silences go in with the
// time at which they came, answers come out. It means by every word what the simulator's centre means (sim/control.h);
// tests/backend hold both to the same claims.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/backend/control/control_frame.h"

namespace seeksim::runtime {

class ControlStore {
 public:
  class Outbox {
   public:
    virtual ~Outbox() = default;
    virtual void answer(int rank, const Answer& answer) = 0;
    virtual void revoked(int rank, std::uint32_t epoch) = 0;
    virtual void story(int rank, const std::string& text) = 0;  // for people
  };
  // heartbeat_timeout_ns: a rank that is silent for longer is declared dead; 0: silence is not checked.
  ControlStore(int ranks, TimeNs heartbeat_timeout_ns, Outbox& outbox);

  void ballot(int rank, const PollKey& key, const Ballot& ballot, TimeNs now, TimeNs timeout_ns);
  void revoke(int rank, std::uint32_t epoch);
  // Why not; empty: it is entered.
  std::string enter(int rank, std::uint32_t epoch, std::vector<int> members);
  void beat(int rank, TimeNs now);  // counts from the first one on
  void died(int rank);              // its process is gone
  void done(int rank);              // it left in order, and need not beat any more
  void tick(TimeNs now);            // deadlines and silences

  std::int64_t revoked() const { return revoked_; }  // the newest epoch that is; -1: none
  bool fenced(int rank) const { return fenced_.at(std::size_t(rank)); }
  const std::vector<int>& silent() const { return silent_; }  // ranks declared dead for silence, in order

 private:
  struct Poll {
    std::map<int, Ballot> ballots;
    bool decided = false;
    bool cut_short = false;
    TimeNs deadline = kForever;
    bool over() const { return decided || cut_short; }
  };
  const std::vector<int>& members(std::uint32_t epoch) const;
  void decide_if_complete(const PollKey& key, Poll& poll);
  void decide(const PollKey& key, Poll& poll);
  void revoke_for_all(std::uint32_t epoch, int but);
  void declare_silent(int rank);
  void is_dead(int rank);
  bool is_silent(int rank) const;

  Outbox& outbox_;
  const TimeNs heartbeat_timeout_ns_;
  std::map<std::uint32_t, std::vector<int>> members_;  // by epoch
  std::map<PollKey, Poll> polls_;
  std::int64_t revoked_ = -1;
  std::uint32_t newest_epoch_ = 0;
  std::vector<bool> fenced_, known_dead_, done_;
  std::vector<int> silent_;
  std::vector<TimeNs> last_beat_;  // -1: none yet
};

}  // namespace seeksim::runtime
