// A scenario on simulated ranks: builds the world (again for each start of the job, over the same disks) and the fault
// plan, hands train() to each rank, keeps what was observed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "harness/record/collector.h"
#include "harness/scenario/classes.h"
#include "kernels/fast_way.h"
#include "sim/storage.h"

namespace seeksim::harness {

class ValueSink;

struct SimulationOptions {
  std::int64_t gradients_of = -1;                   // step (from 0) whose gradients are kept; -1: none
  Collector::OnGradients on_gradients;              // of every step and rank
  Collector::OnState on_state;                      // of every step, from one rank without shards
  std::function<bool(std::int64_t step)> looks_at;  // only for these are the two called; empty: for all
  bool keep_final_weights = false;
  bool digest_gradients = false;  // of each step
  double wall_limit_s = 0;        // 0: none
  bool timeline = false;          // what queues and hosts did is kept
  StepLog* step_log = nullptr;    // gets each step of each rank; null: nobody does
  bool flight_recorder = false;   // dumps hold whole rings
  std::string device = "cpu";     // or "cuda", "emulated" (device.h)
  sim::ValueLogPlan values;       // of each operation
  ValueSink* sink = nullptr;      // looks at all values (value_watch.h), in the race detector's place; null: nobody
  // Fast arithmetic of this kind is compared with the contract's at each product and sum over ranks, and leaves no
  // trace.
  std::optional<kernels::FastWay> audit;
  std::string storage_folder;         // real files below it; empty: simulated ones
  std::shared_ptr<sim::Disks> disks;  // simulated files to begin with and to leave behind; null: empty ones
  std::function<void(TimeNs now, std::int64_t steps)> progress;
  faults::FaultPlan::Watcher watch;                  // of the places at which faults could strike
  bool rank_by_rank = false;                         // ranks that are alike do not stand for each other
  std::function<AlikeRanks(const Scenario&)> alike;  // who stands for whom; empty: alike_ranks(). For tests.
  sim::Steering* steering = nullptr;                 // of an untimed schedule; null: the schedule decides itself
};

// Alive after the run, so that the logs of two runs can be compared.
class Simulation {
 public:
  Simulation(const Scenario& scenario, SimulationOptions options);
  ~Simulation();
  RunRecord run();  // once
  const runtime::Recorder& recorder(int rank) const;
  const sim::ValueLog* values(int rank) const;  // of the last attempt; null unless asked for
  const sim::Timeline* timeline() const;        // null unless asked for

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace seeksim::harness
