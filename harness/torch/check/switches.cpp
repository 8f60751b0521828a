#include "harness/torch/check/switches.h"

namespace seeksim::harness::torch {
namespace {

constexpr double kLate_s = 0.05;
constexpr int kLateTimes = 6;

void nothing(Variant&, std::string_view) {}
void in_ranks(Variant& variant, std::string_view name) { variant.turns = {std::string(name)}; }
void cold(Variant& variant, std::string_view) { variant.cold = true; }
void twice_the_ranks(Variant& variant, std::string_view) { variant.scenario.torch.ranks *= 2; }
void other_order(Variant& variant, std::string_view) { variant.scenario.torch.sums = pytorch::SumOrder::two_parts; }

void late(Variant& variant, std::string_view) {
  faults::Rule rule;
  rule.kind = faults::FaultKind::pause;
  rule.when.rank = variant.scenario.torch.ranks - 1;
  rule.count = kLateTimes;
  rule.delay_ns = std::int64_t(kLate_s * 1e9);
  variant.scenario.faults = {rule};
}

void not_a_number(Variant& variant, std::string_view) {
  faults::Rule rule;
  rule.kind = faults::FaultKind::nan_inject;
  rule.when.rank = variant.scenario.torch.ranks - 1;
  rule.when.step = 1;
  rule.site = faults::Site::gradient;
  variant.scenario.faults = {rule};
}

Switch in_torch(std::string_view name, std::string_view uses, std::string_view lacks, Demand demand,
                std::string_view description) {
  return {name, uses, lacks, demand, in_ranks, true, description};
}
Switch outside(std::string_view name, Demand demand, void (*turn)(Variant&, std::string_view),
               std::string_view description) {
  return {name, "", "", demand, turn, false, description};
}

}  // namespace

std::string_view name(Demand demand) {
  constexpr std::string_view kNames[] = {"bits",       "reassociated", "steady", "other losses", "replicas_equal red",
                                         "finite red", "bits"};
  return kNames[std::size_t(demand)];
}

const std::vector<Switch>& switches() {
  using enum Demand;
  constexpr std::string_view kNoDdp = "the script makes no DistributedDataParallel";
  constexpr std::string_view kNoDeepSpeed = "the script uses no DeepSpeed";
  static const std::vector<Switch> all = {
      outside("again", bits, nothing, "the same run again"),
      outside("cold", bits, cold, "each rank imports torch itself, with another PYTHONHASHSEED"),
      outside("sums", steady, other_order, "sums over ranks add in another order; measures what an order moves"),
      in_torch("rounding", "", "", steady,
               "each weight moves by one unit in its last place before each step; measures what rounding moves"),
      in_torch("seed", "seed", "the script seeds nothing", other_losses, "each seed is another one"),
      outside("np", reassociated, twice_the_ranks, "twice the ranks, where the samples of a step stay the same"),
      in_torch("ranks", "sampler", "the script makes no DistributedSampler", reassociated,
               "ranks read each other's samples: the sampler's ranks in reverse"),
      outside("late", bits, late, "the last rank comes late to its first collectives"),
      in_torch("threads", "", "", reassociated, "two threads compute where one did"),
      in_torch("workers", "loader", "the script makes no DataLoader", bits,
               "a worker process loads where none did, or none where some did"),
      in_torch("zeros", "zero_grad", "the script calls no zero_grad()", bits,
               "zero_grad() keeps zeros where it kept nothing, or the other way"),
      in_torch("foreach", "foreach", "the optimizer has no foreach", reassociated, "the optimizer's foreach, or not"),
      in_torch("fused", "fused", "the optimizer has no fused form", reassociated, "the optimizer's fused form, or not"),
      in_torch("buckets", "ddp", kNoDdp, bits, "DDP's buckets of 10 KiB"),
      in_torch("views", "ddp", kNoDdp, bits, "DDP's gradient_as_bucket_view, or not"),
      in_torch("static_graph", "ddp", kNoDdp, bits, "DDP's static_graph, or not"),
      in_torch("unused", "ddp", kNoDdp, bits, "DDP's find_unused_parameters"),
      in_torch("reshard", "fsdp2", "the script calls no fully_shard()", bits, "FSDP2's reshard_after_forward, or not"),
      in_torch("ds_buckets", "deepspeed", kNoDeepSpeed, bits, "DeepSpeed's buckets of 4096 elements"),
      in_torch("ds_overlap", "deepspeed", kNoDeepSpeed, bits, "DeepSpeed's overlap_comm, or not"),
      in_torch("ds_contiguous", "deepspeed", kNoDeepSpeed, bits, "DeepSpeed's contiguous_gradients, or not"),
      in_torch("ds_round_robin", "deepspeed", kNoDeepSpeed, reassociated,
               "DeepSpeed's round_robin_gradients, or not: the gradient's norm is summed over other pieces"),
      outside("nan", finite_red, not_a_number, "a NaN in the last rank's gradient of step 1 is noticed"),
      in_torch("weight", "", "", replicas_red, "a flipped bit in a weight of the last rank is noticed"),
      outside("resume", resumed, nothing, "the script goes on from its checkpoint (--resume)"),
  };
  return all;
}

std::vector<std::string> switch_names() {
  std::vector<std::string> names;
  for (const Switch& one : switches()) names.emplace_back(one.name);
  return names;
}

}  // namespace seeksim::harness::torch
