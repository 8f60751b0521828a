// A rank's key holds all that its course can depend on. Replicas of the model whose ranks have equal keys are of one
// class; where the data axis is the only one, a replica is a rank.
#include "harness/scenario/classes.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "harness/scenario/variants.h"
#include "kernels/tree.h"
#include "runtime/layout/grid.h"
#include "runtime/layout/partition.h"
#include "runtime/layout/shard_groups.h"
#include "runtime/rules/bugs.h"

namespace seeksim::harness {

using runtime::Index;
using runtime::SampleRange;

namespace {

using Key = std::vector<Index>;

// Numbers keys in the order in which they come.
class Numbering {
 public:
  int of(const Key& key) { return numbers_.try_emplace(key, int(numbers_.size())).first->second; }

 private:
  std::map<Key, int> numbers_;
};

// What a rank does with samples depends on how they lie in the tree over the step's samples, not on where.
void add_samples(Key& key, SampleRange all, const std::vector<SampleRange>& micro_batches, Index leaves) {
  const Index aligned = Index(std::bit_ceil(std::uint64_t(std::max<Index>(all.size(), 1))));
  const bool passes_through = all.end == leaves && !std::has_single_bit(std::uint64_t(leaves));
  key.insert(key.end(), {all.size(), all.begin % aligned, passes_through});
  for (const SampleRange& one : micro_batches) key.insert(key.end(), {one.begin - all.begin, one.size()});
}

void add_shard(Key& key, const runtime::Partition& partition, runtime::ShardInfo shard) {
  for (const runtime::ParameterPiece& piece : partition.pieces(shard)) {
    const runtime::ParameterInfo& p = *piece.parameter;
    const Index blocks = p.frozen ? 0
                                  : partition.norm_blocks_before(piece.offset() + piece.size) -
                                        partition.norm_blocks_before(piece.offset());
    const bool in_one_slab = piece.first / p.slab == (piece.first + piece.size - 1) / p.slab;
    key.insert(key.end(), {Index(p.number), piece.size, blocks, in_one_slab ? -1 : piece.first % p.slab});
  }
  key.push_back(-1);
}

// What is the same for all ranks of a stage and a way: the part of the model that is here, and how it is cut.
struct Part {
  Part(const runtime::TrainPlan& plan, int replicas, int stage, int way)
      : parameters(plan.definition.model, plan.definition.optimizer,
                   runtime::model_part(plan.definition.model, plan.layout.parallel, stage, way)),
        partition(parameters, replicas) {}
  runtime::Parameters parameters;
  runtime::Partition partition;
};

// Everything about the work of ranks, one after another.
class Work {
 public:
  explicit Work(const Scenario& scenario)
      : plan_(scenario.train),
        replicas_(scenario.world.ranks() / scenario.train.layout.parallel.ranks()),
        cut_(runtime::step_cut(plan_, replicas_, 0)) {
    const runtime::ParallelPlan& parallel = plan_.layout.parallel;
    for (int stage = 0; sharded_at_all() && stage < parallel.pipeline; ++stage) {
      for (int way = 0; way < parallel.ways(); ++way)
        parts_.push_back(std::make_unique<const Part>(plan_, replicas_, stage, way));
    }
  }

  int replicas() const { return replicas_; }

  // The samples of each micro-step have to be one subtree: then every addend of a sum goes into the same node.
  bool sums_are_whole() const {
    for (int k = 0; cut_.interleaved && k < cut_.count(); ++k) {
      const SampleRange window = cut_.window(k);
      if (kernels::cover(window.begin, window.end, cut_.leaves).size() > 1) return false;
    }
    return true;
  }

  bool sharded_at_all() const { return plan_.layout.zero.stage > 0; }

  Key of(const runtime::GridPlace& place) const {
    Key key = {place.stage, place.way};
    if (!cut_.interleaved) {
      const SampleRange all = runtime::samples_of(cut_.leaves, replicas_, place.data, cut_.grain);
      add_samples(key, all, runtime::micro_batches(all, plan_.layout.micro_batch), cut_.leaves);
    }
    if (const Index held_out = plan_.definition.evaluation.samples; held_out > 0) {
      const SampleRange all = runtime::samples_of(held_out, replicas_, place.data, cut_.grain);
      add_samples(key, all, runtime::micro_batches(all, plan_.evaluated_at_once()), held_out);
    }
    for (int k = 0; cut_.interleaved && k < cut_.count(); ++k) {
      const SampleRange samples = cut_.samples(k, place.data);
      add_samples(key, samples, {}, cut_.leaves);
    }
    if (!sharded_at_all()) return key;
    const Part& part = *parts_[std::size_t(place.stage * plan_.layout.parallel.ways() + place.way)];
    const runtime::ShardInfo own = part.partition.shard(place.data);
    key.insert(key.end(), {-2, own.size, part.partition.is_last(place.data), part.partition.head_size(place.data)});
    add_shard(key, part.partition, own);
    add_shard(key, part.partition, part.partition.frozen(place.data));
    add_buckets(key, own);
    return key;
  }

