#include "rules.h"

#include <algorithm>

namespace {

using namespace seeksim::runtime;
using Kind = InstructionKind;

class Eager1F1B : public ScheduleRule {
 public:
  explicit Eager1F1B(int extra) : extra_(extra) {}
  std::vector<Instruction> order(const PipelineShape& shape, int stage) const override {
    const int later = shape.stages - stage - 1;  // stages
    const int ahead = std::min(later > 0 ? later + extra_ : 0, shape.micro_batches);
    std::vector<Instruction> order;
    for (int m = 0; m < ahead; ++m) order.push_back({Kind::forward, m});
    for (int m = 0; m < shape.micro_batches; ++m) {
      if (ahead + m < shape.micro_batches) order.push_back({Kind::forward, ahead + m});
      order.push_back({Kind::backward, m});
    }
    return order;
  }

 private:
  int extra_;
};

class LastFirst : public ScheduleRule {
 public:
  std::vector<Instruction> order(const PipelineShape& shape, int) const override {
    std::vector<Instruction> order;
    for (int m = 0; m < shape.micro_batches; ++m) order.push_back({Kind::forward, m});
    for (int m = shape.micro_batches; m-- > 0;) order.push_back({Kind::backward, m});
    return order;
  }
};

class Stuck : public ScheduleRule {
 public:
  std::vector<Instruction> order(const PipelineShape& shape, int stage) const override {
    std::vector<Instruction> order;
    const bool waits = stage + 1 == shape.stages;
    for (int m = 0; m < shape.micro_batches; ++m) {
      order.push_back({Kind::forward, m});
      if (!waits) order.push_back({Kind::backward, m});
    }
    for (int m = 0; waits && m < shape.micro_batches; ++m) order.push_back({Kind::backward, m});
    return order;
  }
};

class FirstIsLarger : public PlacementRule {
 public:
  explicit FirstIsLarger(double times) : times_(times) {}
  Index begin(const Parameters& parameters, int shard, int shards) const override {
    const double parts = times_ + shards - 1, before = times_ + shard - 1;
    return Index(double(parameters.trainable_size()) * before / parts);
  }

 private:
  double times_;
};

class BothWays : public GatherRule {
 public:
  explicit BothWays(int left_out) : left_out_(left_out) {}
  std::vector<GatherRound> rounds(int members) const override {
    const auto place = [&](int i) { return (i + members) % members; };
    std::vector<GatherRound> all;
    for (int far = 0; 2 * far + 1 < members - left_out_; ++far) {
      GatherRound& moves = all.emplace_back();
      for (int from = 0; from < members; ++from) {
        moves.push_back({place(from - far), from, place(from + 1)});
        if (2 * far + 2 < members) moves.push_back({place(from + far), from, place(from - 1)});
      }
    }
    return all;
  }

 private:
  int left_out_;
};

class WholeMachines : public RecoveryRule {
 public:
  explicit WholeMachines(int ranks) : ranks_(ranks) {}
  Decision decide(const Failure& failure, const Decision& standard) const override {
    Decision decision = standard;
    for (const int dead : failure.agreement.dead) {
      std::erase_if(decision.survivors, [&](int rank) { return rank / ranks_ == dead / ranks_; });
    }
    if (decision.survivors.empty()) decision.stop = true, decision.why = "no machine is whole";
    return decision;
  }

 private:
  int ranks_;
};

class WithTheDead : public RecoveryRule {
 public:
  Decision decide(const Failure& failure, const Decision& standard) const override {
    Decision decision = standard;
    for (const int dead : failure.agreement.dead) decision.survivors.push_back(dead);
    return decision;
  }
};

}  // namespace

std::shared_ptr<const ScheduleRule> eager_1f1b(int extra) { return std::make_shared<Eager1F1B>(extra); }
std::shared_ptr<const ScheduleRule> last_first() { return std::make_shared<LastFirst>(); }
std::shared_ptr<const ScheduleRule> stuck() { return std::make_shared<Stuck>(); }
std::shared_ptr<const PlacementRule> first_is_larger(double times) { return std::make_shared<FirstIsLarger>(times); }
std::shared_ptr<const GatherRule> both_ways() { return std::make_shared<BothWays>(0); }
std::shared_ptr<const GatherRule> one_round_short() { return std::make_shared<BothWays>(2); }
std::shared_ptr<const RecoveryRule> whole_machines(int ranks) { return std::make_shared<WholeMachines>(ranks); }
std::shared_ptr<const RecoveryRule> with_the_dead() { return std::make_shared<WithTheDead>(); }
