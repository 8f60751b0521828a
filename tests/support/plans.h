// Shared by tests of the trainer: small plans, an observer that keeps everything, files of the repository.
#pragma once

#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "runtime/detect/observer.h"
#include "runtime/plan/plan.h"
#include "runtime/recovery/train.h"
#include "tests/support/inline_seams.h"
#include "tests/support/paths.h"

namespace seeksim::test {

inline std::string read_file(const std::string& path) {
  std::ifstream in(seeksim::paths::source_dir() + "/" + path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

struct KeepingObserver : Observer {
  std::map<int, std::vector<StepRecord>> steps;  // by rank
  std::vector<RecoveryRecord> recovering_records, recovered_records;
  std::vector<int> recovered_ranks;
  std::vector<JoinRecord> joins;
  std::int64_t gradients_of = -1;
  std::map<int, std::vector<NamedTensor>> kept_gradients;

  void step_committed(int rank, const StepRecord& record) override { steps[rank].push_back(record); }
  void recovering(int, const RecoveryRecord& record) override { recovering_records.push_back(record); }
  void recovered(int rank, const RecoveryRecord& record) override {
    recovered_records.push_back(record);
    recovered_ranks.push_back(rank);
  }
  void joined(int, const JoinRecord& record) override { joins.push_back(record); }
  bool wants_gradients(int, std::int64_t step) override { return step == gradients_of; }
  void gradients(int rank, std::int64_t, std::vector<NamedTensor> g) override { kept_gradients[rank] = std::move(g); }
};

// A model of a few thousand parameters. If `odd`, its sizes have no convenient divisors.
inline TrainPlan tiny_plan(bool odd = false) {
  TrainPlan plan;
  ModelPlan& m = plan.definition.model;
  m.layers = 1;
  m.width = odd ? 15 : 16;
  m.heads = odd ? 3 : 2;
  m.context = odd ? 11 : 8;
  m.vocab = odd ? 37 : 32;
  plan.definition.data.synthetic = true;
  plan.definition.global_batch = odd ? 13 : 8;
  plan.definition.steps = 3;
  plan.definition.gradient_clipping = 1.0;
  plan.layout.micro_batch = 2;
  return plan;
}

struct Trained {
  TrainOutcome outcome;
  KeepingObserver observer;
  std::vector<NamedTensor> weights;
};

inline Trained run_alone(const TrainPlan& plan, std::int64_t gradients_of = -1) {
  OneRank world;
  Trained run;
  run.observer.gradients_of = gradients_of;
  run.outcome = train(world.rank, plan, run.observer, &run.weights);
  return run;
}

}  // namespace seeksim::test