 private:
  // Parameters are published in buckets that know no parameters.
  void add_buckets(Key& key, runtime::ShardInfo own) const {
    const Index bucket = plan_.layout.zero.allgather_bucket_elements;
    const Index end = own.offset + own.size;
    for (Index lo = own.offset / bucket * bucket; own.size > 0 && lo < end; lo += bucket)
      key.insert(key.end(), {lo / bucket, std::min(lo + bucket, end) - std::max(lo, own.offset)});
  }

  const runtime::TrainPlan& plan_;
  int replicas_;
  runtime::StepCut cut_;
  std::vector<std::unique_ptr<const Part>> parts_;  // by stage and way, where shards are cut
};

std::string why_not(const Scenario& scenario) {
  const runtime::TrainPlan& train = scenario.train;
  const runtime::RecoveryPlan& recovery = train.recovery;
  if (scenario.world.ranks() == 1) return "there is one rank";
  const runtime::ParallelPlan& parallel = train.layout.parallel;
  if (parallel.expert > 1 || parallel.context > 1) return "experts or samples are cut into groups";
  if (parallel.pipeline > 1 && train.definition.model.tied)
    return "two stages share a parameter, whose gradients travel as single messages";
  if (parallel.ranks() == scenario.world.ranks()) return "there is one replica of the model";
  if (parallel.shard_group > 0) return "shards are in groups (world.shard_group)";
  if (train.layout.zero.stage == 3 && train.layout.zero.hpz_partition > 1)
    return "secondary shards are in groups (zero_hpz_partition_size)";
  if (train.definition.compression.on()) return "gradients are compressed";
  if (train.definition.quantised.on()) return "weights are gathered in 8 bits (zero_quantized_weights)";
  if (train.definition.staleness.on()) return "gradients come late (staleness)";
  if (train.definition.quantised_gradients.on()) return "gradients travel in few bits (zero_quantized_gradients)";
  if (train.definition.local_sgd.on()) return "workers have weights of their own (local_sgd)";
  if (parallel.gather_rule != nullptr) return "gathers travel in rounds (world.all_gather)";
  if (train.layout.zero.rule != nullptr) return "where shards end is the program's own (world.placement)";
  if (train.definition.model.own != nullptr) return "the model's family is not seeksim's own";
  if (scenario.world.schedule.strategy != sim::Strategy::seeded || !scenario.world.schedule.slow.empty())
    return "the scenario has a schedule of its own";
  if (scenario.world.race_detector) return "the race detector looks at every rank";
  if (train.checkpoint.on()) return "checkpoints are written";
  const runtime::OffloadPlan& offload = train.layout.offload;
  for (const runtime::Home home : {offload.optimizer.home, offload.parameters.home})
    if (home == runtime::Home::nvme) return "state lies in files";
  const bool copies = recovery.policy == runtime::RecoveryPolicy::rebuild_and_redo && recovery.peer_copies > 0;
  if (copies && train.layout.zero.stage > 0) return "shards are copied to single peers (recovery.peer_copies)";
  if (recovery.spares > 0) return "there are spares";
  if (recovery.straggler.on) return "every rank has a score (recovery.straggler)";
  if (!train.bug.is(runtime::Bug::none) || train.definition.quirks.any()) return "a bug or a quirk is on";
  if (!scenario.own_faults.empty() || scenario.planned.any()) return "faults are drawn, enumerated or the user's own";
  for (const faults::Rule& rule : scenario.faults)
    if (!only_delays(rule)) return fmt::format("{} does more than delay one rank that it names", name(rule.kind));
  return "";
}

// By rank: who of its data axis owns what on its node. Collectives inside a node and between nodes take their own time.
std::vector<int> places_of(const std::vector<int>& work, const std::vector<int>& part, int per_node) {
  Numbering numbering;
  std::vector<int> places(work.size());
  for (std::size_t first = 0; first < work.size(); first += std::size_t(per_node)) {
    std::map<int, Key> of_part;
    std::map<int, int> number;
    for (std::size_t rank = first; rank < first + std::size_t(per_node); ++rank)
      of_part[part[rank]].push_back(work[rank]);
    for (auto& [one, works] : of_part) {
      std::sort(works.begin(), works.end());
      number[one] = numbering.of(works);
    }
    for (std::size_t rank = first; rank < first + std::size_t(per_node); ++rank) places[rank] = number.at(part[rank]);
  }
  return places;
}

Index fate_of(const Scenario& scenario, int rank) {
  const auto strikes = [rank](const faults::Rule& rule) { return rule.when.rank == rank; };
  return std::any_of(scenario.faults.begin(), scenario.faults.end(), strikes) ? 1 + rank : 0;  // nobody else's
}

// Two of each class are simulated: the first stands for all but the last.
std::shared_ptr<const sim::RankClasses> classes_of(const std::vector<int>& class_of) {
  auto classes = std::make_shared<sim::RankClasses>();
  for (const int number : class_of) classes->count = std::max(classes->count, number + 1);
  std::vector<int> first(std::size_t(classes->count), -1), last = first;
  std::vector<std::int32_t> members(first.size());
  for (int rank = 0; rank < int(class_of.size()); ++rank) {
    const auto number = std::size_t(class_of[std::size_t(rank)]);
    if (first[number] < 0) first[number] = rank;
    last[number] = rank;
    ++members[number];
  }
  classes->weight.resize(class_of.size());
  for (int rank = 0; rank < int(class_of.size()); ++rank) {
    const auto number = std::size_t(class_of[std::size_t(rank)]);
    const bool twin = rank == last[number] && rank != first[number];
    classes->stand_in.push_back(twin ? rank : first[number]);
    if (rank == first[number]) classes->weight[std::size_t(rank)] = std::max(members[number] - 1, 1);
    if (twin) classes->weight[std::size_t(rank)] = 1;
    if (twin) classes->twins.emplace_back(first[number], rank);
    if (twin || rank == first[number]) classes->simulated.push_back(rank);
  }
  return classes;
}

}  // namespace

bool only_delays(const faults::Rule& rule) {
  using faults::FaultKind;
  const bool waits = rule.kind == FaultKind::straggler || rule.kind == FaultKind::pause ||
                     rule.kind == FaultKind::data_stall ||
                     (rule.kind == FaultKind::collective_timeout && rule.mode == faults::Mode::late);
  return waits && rule.when.rank.has_value();
}

bool gathers_whole(const Scenario& scenario) {
  const runtime::ParallelPlan& parallel = scenario.train.layout.parallel;
  return parallel.expert == 1 && parallel.context == 1 && parallel.gather_rule == nullptr &&
         scenario.train.bug.is(runtime::Bug::none) && scenario.own_faults.empty() &&
         std::all_of(scenario.faults.begin(), scenario.faults.end(), only_delays);
}

namespace {

// Classes of replicas as classes of their ranks: a replica stands for others whole, since its ranks talk to each other.
std::shared_ptr<const sim::RankClasses> of_ranks(const sim::RankClasses& replicas, const runtime::Grid& grid,
                                                 const std::vector<runtime::GridPlace>& places, int ranks_of_one) {
  auto classes = std::make_shared<sim::RankClasses>();
  classes->count = replicas.count * ranks_of_one;
  for (int rank = 0; rank < int(places.size()); ++rank) {
    const runtime::GridPlace& place = places[std::size_t(rank)];
    const int other = replicas.stand_in[std::size_t(place.data)];
    classes->stand_in.push_back(grid.rank_at({place.stage, other, place.way}));
    classes->weight.push_back(replicas.weight[std::size_t(place.data)]);
    if (classes->weight.back() > 0) classes->simulated.push_back(rank);
  }
  for (const auto& [one, other] : replicas.twins) {
    const std::vector<int> ranks = grid.replica(one), twins = grid.replica(other);
    for (std::size_t i = 0; i < ranks.size(); ++i) classes->twins.emplace_back(ranks[i], twins[i]);
  }
  return classes;
}

}  // namespace

AlikeRanks alike_ranks(const Scenario& scenario) {
  if (!scenario.world.steady || !is_of_shapes(scenario)) return {};
  if (const std::string why = why_not(scenario); !why.empty()) return {nullptr, why};
  const Work work(scenario);
  if (!work.sums_are_whole())
    return {nullptr, "the samples of a micro-step are several subtrees (use micro-batches x ranks = 2^n)"};
  const runtime::ParallelPlan& parallel = scenario.train.layout.parallel;
  const int ranks = scenario.world.ranks(), per_node = scenario.world.ranks_per_node;
  std::vector<int> all_ranks(static_cast<std::size_t>(ranks)), work_of, part_of;
  std::iota(all_ranks.begin(), all_ranks.end(), 0);
  const runtime::Grid grid(parallel, ranks, all_ranks);
  std::vector<runtime::GridPlace> places;
  Numbering works, all;
  for (const int rank : all_ranks) {
    places.push_back(runtime::launch_place(parallel, ranks, rank));
    work_of.push_back(works.of(work.of(places.back())));
    part_of.push_back(places.back().stage * parallel.ways() + places.back().way);
  }
  std::vector<int> on_node(work_of.size(), 0), class_of;
  if (work.sharded_at_all()) on_node = places_of(work_of, part_of, per_node);
  for (int data = 0; data < work.replicas(); ++data) {
    Key key;
    Numbering nodes;  // which of its ranks are on one node
    for (const int rank : grid.replica(data))
      key.insert(key.end(), {work_of[std::size_t(rank)], on_node[std::size_t(rank)], fate_of(scenario, rank),
                             nodes.of({rank / per_node})});
    class_of.push_back(all.of(key));
  }
  return {of_ranks(*classes_of(class_of), grid, places, parallel.ranks()), ""};
}

double simulated_ranks(const Scenario& scenario) {
  const AlikeRanks alike = alike_ranks(scenario);
  return alike.classes ? double(alike.classes->simulated.size()) : double(scenario.world.ranks());
}

}  // namespace seeksim::harness
