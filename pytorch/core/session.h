// What one rank knows of the run for as long as it lives: its record, its rules, where in its step it is.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "pytorch/core/record.h"
#include "pytorch/core/rules.h"
#include "pytorch/core/sums.h"

namespace seeksim::pytorch {

struct SessionSettings {
  std::string record_path;
  RecordWriter::Start start;
  std::uint64_t seed = 0;
  int attempt = 0;  // starts of the job before this one, by a launcher (start.attempt) or by who resumes it
  std::vector<RuleKeys> rules;
  // Records of this rank from before a launcher restarted the job: a rule counts what it did then.
  std::vector<std::string> earlier_records;
  double timeout_s = 0;  // 0: the group's own
  bool hashes = true;
  bool norms = false;
  bool stacks = true;
  SumOrder sums = SumOrder::canonical;
  std::string relay;               // socket of this host's relay; empty: all ranks are on this host
  int host = 0;                    // this one
  std::vector<std::string> hosts;  // their names
};

class Session {
 public:
  // Throws std::invalid_argument (rules) and std::system_error (record) with one line.
  explicit Session(SessionSettings settings);

  const SessionSettings& settings() const { return settings_; }
  RecordWriter& record() { return record_; }

  // The hooks say where the rank is.
  void now(std::int64_t step, std::int32_t micro_batch, StepPhase phase);
  std::int64_t step() const { return step_; }
  std::int32_t micro_batch() const { return micro_batch_; }
  StepPhase phase() const { return phase_; }

  // The rules that fire at an act; to be called once for each. Step, phase, micro-batch and time are filled in.
  std::vector<Rules::Hit> rules_at(Situation situation);
  Rules& rules() { return rules_; }
  // Writes down that a rule has fired, before what it does can end the process. call: the collective's entry.
  void fired(const Rules::Hit& hit, std::int32_t call, const std::string& text);

 private:
  SessionSettings settings_;
  Rules rules_;
  RecordWriter record_;
  std::atomic<std::int64_t> step_{0};
  std::atomic<std::int32_t> micro_batch_{0};
  std::atomic<StepPhase> phase_{StepPhase::init};
};

}  // namespace seeksim::pytorch
