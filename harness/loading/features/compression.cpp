#include "harness/loading/features/compression.h"

#include <fmt/format.h>

#include <bit>

#include "harness/loading/features/refusals.h"

namespace seeksim::harness {
namespace {

using namespace shapes;
using runtime::CompressedOptimizer;
using runtime::Compression;
using runtime::CompressionPlan;

const Words<Compression> kMethods = {
    {Compression::none, "none"}, {Compression::fp16, "fp16"}, {Compression::bf16, "bf16"},  {Compression::int8, "int8"},
    {Compression::sign, "sign"}, {Compression::top, "top"},   {Compression::power, "power"}};

const Words<CompressedOptimizer> kOptimizers = {{CompressedOptimizer::none, "none"},
                                                {CompressedOptimizer::onebit_adam, "onebit_adam"}};

bool takes_the_largest(const CompressionPlan& plan) { return plan.method == Compression::top; }
bool of_momentum(const CompressionPlan& plan) { return plan.of_momentum(); }
bool in_factors(const CompressionPlan& plan) { return plan.in_factors(); }
bool begins_late(const CompressionPlan& plan) { return of_momentum(plan) || in_factors(plan); }

// The largest number of groups below the given one that is possible.
int groups_below(int batch, int groups) {
  for (int fewer = std::min(groups, batch); fewer > 1; --fewer)
    if (batch % fewer == 0 && std::has_single_bit(unsigned(batch / fewer))) return fewer;
  return 0;
}

void check_groups(const Reader& own, const Scenario& scenario) {
  const CompressionPlan& plan = scenario.train.definition.compression;
  const int batch = scenario.train.definition.global_batch;
  if (plan.groups < 1 || batch < 1) return;  // the schema said so, or the batch is wrong
  if (batch % plan.groups == 0 && std::has_single_bit(unsigned(batch / plan.groups))) return;
  const int fewer = groups_below(batch, plan.groups);
  own.problem("groups",
              fmt::format("{} samples a step in {} groups: a group has to be a power of two of samples, since it is a "
                          "node of the tree in which they are summed",
                          batch, plan.groups),
              fewer > 0 ? fmt::format("For example {}.", fewer) : fmt::format("For example {}.", batch));
}

// What compressed gradients cannot be together with.
void refuse_with_compression(const Reader& top, const Scenario& scenario) {
  const runtime::TrainPlan& train = scenario.train;
  const runtime::RecoveryPlan& recovery = train.recovery;
  const bool spares = recovery.spares > 0;
  const auto checks_conservation = [](const CheckSpec& check) { return check.name == "conservation"; };
  refuse(top,
         {
             {train.layout.zero.stage >= 2, "/deepspeed/zero_optimization/stage",
              "not supported: compressed gradients with ZeRO 2 and 3, which reduce them bucket by bucket in each "
              "micro-step",
              "Use stage 0 or 1."},
             {!train.layout.parallel.alone(), "/world",
              "not supported: compressed gradients in a model that is cut by pipeline or tensor",
              "Use 1 for both, or no compression."},
             {train.layout.offload.optimizer.home != runtime::Home::device,
              "/deepspeed/zero_optimization/offload_optimizer",
              "not supported: compressed gradients with an offloaded optimizer", "Leave one of the two out."},
             {train.definition.quirks.any(), "/quirks", "not supported: compressed gradients with quirks",
              "Leave one of the two out."},
             {train.numerics == runtime::Numerics::fast, "/numerics",
              "not supported: compressed gradients in a run of fast arithmetic", "Use \"exact\" or \"shapes\"."},
             {recovery.memory_ladder, "/recovery/memory_ladder",
              "not supported: compressed gradients with the memory ladder, which changes the ZeRO stage",
              "Turn one of them off."},
             {spares, "/recovery/spares", "not supported: compressed gradients with spares, which hold no residuals",
              "Use restart_from_checkpoint, or no spares."},
             {recovery.grow, "/recovery/grow",
              "not supported: compressed gradients in a run that admits ranks, which hold no residuals",
              "Turn one of them off."},
             {std::any_of(scenario.checks.begin(), scenario.checks.end(), checks_conservation), "/checks",
              "conservation counts samples by tags, which compression would round",
              "Remove it: compression_conserves is judged in every run with compressed gradients."},
         });
}

// What a compressed momentum needs.
void refuse_with_momentum(const Reader& top, const Scenario& scenario) {
  const runtime::Definition& d = scenario.train.definition;
  const bool clips = d.gradient_clipping > 0 || std::any_of(d.changes.begin(), d.changes.end(), [](const auto& change) {
                       return change.gradient_clipping.value_or(0) > 0;
                     });
  refuse(top,
         {
             {d.compression.method != Compression::sign, "/compression/method",
              "1-bit Adam sends signs: another method is another optimizer", "Use \"sign\"."},
             {d.compression.start_step < 1, "/compression/start_step",
              "1-bit Adam needs a step before it compresses: without one there is no variance to freeze",
              "Say how many steps are plain AdamW; the paper takes about a fifth of all."},
             {d.optimizer.type != "AdamW", "/deepspeed/optimizer/type",
              "1-bit Adam is AdamW before it freezes, and its decay is decoupled after that", "Use AdamW."},
             {scenario.train.layout.zero.stage > 0, "/deepspeed/zero_optimization/stage",
              "not supported: 1-bit Adam with ZeRO, since a group adds its gradient to the whole momentum (DeepSpeed's "
              "could not either)",
              "Use stage 0."},
             {clips, "/deepspeed/gradient_clipping",
              "1-bit Adam cannot clip: once momentum is compressed no rank has the gradient whose norm that needs",
              "Set it to 0."},
             {runtime::is_16_bit(d.precision.gradients), "/deepspeed/data_types/grad_accum_dtype",
              "not supported: 1-bit Adam with gradients held in 16 bits, in which the momentum would be rounded",
              "Use \"fp32\"."},
         });
}

// What factors of whole matrices cannot be together with.
void refuse_with_factors(const Reader& top, const Scenario& scenario) {
  refuse(top, {
                  {scenario.train.layout.zero.stage > 0, "/deepspeed/zero_optimization/stage",
                   "not supported: power with ZeRO, whose shards end inside matrices", "Use stage 0."},
                  {scenario.train.definition.model.experts.on(), "/model/experts",
                   "not supported: power with experts, whose matrices are held as one", "Leave one of the two out."},
                  {scenario.train.definition.compression.of_momentum(), "/compression/method",
                   "1-bit Adam sends signs: another method is another optimizer", "Use \"sign\"."},
              });
}

}  // namespace

const Keys<CompressionPlan>& compression_keys() {
  static const Keys<CompressionPlan> keys = {
      {"method", in_words(kMethods, &CompressionPlan::method), choice(words_of(kMethods)).required(), kBits,
       "What gradients are rounded to: fp16, bf16; int8: 8 bits an element and a power of two a block of 1,024; sign: "
       "one bit an element and the mean magnitude of the block; top: the largest elements of each block; power: "
       "PowerSGD's two thin factors of each matrix (ZeRO 0)."},
      {"groups", at(&CompressionPlan::groups), integer(1, 1'000'000).required(), kBits,
       "How many parts the samples of a step are cut into, each compressed apart: the number of ranks is what "
       "frameworks have. It decides bits, and the number of ranks does not. A group is a power of two of samples."},
      {"error_feedback", at(&CompressionPlan::error_feedback), flag(), kBits,
       "What rounding takes from a group's gradient is added to its next one."},
      {"top", at(&CompressionPlan::top).when(takes_the_largest), integer(1, 1024), kBits,
       "Elements of each block that are sent, where only the largest are."},
      {"optimizer", in_words(kOptimizers, &CompressionPlan::optimizer).when(of_momentum), choice(words_of(kOptimizers)),
       kBits,
       "onebit_adam: 1-bit Adam. AdamW until start_step; then the variance stands still, momentum is what groups send, "
       "and the sum of it goes back compressed too (ZeRO 0)."},
      {"start_step", at(&CompressionPlan::start_step).when(begins_late), integer(0, 1'000'000'000), kBits,
       "Of onebit_adam and power: steps before anything is compressed (DeepSpeed's freeze_step, which skipped steps do "
       "not count for; PyTorch's start_powerSGD_iter)."},
      {"rank", at(&CompressionPlan::rank).when(in_factors), integer(1, 1024), kBits,
       "power: columns of the two factors of a matrix (PyTorch's matrix_approximation_rank)."},
      {"warm_start", at(&CompressionPlan::warm_start).when(in_factors), flag(), kBits,
       "power: a step begins with the factor that the one before ended with; false: with a drawn one."},
  };
  return keys;
}

void read_compression(const Reader& top, Scenario& scenario) {
  const Reader own = top.child("compression");
  CompressionPlan& plan = scenario.train.definition.compression;
  plan = {};
  compression_keys().read(own, plan);
  if (!plan.on() || plan.groups < 1) {
    plan = {};
    return;
  }
  check_groups(own, scenario);
  refuse_with_compression(top, scenario);
  if (in_factors(plan)) return refuse_with_factors(top, scenario);
  if (plan.of_momentum()) return refuse_with_momentum(top, scenario);
  if (plan.start_step > 0) own.problem("start_step", "only onebit_adam and power begin late", "Remove it.");
}

}  // namespace seeksim::harness
