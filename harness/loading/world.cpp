#include "harness/loading/world.h"

#include <fmt/format.h>

#include "harness/loading/features/platform.h"
#include "harness/loading/parallel.h"
#include "harness/loading/rules.h"
#include "harness/scenario/classes.h"
#include "harness/scenario/variants.h"
#include "runtime/layout/parameter_list.h"

namespace seeksim::harness {
namespace {

using namespace shapes;
using runtime::Layout;
using runtime::ParallelPlan;
using runtime::TrainPlan;
using sim::DeviceModel;
using sim::StorageModel;
using sim::WorldPlan;

constexpr int kRanksMax = 1 << 17;
constexpr int kWatchedRanksMax = 64;  // by the race detector, unless the scenario says otherwise

// So many units a second: a device of 10^-9 is slower than a person.
Shape rate() { return number().least(1e-9).most(1e12); }
constexpr double kMicrosecondsMost = 1e9;

const Keys<DeviceModel>& device_keys() {
  static const Keys<DeviceModel> keys = {
      {"tflops", times(1e3, &DeviceModel::flops_per_ns), rate(), kNoBit, "Arithmetic, in 10^12 operations a second."},
      {"bandwidth_gb_s", at(&DeviceModel::bytes_per_ns), rate(), kNoBit, "Memory bandwidth, in 10^9 bytes a second."},
      {"launch_us", times(1e3, &DeviceModel::launch_ns), number().least(0).most(kMicrosecondsMost), kNoBit,
       "Overhead of a launch, in microseconds."},
      {"memory_gib", in_gib(&DeviceModel::capacity_bytes), number().above(0).most(1'000'000), kNoBit,
       "Capacity, in GiB."},
      {"host_memory_gib", in_gib(&DeviceModel::host_capacity_bytes), number().above(0).most(1'000'000), kNoBit,
       "A rank's share of its host's memory, in GiB."},
      {"pinned_gib", in_gib(&DeviceModel::pinned_capacity_bytes), number().least(0).most(1'000'000), kNoBit,
       "At most so much of it can be locked, in GiB."},
      {"copy_gb_s", at(&DeviceModel::copy_bytes_per_ns), rate(), kNoBit,
       "Between host and device, one direction, in 10^9 bytes a second."},
  };
  return keys;
}

const Keys<StorageModel>& storage_keys() {
  static const Keys<StorageModel> keys = {
      {"latency_us", times(1e3, &StorageModel::latency_ns), number().least(0).most(kMicrosecondsMost), kNoBit,
       "Of one request, in microseconds."},
      {"read_gb_s", at(&StorageModel::read_bytes_per_ns), rate(), kNoBit, "In 10^9 bytes a second."},
      {"write_gb_s", at(&StorageModel::write_bytes_per_ns), rate(), kNoBit, "In 10^9 bytes a second."},
      {"capacity_gib", in_gib(&StorageModel::capacity_bytes), number().above(0).most(1'000'000), kNoBit,
       "Of the node, in GiB."},
  };
  return keys;
}

// The path from a scenario to how its model is cut.
template <class... Path>
Binding<Scenario> of_parallel(Path... path) {
  return at(&Scenario::train, &TrainPlan::layout, &Layout::parallel, path...);
}

// Written where it says something: also where it is not what the size of the world would make it.
bool can_be_steady(const Scenario& scenario) {
  return scenario.world.steady || (is_of_shapes(scenario) && scenario.world.ranks() > kSteadyBeyondRanks);
}

}  // namespace

const Keys<Scenario>& world_keys() {
  static const Keys<Scenario> keys = {
      {"nodes", at(&Scenario::world, &WorldPlan::nodes).read_by_hand(), integer(1, 100'000).required(), kNoBit,
       "Machines."},
      {"ranks_per_node", at(&Scenario::world, &WorldPlan::ranks_per_node).read_by_hand(), integer(1, 100'000).unset(),
       kNoBit, "Ranks (devices) of a machine."},
      {"replicas", by_hand, integer(1, 100'000), kNoBit,
       "Instead of ranks_per_node: copies of the model, each on pipeline x tensor x context ranks; the data axis."},
      {"network", at(&Scenario::world, &WorldPlan::network), choice({"ideal", "nvlink", "pcie", "ib", "tcp"}), kNoBit,
       "Links between machines (ideal: messages take no time): latency, bandwidth, which ranks learn of a failure and "
       "when."},
      {"collectives",
       in_words(Words<bool>{{true, "strict"}, {false, "nccl"}}, &Scenario::world, &WorldPlan::strict_collectives),
       choice({"strict", "nccl"}), kNoBit,
       "What happens where members of a collective bring different operations, sizes or types. strict: those who "
       "differ are told. nccl: nobody is; it hangs until the watchdog, and the flight recorders tell."},
      {"sums",
       in_words(Words<bool>{{true, "one_event"}, {false, "messages"}}, &Scenario::world, &WorldPlan::native_collectives)
           .unless_standard(),
       choice({"one_event", "messages"}), kNoBit,
       "How simulated ranks sum gradients. one_event: the simulator sums at once where no fault can touch a single "
       "message, which is faster. messages: each piece travels by itself, as it always does over MPI, TCP and NCCL. "
       "The bits are the same."},
      {"noise", at(&Scenario::world, &WorldPlan::noise), number().least(0).most(0.9), kNoBit,
       "Relative spread of durations, drawn from the seed."},
      {"steady", at(&Scenario::world, &WorldPlan::steady).read_by_hand().when(can_be_steady), flag().unset(), kNoBit,
       "Nothing is drawn: no noise, and messages of the control plane take their mean time. Then ranks that are alike "
       "stay alike, and a run of shapes simulates them once for all. On by itself in runs of shapes beyond 1,024 "
       "ranks without noise."},
      {"race_detector", at(&Scenario::world, &WorldPlan::race_detector).read_by_hand(), flag().standard(true), kNoBit,
       "Whether every declared access to device memory is compared with all others (check no_races). Off by itself "
       "beyond 64 ranks."},
      {"device", inside(device_keys(), &Scenario::world, &WorldPlan::device), device_keys().shape(), kNoBit,
       "The simulated accelerator of each rank."},
      {"storage", inside(storage_keys(), &Scenario::world, &WorldPlan::storage), storage_keys().shape(), kNoBit,
       "The simulated disk of each node, as one of its ranks sees it."},
      {"platform", inside(platform_keys(), &Scenario::platform).when([](const Scenario& scenario) {
         return scenario.platform.any();
       }),
       platform_keys().shape(), kNoBit,
       "Whole collectives of simulated ranks take what this cluster was measured to take. Bits are the same."},
      {"pipeline", of_parallel(&ParallelPlan::pipeline), integer(1, 4096), kNoBit,
       "Pipeline stages. The ranks that share the batch are all ranks divided by stages and tensor-parallel ranks."},
      {"tensor", of_parallel(&ParallelPlan::tensor), choice({1, 2, 4, 8}), kNoBit,
       "Tensor-parallel ranks: exact with 1, 2, 4 and 8, which divide the 8 slabs of a parameter."},
      {"expert", of_parallel(&ParallelPlan::expert).unless_standard(), integer(1, runtime::ExpertsPlan::kMost), kNoBit,
       "Ranks over which the experts of a layer are divided: neighbours among the ranks that share the batch, whose "
       "number it divides. Dense parameters are on all ranks; rows of tokens go to the ranks of their experts."},
      {"context", of_parallel(&ParallelPlan::context).unless_standard(), choice({1, 2, 4, 8}), kNoBit,
       "Context parallelism: ranks that share the tokens of each sample. Each has all parameters and rows of its own "
       "tokens; context_attention says how it attends to those of others. Needs model.gradient_sums \"segments\"."},
      {"context_attention",
       in_words(Words<bool>{{false, "ulysses"}, {true, "ring"}}, &Scenario::train, &TrainPlan::layout,
                &Layout::parallel, &ParallelPlan::ring_attention)
           .unless_standard(),
       choice({"ulysses", "ring"}), kNoBit,
       "How a context group attends. ulysses (a2a): all-to-alls give a rank the rows of all tokens, of its own heads. "
       "ring (p2p): blocks of keys and values go around, and a rank keeps its own queries, of all heads; needs "
       "model.attention \"fused\" and chunks of 32, 64, 128, ... tokens."},
      {"context_cut",
       in_words(Words<bool>{{false, "contiguous"}, {true, "zigzag"}}, &Scenario::train, &TrainPlan::layout,
                &Layout::parallel, &ParallelPlan::context_zigzag)
           .unless_standard(),
       choice({"contiguous", "zigzag"}), kNoBit,
       "Which tokens a rank of a context group has: one stretch of a sample, or a chunk from its front and one from "
       "its "
       "end, as causal masks are balanced with ring attention (2 and 4 ranks)."},
      {"shard_group", of_parallel(&ParallelPlan::shard_group).unless_standard(), integer(0, kRanksMax), kNoBit,
       "ZeRO 1 to 3 with replicas (HSDP, MiCS): shards live inside groups of so many neighbours of the ranks that "
       "share "
       "the batch, and each group has all of them. 0: one group of all."},
      {"sequence_parallel", of_parallel(&ParallelPlan::sequence_parallel), flag(), kNoBit,
       "Between tensor-parallel parts, norms and dropout run on a way's own tokens (Korthikanti et al. 2022)."},
      {"schedule", schedule_word(), text(), kNoBit,
       "The order of forward and backward passes on the stages (seeksim list schedule): gpipe, 1f1b, interleaved, "
       "zero_bubble, or one that a program of one's own has added."},
      {"placement", placement_word(), text().standard("even"), kNoBit,
       "Where the shards of ZeRO 1 to 3 end: as even as can be, or a placement that a program of one's own has "
       "added."},
      {"all_gather", gather_word(), text().standard("direct"), kNoBit,
       "How a shard comes to all others: direct, from its owner; ring, from neighbour to neighbour; doubling, in "
       "rounds "
       "that carry 1, 2, 4, ... shards; or in rounds of a rule that a program of one's own has added."},
      {"virtual_stages", of_parallel(&ParallelPlan::virtual_stages), integer(1, 256), kNoBit,
       "Pieces of the model on each stage; 2 or more, and 2 by default, under the interleaved schedule."},
      {"pipeline_layers", of_parallel(&ParallelPlan::layers).read_by_hand().unless_standard(),
       either(list(integer(0, runtime::LayerNames::kLayersMax)).entries(1), text()).unset(), kNoBit,
       "Layers of each piece, in the order of the model; \"parameters\": the largest piece as small as it can be. "
       "Without it they are cut as evenly as can be."},
  };
  return keys;
}

int read_world(const Reader& world, Scenario& scenario) {
  WorldPlan& plan = scenario.world;
  const std::int64_t nodes = world.integer("nodes", 0), per_node = ranks_per_node(world, nodes);
  world_keys().read(world, scenario);
  if (nodes < 1 || per_node < 1 || nodes > 100'000 || per_node > 100'000) return 0;
  if (nodes * per_node > kRanksMax) {
    world.problem("",
                  fmt::format("{} x {} = {} ranks are more than the {} that fit into one process", nodes, per_node,
                              nodes * per_node, kRanksMax),
                  "Use fewer nodes or ranks_per_node.");
    return 0;
  }
  plan.nodes = int(nodes);
  plan.ranks_per_node = int(per_node);
  plan.race_detector = world.flag("race_detector", plan.ranks() <= kWatchedRanksMax);
  if (!plan.race_detector && !world.has("race_detector")) {
    scenario.notes.push_back(fmt::format(
        "the race detector is off: there are more than {} ranks (\"race_detector\": true in \"world\" turns it on)",
        kWatchedRanksMax));
  }
  read_platform(world, scenario);
  return plan.ranks();
}

// Large worlds of shapes are steady unless they want noise: else no two ranks would take the same time.
void settle_steady(const Reader& top, Scenario& scenario) {
  const Reader world = top.child("world");
  WorldPlan& plan = scenario.world;
  const bool noisy = world.has("noise") && plan.noise > 0;
  const bool by_itself = is_of_shapes(scenario) && plan.ranks() > kSteadyBeyondRanks && !noisy;
  plan.steady = world.flag("steady", by_itself);
  if (plan.steady && !is_of_shapes(scenario))
    world.problem("steady", "only a run of shapes can be steady", "Use \"numerics\": \"shapes\", or remove it.");
  if (plan.steady && noisy)
    world.problem("noise", "nothing is drawn in a steady world", "Remove it, or set \"steady\" to false.");
  if (plan.steady) plan.noise = 0;
  if (plan.steady && !world.has("steady"))
    scenario.notes.push_back(fmt::format(
        "more than {} ranks: the world is steady, nothing in it is drawn (\"steady\": false in \"world\" draws)",
        kSteadyBeyondRanks));
}

}  // namespace seeksim::harness
