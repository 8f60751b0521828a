// Fills a RunRecord while a run goes on: the Observer of all its ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/record/commits.h"
#include "harness/record/run_record.h"
#include "harness/record/step_log.h"
#include "runtime/detect/observer.h"

namespace seeksim::harness {

// A rank's flight recorder as it is now: what belongs to `epoch`, the last so many records.
runtime::FlightDump dump_of(int rank, std::uint32_t epoch, const runtime::Recorder& recorder, std::size_t records);

// Collects while a run goes on. One collector for all ranks: the simulator runs them on one thread.
class Collector : public runtime::Observer {
 public:
  using OnGradients =
      std::function<void(int rank, std::int64_t step, const std::vector<runtime::NamedTensor>& gradients)>;

  // The state with which a step begins (runtime::Observer::state).
  struct State {
    std::vector<runtime::NamedTensor> weights, first, second;
  };
  using OnState = std::function<void(std::int64_t step, State state)>;

  // An analysis needs what is under way and a little of what was before.
  static constexpr std::size_t kRecordsOfAFailure = 256;

  // gradients_of: the step (from 0) whose gradients are kept; -1: none. digest_gradients: of each step. on_gradients:
  // hears of all of them, if given.
  explicit Collector(int ranks, std::int64_t gradients_of = -1, bool digest_gradients = false,
                     OnGradients on_gradients = {});

  // Called when a rank has made its last step, with the number of steps, and with -1 when it has to go on.
  void hear_of_the_end(std::function<void(int rank, std::int64_t steps)> on_end) { on_end_ = std::move(on_end); }
  void trained(int rank, std::int64_t steps, TimeNs) override {
    if (on_end_) on_end_(rank, steps);
  }
  void step_committed(int rank, const runtime::StepRecord& record) override;
  // Each step of each rank is logged, too; null: it is not.
  void log_steps_to(StepLog* log) { log_ = log; }
  void nonfinite_born(int rank, std::int64_t step, const runtime::NonFiniteBirth& birth) override;
  void ranges(int rank, std::int64_t step, std::vector<runtime::RangeLogEntry> log, std::uint64_t left_out) override;
  void rerun(int rank, const runtime::RerunRecord& told) override;
  void evaluated(int rank, const runtime::EvaluationRecord& told) override;
  void samples(int rank, const runtime::SamplesRecord& told) override;
  void compressed(int rank, const runtime::CompressionRecord& told) override;
  void late(int rank, const runtime::LateRecord& told) override;
  void choices(int rank, const runtime::ChoicesRecord& told) override;
  void workers(int rank, const runtime::WorkersRecord& told) override;
  void stagnation(int rank, std::int64_t step, const kernels::Stagnation& counts) override;
  void looked_for_poison(int rank, runtime::Index values, const std::string& found, bool at_source) override;
  void scores(std::int64_t step, const std::vector<int>& ranks, const std::vector<double>& scores) override;
  void straggler(int rank, const runtime::StragglerRecord& found) override;
  void diverged(int rank, const runtime::DivergenceRecord& found) override;
  void failed(int rank, std::uint32_t epoch, const runtime::Recorder& recorder, const runtime::Ballot& ballot) override;
  // How to get at the flight recorder of a rank that hangs; null: its process is gone. records: how many are kept of
  // each rank at a failure.
  void reach_recorders(std::function<const runtime::Recorder*(int rank)> recorder_of, std::size_t records) {
    recorder_of_ = std::move(recorder_of);
    records_ = records;
  }
  void recovering(int rank, const runtime::RecoveryRecord& so_far) override;
  void recovered(int rank, const runtime::RecoveryRecord& record) override;
  void rolled_back(int rank, std::int64_t steps) override;
  void checkpoint(int rank, const runtime::CheckpointRecord& told) override;
  // The job starts (again): epochs count on, and no rank has ended.
  void begin_attempt(TimeNs now);
  void joined(int rank, const runtime::JoinRecord& record) override;
  void layout(int rank, const runtime::Layout& layout) override { record_.ranks[std::size_t(rank)].layout = layout; }
  bool wants_gradients(int rank, std::int64_t step) override;
  void gradients(int rank, std::int64_t step, std::vector<runtime::NamedTensor> gradients) override;
  // Called with the state with which each step begins.
  void hand_states_to(OnState on_state) { on_state_ = std::move(on_state); }
  // Steps for which on_gradients and on_state are called; empty: all.
  void look_at(std::function<bool(std::int64_t step)> steps) { looks_at_ = std::move(steps); }
  bool wants_state(int, std::int64_t step) override { return bool(on_state_) && looks_at(step); }
  void state(int, std::int64_t step, std::vector<runtime::NamedTensor> weights, std::vector<runtime::NamedTensor> first,
             std::vector<runtime::NamedTensor> second) override {
    on_state_(step, {std::move(weights), std::move(first), std::move(second)});
  }
  bool wants_replicas(int) override { return record_.ranks.size() > 1; }
  void replica(int rank, const runtime::ReplicaRecord& record) override;
  void shards(int rank, const runtime::ShardRecord& record) override;
  void pipeline(int rank, const runtime::PipelineRecord& record) override {
    record_.traffic.pipeline.resize(record_.ranks.size());
    record_.traffic.pipeline[std::size_t(rank)] = record;
  }

