// Core: what the parts of a world share, and SimRank, all that the simulator keeps of one rank. Kept lean: a world may
// have tens of thousands of ranks, most of them idle most of the time.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "runtime/seams/recorder.h"
#include "runtime/seams/seams.h"
#include "sim/control.h"
#include "sim/device.h"
#include "sim/links.h"
#include "sim/loop.h"
#include "sim/race_detector.h"
#include "sim/storage.h"
#include "sim/timeline.h"
#include "sim/transport.h"
#include "sim/value_log.h"
#include "sim/world.h"

namespace seeksim::sim {

// The machine has no memory left for what its ranks hold. Thrown by World::run(); the ranks are over then, and what
// they did means nothing.
class OutOfMachineMemory : public std::bad_alloc {
 public:
  OutOfMachineMemory(int rank, int ranks)
      : text_("this machine ran out of memory when rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
              " asked for more") {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

class SimClock final : public runtime::Clock {
 public:
  SimClock(Loop& loop, Host& host) : loop_(loop), host_(host) {}
  TimeNs now() const override { return loop_.now(); }
  void sleep_until(TimeNs t) override { host_.sleep_until(t); }

 private:
  Loop& loop_;
  Host& host_;
};

struct SimRank {
  SimRank(Core& core, int rank);

  runtime::Seams seams() { return {clock, device, transport, storage, control}; }

  // Ask for the memory that a step of this rank will touch: first what lies here, then what that leads to.
  void fetch_soon() const;
  void fetch_now() const;

  Host host;  // what is used most comes first
  RankSignals signals;
  SimClock clock;
  runtime::Recorder recorder;
  std::unique_ptr<RaceDetector> races;  // where the plan asks for one; the device reports to it
  std::unique_ptr<ValueLog> values;     // the same; passes on to the race detector
  SimDevice device;
  SimTransport transport;
  SimControl control;
  SimStorage storage;
  int incarnation = 0;  // how often its process was started again
};

struct Core {
  Core(const WorldPlan& plan, Loop::Client& client, std::shared_ptr<Disks> disks, TimeNs start_ns);

  SimRank& rank(int id) { return *ranks[std::size_t(id)]; }  // a rank that is simulated
  // In a world of classes, one rank of each class is simulated. In any other world every rank stands for itself.
  bool simulated(int id) const { return plan.classes == nullptr || plan.classes->weight[std::size_t(id)] > 0; }
  int stand_in(int id) const { return plan.classes == nullptr ? id : plan.classes->stand_in[std::size_t(id)]; }
  int weight(int id) const { return plan.classes == nullptr ? 1 : plan.classes->weight[std::size_t(id)]; }
  // Whether pieces of a collective meet as one event in which all are through at the same time.
  bool gathers_natively() const { return plan.steady && plan.shapes && plan.native_gathers && !loop.untimed(); }
  std::size_t simulated_of(const std::vector<int>& ranks) const;
  // What happens now could make ranks of one class differ: the world ends, and says why. Does nothing where every rank
  // is simulated.
  void tell_apart(const std::string& why);
  // The same, from a rank's host: throws RankDied.
  void tell_apart(int rank, const std::string& why);
  void story(int rank, const std::string& text) const {
    if (listener) listener(loop.now(), rank, text);
  }
  // The process of `rank` is gone from this instant on. Called by the loop only.
  void kill(int rank, const std::string& why);
  void crashed(int rank);  // what the others come to see of it
  // The process of a rank that is gone starts again: a new host on an empty device. The caller adds it to the loop.
  SimRank& start_again(int rank);
  // What every kind of end of a rank has in common: nothing that it left pending happens.
  void lay_to_rest(int rank);

  const WorldPlan& plan;
  Loop loop;
  Network network;
  TransportHub transport;
  ControlCenter control;
  std::shared_ptr<Disks> disks;
  void lose_power_of(Disk& disk) const;
  std::map<int, int> crashed_on_node;
  int crashed_ranks = 0;
  std::unique_ptr<Timeline> timeline;             // where the plan asks for one
  std::vector<std::unique_ptr<SimRank>> ranks;    // null: another one stands for it
  std::function<void(const std::string&)> ended;  // ends all hosts
  std::string told_apart;
  std::vector<std::unique_ptr<SimRank>> earlier;  // incarnations: timers and messages on their way still name them
  std::function<void(TimeNs, int, const std::string&)> listener;
};

}  // namespace seeksim::sim
