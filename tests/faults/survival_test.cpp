// Random faults over real training in the simulator: whatever strikes, the survivors end with the bits of the
// undisturbed one-rank run, and a rank that is named is never an innocent one. Each case is a pure function of its
// number.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>

#include "faults/plan.h"
#include "runtime/recovery/train.h"
#include "sim/world.h"

namespace seeksim::faults {

namespace {

using namespace seeksim::runtime;

constexpr int kRanks = 4;
constexpr int kSteps = 5;

TrainPlan small_plan() {
  TrainPlan plan;
  plan.definition.model = {.own = nullptr,
                           .layers = 1,
                           .width = 16,
                           .heads = 2,
                           .context = 8,
                           .vocab = 256,
                           .frozen = {},
                           .dropout = {},
                           .experts = {}};
  for (int i = 0; i < 500; ++i) plan.definition.data.bytes += char('a' + (i * i + i / 7) % 26);
  plan.definition.global_batch = 8;
  plan.definition.steps = kSteps;
  plan.layout.micro_batch = 1;
  return plan;
}

// What the observer of all ranks sees: the diagnosis of the first recovery.
class FirstDiagnosis final : public Observer {
 public:
  void step_committed(int, const StepRecord&) override {}
  void recovering(int, const RecoveryRecord& record) override {
    if (record.epoch == 0 && !first) first = record.diagnosis;
  }
  void recovered(int, const RecoveryRecord&) override {}
  bool wants_gradients(int, std::int64_t) override { return false; }
  void gradients(int, std::int64_t, std::vector<NamedTensor>) override {}
  std::optional<Diagnosis> first;
};

struct Outcome {
  sim::WorldEnd end = sim::WorldEnd::finished;
  std::vector<StateDigest> finished;
  std::optional<Diagnosis> diagnosis;
  std::string what;  // of a rank that threw
};

Outcome run(int nodes, int per_node, const std::string& network, std::vector<Rule> rules, std::uint64_t seed) {
  sim::WorldPlan plan;
  plan.nodes = nodes;
  plan.ranks_per_node = per_node;
  plan.network = network;
  plan.seed = seed;
  sim::World world(plan);
  std::vector<int> node_of;
  for (int rank = 0; rank < plan.ranks(); ++rank) node_of.push_back(world.node_of(rank));
  FaultPlan faults(std::move(rules), seed, node_of);
  world.decorate([&](int rank, Seams inner) { return faults.decorate(rank, inner); });
  for (const FaultPlan::TimedCrash& crash : faults.timed_crashes()) {
    world.kill_at(crash.rank, crash.at_ns, [&faults, crash] { faults.fired(crash.rule, crash.at_ns, crash.rank); });
  }
  static const TrainPlan training = small_plan();
  FirstDiagnosis observer;
  Outcome out;
  const sim::WorldResult result = world.run([&](Rank& rank) {
    const TrainOutcome outcome = train(rank, training, observer);
    if (outcome.ending == Ending::finished) out.finished.push_back(outcome.state);
  });
  out.end = result.end;
  out.diagnosis = observer.first;
  for (const sim::RankEnd& rank : result.ranks)
    out.what += rank.how == sim::RankEnd::How::threw ? rank.what + "\n" : "";
  return out;
}

const StateDigest& golden() {
  static const StateDigest digest = run(1, 1, "ib", {}, 1).finished.at(0);
  return digest;
}

class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  int below(int n) { return int(random_() % unsigned(n)); }
  bool coin() { return below(2) == 0; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return *std::next(values.begin(), below(int(values.size())));
  }