  RunRecord& record() { return record_; }
  // As step_committed(), without the log: of a rank for which another one stands.
  void also_committed(int rank, const runtime::StepRecord& record);
  const Commits::Findings& history() const { return commits_.findings(); }
  std::int64_t steps() const { return std::int64_t(record_.steps.size()); }

 private:
  bool looks_at(std::int64_t step) const { return !looks_at_ || looks_at_(step); }
  void merge(int rank, const runtime::RecoveryRecord& told, bool over);
  void add_missing(std::size_t steps);  // as if no rank had committed them
  void analyse(const runtime::RecoveryRecord& told, Recovery& recovery);

  void digest(int rank, std::int64_t step, const std::vector<runtime::NamedTensor>& gradients);
  // What was reported about one step so far.
  struct StepReplicas {
    int first_rank = -1;
    runtime::ReplicaRecord first;
    // By epoch and owner's rank: what the owner has, what the keepers of its copies have, by their rank.
    using Key = std::pair<std::uint32_t, int>;
    std::map<Key, runtime::ReplicaRecord::OfShard> owners;
    std::map<Key, std::map<int, runtime::ReplicaRecord::OfShard>> copies;
    std::map<Key, std::pair<int, runtime::ReplicaRecord::OfShard>> shards;  // by (epoch, shard): who told it first
  };
  void compare(int rank, const runtime::ReplicaRecord& told, StepReplicas& step);
  void compare_ways(int rank, const runtime::ReplicaRecord& told);
  void compare_shard(int rank, const runtime::ReplicaRecord& told, StepReplicas& step);
  void compare_copy(std::int64_t step, StepReplicas& replicas, const StepReplicas::Key& key, int keeper);
  void differs(std::int64_t step, int rank, int other, std::string what);

  RunRecord record_;
  std::uint32_t epochs_before_ = 0;  // of earlier attempts
  std::uint32_t epochs_seen_ = 0;
  bool attempt_begins_ = true;  // none of its steps is committed
  Commits commits_;
  std::function<const runtime::Recorder*(int rank)> recorder_of_;
  std::size_t records_ = kRecordsOfAFailure;
  std::ptrdiff_t poison_sources_ = 0;
  std::map<std::int64_t, std::map<int, StepReplicas>>
      replicas_;  // of the last few steps, by part of the model; -1, -2, ..: of the ways of a stage
  std::int64_t gradients_of_;
  bool digest_gradients_;
  OnGradients on_gradients_;
  OnState on_state_;
  std::function<bool(std::int64_t step)> looks_at_;
  StepLog* log_ = nullptr;
  std::function<void(int rank, std::int64_t steps)> on_end_;
};

}  // namespace seeksim::harness