 private:
  std::mt19937 random_;
};

void draw_hang(Rule& rule, Dice& dice) {
  rule.when.rank = dice.below(kRanks);
  rule.when.op = dice.one_of({OpKind::all_reduce, OpKind::all_gather, OpKind::vote});
  if (dice.coin()) return;
  rule.mode = Mode::late;
  rule.delay_ns = dice.one_of({1, 590, 610, 700, 1300}) * kSecond;
}

void draw_crash(Rule& rule, Dice& dice) {
  rule.when.rank = dice.below(kRanks);
  rule.when.op = dice.one_of({OpKind::all_reduce, OpKind::all_gather, OpKind::vote});
  rule.mode = dice.one_of({Mode::before, Mode::during, Mode::after});
  if (dice.below(4) > 0) return;
  const auto rank = rule.when.rank;
  rule.when = Trigger();
  rule.when.rank = rank;
  rule.when.at_ns = dice.below(4000) * kMicrosecond;
  rule.mode = Mode::unset;
}

void draw_link(Rule& rule, Dice& dice) {
  rule.from = dice.below(kRanks);
  rule.to = (*rule.from + 1 + dice.below(kRanks - 1)) % kRanks;
  rule.both_directions = dice.coin();
  if (rule.kind == FaultKind::link_drop && dice.coin()) {
    rule.down_ns = dice.one_of({kMillisecond, 2 * kSecond, 40 * kSecond, 700 * kSecond});
    rule.up_ns = kMillisecond;
    rule.cycles = 1 + dice.below(3);
  }
}

void draw_message(Rule& rule, Dice& dice) {
  rule.when.rank = dice.below(kRanks);
  rule.when.peer = (*rule.when.rank + 1 + dice.below(kRanks - 1)) % kRanks;
  rule.when.op = dice.one_of({OpKind::all_reduce, OpKind::all_gather});
  rule.bit = std::uint64_t(dice.below(1 << 14));
}

Rule draw_rule(Dice& dice) {
  Rule rule;
  rule.kind = FaultKind(dice.below(int(FaultKind::nan_inject)));  // not those that change numbers silently
  rule.when.step = dice.below(kSteps);
  switch (rule.kind) {
    case FaultKind::collective_timeout:
      draw_hang(rule, dice);
      break;
    case FaultKind::rank_crash:
      draw_crash(rule, dice);
      break;
    case FaultKind::link_drop:
    case FaultKind::slow_link:
      draw_link(rule, dice);
      break;
    case FaultKind::straggler:
      rule.when.rank = dice.below(kRanks);
      break;
    default:
      draw_message(rule, dice);
      break;
  }
  return rule;
}

// The ranks that may be named for this rule.
std::vector<int> guilty_ranks(const Rule& rule) {
  if (rule.from) return {*rule.from, *rule.to};
  if (rule.when.peer) return {*rule.when.rank, *rule.when.peer};
  return {*rule.when.rank};
}

void expect_only_the_guilty(const Rule& rule, const Diagnosis& d) {
  const std::vector<int> guilty = guilty_ranks(rule);
  for (const int rank : d.culprits) {
    EXPECT_NE(std::find(guilty.begin(), guilty.end(), rank), guilty.end())
        << "rank " << rank << " is innocent: " << d.text;
  }
  const int from = rule.from ? *rule.from : *rule.when.rank;
  const int to = rule.from ? *rule.to : rule.when.peer.value_or(-1);
  const bool both = rule.from && rule.both_directions;
  for (const auto& link : d.links) {
    const bool planted = link == std::pair(from, to) || (both && link == std::pair(to, from));
    EXPECT_TRUE(planted) << link.first << "->" << link.second << " is innocent: " << d.text;
  }
  // A host or a process that is gone is always found, and so is a message.
  if (rule.kind == FaultKind::collective_timeout || rule.kind == FaultKind::rank_crash) {
    EXPECT_EQ(d.culprits, guilty) << d.text;
  }
  if (rule.when.peer) {
    EXPECT_EQ(d.links.size(), 1u) << d.text;
  }
}

void survive(unsigned number, int most_rules) {
  Dice dice(number);
  std::vector<Rule> rules;
  for (int n = 1 + dice.below(most_rules); n > 0; --n) rules.push_back(draw_rule(dice));
  const std::string network = dice.one_of({"ib", "tcp", "nvlink", "pcie"});
  const bool one_node = dice.coin();
  std::string story = "case " + std::to_string(number) + ", " + network + (one_node ? ", 1 node:" : ", 2 nodes:");
  for (const Rule& rule : rules) story += "\n  " + text(rule);
  SCOPED_TRACE(story);
  const std::vector<Rule> planted = rules;
  const Outcome out = run(one_node ? 1 : 2, one_node ? 4 : 2, network, std::move(rules), number);
  EXPECT_EQ(out.end, sim::WorldEnd::finished) << out.what;
  EXPECT_FALSE(out.finished.empty()) << "nobody is left";
  for (const StateDigest& state : out.finished) EXPECT_EQ(state, golden());
  if (planted.size() == 1 && out.diagnosis) expect_only_the_guilty(planted[0], *out.diagnosis);
}

}  // namespace

TEST(Survival, OfOneRandomFaultWithTheGoldensBitsAndNoInnocentNamed) {
  for (unsigned number = 0; number < 150; ++number) survive(number, 1);
}

TEST(Survival, OfUpToThreeRandomFaultsWithTheGoldensBits) {
  for (unsigned number = 1000; number < 1100; ++number) survive(number, 3);
}

TEST(SurvivalSlow, OfThousandsOfRandomFaults) {
  for (unsigned number = 10'000; number < 12'500; ++number) survive(number, number % 2 ? 1 : 3);
}

}  // namespace seeksim::faults
