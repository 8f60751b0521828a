#include "harness/loading/features/samples.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/loading/features/refusals.h"
#include "runtime/samples/sampler.h"

namespace seeksim::harness {
namespace {

using namespace shapes;
using runtime::CurriculumPlan;
using runtime::CurriculumSchedule;
using runtime::Definition;
using runtime::PackingPlan;
using runtime::SampleOrder;
using runtime::SamplerPlan;

const Words<SampleOrder> kOrders = {{SampleOrder::sequential, "sequential"}, {SampleOrder::shuffled, "shuffled"}};
const Words<CurriculumSchedule> kSchedules = {{CurriculumSchedule::fixed_linear, "fixed_linear"},
                                              {CurriculumSchedule::fixed_root, "fixed_root"},
                                              {CurriculumSchedule::fixed_discrete, "fixed_discrete"}};

bool has_seed(const SamplerPlan& plan) { return plan.seed >= 0; }
bool is_discrete(const CurriculumPlan& plan) { return plan.schedule == CurriculumSchedule::fixed_discrete; }
bool is_root(const CurriculumPlan& plan) { return plan.schedule == CurriculumSchedule::fixed_root; }
bool grows(const CurriculumPlan& plan) { return !is_discrete(plan); }

const Definition& definition_of(const Scenario& scenario) { return scenario.train.definition; }

const Keys<CurriculumPlan>& schedule_keys() {
  static const Keys<CurriculumPlan> keys = {
      {"total_curriculum_step", at(&CurriculumPlan::total_step).when(grows), integer(1, 1'000'000'000).unset(), kBits,
       "fixed_linear, fixed_root: the step, counted from 1, in which max_difficulty is reached, or the multiple of "
       "difficulty_step below it."},
      {"difficulty_step", at(&CurriculumPlan::difficulty_step).when(grows), integer(1, 10'000'000).unset(), kBits,
       "fixed_linear, fixed_root: difficulties are multiples of it, but for max_difficulty."},
      {"root_degree", at(&CurriculumPlan::root_degree).when(is_root), number().least(1).unset(), kBits,
       "fixed_root: 2 is the square root of the share of steps."},
      {"difficulty", at(&CurriculumPlan::difficulties).when(is_discrete), list(integer(1, 10'000'000)).unset(), kBits,
       "fixed_discrete: tokens of a sample, one after the other."},
      {"max_step", at(&CurriculumPlan::max_steps).when(is_discrete), list(integer(1, 1'000'000'000)).unset(), kBits,
       "fixed_discrete: the last step, counted from 1, of each difficulty but the last."},
  };
  return keys;
}

bool checks_conservation(const Scenario& scenario) {
  return std::any_of(scenario.checks.begin(), scenario.checks.end(),
                     [](const CheckSpec& check) { return check.name == "conservation"; });
}

void check_growth(const Reader& own, const CurriculumPlan& plan) {
  const Reader config = own.child("schedule_config");
  for (const char* key : {"total_curriculum_step", "difficulty_step"}) {
    if (!config.has(key)) config.problem(key, "missing", "Both growing schedules need it.");
  }
  if (is_root(plan) && !config.has("root_degree")) config.problem("root_degree", "missing", "For example 2.");
}

void check_list(const Reader& own, const CurriculumPlan& plan) {
  const Reader config = own.child("schedule_config");
  const auto& steps = plan.max_steps;
  if (steps.empty() || plan.difficulties.size() != steps.size() + 1) {
    config.problem("difficulty",
                   fmt::format("{} difficulties and {} last steps: the last difficulty alone has none",
                               plan.difficulties.size(), steps.size()),
                   "Give one step fewer than difficulties.");
  } else if (std::adjacent_find(steps.begin(), steps.end(), std::greater_equal<>()) != steps.end()) {
    config.problem("max_step", "steps have to ascend", "Sort them.");
  } else if (*std::max_element(plan.difficulties.begin(), plan.difficulties.end()) > plan.max_difficulty) {
    config.problem("difficulty", "a difficulty is above max_difficulty", "Raise max_difficulty.");
  }
}

void read_packing(const Reader& top, Scenario& scenario) {
  const Reader own = top.child("data").child("packing");
  Definition& d = scenario.train.definition;
  d.data.packing = {};
  packing_keys().read(own, d.data.packing);
  if (!d.data.packing.on()) return;
  if (d.data.packing.separator >= d.model.vocab)
    own.problem("separator", fmt::format("the vocabulary ends at {}", d.model.vocab - 1), "Name a token of it.");
  refuse(top, {{d.model.own != nullptr, "/data/packing", "not supported: packed samples of a model family of one's own",
                "Leave one of the two out."},
               {d.model.experts.on(), "/data/packing",
                "not supported: packed samples with experts, whose capacity is counted over a sample",
                "Leave one of the two out."},
               {d.model.dropout.attention > 0, "/model/dropout",
                "not supported: packed samples with dropout in attention, which is numbered by places of a sample",
                "Set model.dropout.attention to 0."},
               {d.quirks.any(), "/quirks", "not supported: packed samples with quirks", "Leave one of the two out."},
               {scenario.train.numerics != runtime::Numerics::exact, "/numerics",
                "not supported: packed samples in a run of shapes or of fast arithmetic: which operations there are "
                "follows from the documents",
                "Use \"exact\"."},
               {checks_conservation(scenario), "/checks",
                "conservation counts samples by tags, and packed samples have not all the same number of tokens",
                "Remove it."}});
}

void read_curriculum(const Reader& top, Scenario& scenario) {
  const Reader own = top.child("curriculum");
  Definition& d = scenario.train.definition;
  CurriculumPlan& plan = d.curriculum;
  plan = {};
  curriculum_keys().read(own, plan);
  schedule_keys().read(own.child("schedule_config"), plan);
  if (!plan.on()) return;
  if (plan.max_difficulty > d.model.context)
    own.problem("max_difficulty", fmt::format("a sample has {} tokens (model.context)", d.model.context),
                "Use that or less.");
  else if (plan.min_difficulty > plan.max_difficulty)
    own.problem("min_difficulty", fmt::format("it is above max_difficulty, {}", plan.max_difficulty), "Lower it.");
  is_discrete(plan) ? check_list(own, plan) : check_growth(own, plan);
  refuse(top, {{d.model.own != nullptr, "/curriculum", "not supported: a curriculum of a model family of one's own",
                "Leave one of the two out."},
               {d.model.experts.on(), "/curriculum",
                "not supported: a curriculum with experts, which have a capacity for all tokens of a sample",
                "Leave one of the two out."},
               {d.quirks.any(), "/quirks", "not supported: a curriculum with quirks", "Leave one of the two out."},
               {checks_conservation(scenario), "/checks",
                "conservation counts samples by tags, as if each step had the same number of tokens", "Remove it."}});
}

}  // namespace

bool has_sampler(const Scenario& scenario) { return definition_of(scenario).data.sampler.on(); }
bool has_packing(const Scenario& scenario) { return definition_of(scenario).data.packing.on(); }
bool has_curriculum(const Scenario& scenario) { return definition_of(scenario).curriculum.on(); }

const Keys<SamplerPlan>& sampler_keys() {
  static const Keys<SamplerPlan> keys = {
      {"order", in_words(kOrders, &SamplerPlan::order), choice(words_of(kOrders)).required(), kBits,
       "sequential: each epoch from the first sample to the last. shuffled: each epoch in an order of its own, which "
       "follows from seed and epoch alone."},
      {"seed", at(&SamplerPlan::seed).when(has_seed), integer(0, kExact).unset(), kBits,
       "Of shuffled orders. Unset: training_seed."},
      {"samples", at(&SamplerPlan::samples).unless_standard(), integer(0, 1'000'000'000'000), kBits,
       "Samples of the data set. 0: as many as the given batches or the text hold, in stretches of context tokens; "
       "synthetic data need a number."},
      {"drop_last", at(&SamplerPlan::drop_last).unless_standard(), flag(), kBits,
       "Leave out an epoch's last samples that fill no batch. false: the batch goes on into the next epoch."},
  };
  return keys;
}

const Keys<PackingPlan>& packing_keys() {
  static const Keys<PackingPlan> keys = {
      {"separator", at(&PackingPlan::separator), integer(0, 10'000'000).required(), kBits,
       "The token that ends a document (10: a line of a text). Attention stays in a document, positions begin again "
       "with each, and no document's last token foretells the next one's first: Megatron's reset_attention_mask, "
       "reset_position_ids and eod_mask_loss."},
  };
  return keys;
}

const Keys<CurriculumPlan>& curriculum_keys() {
  static const Keys<CurriculumPlan> keys = {
      {"min_difficulty", at(&CurriculumPlan::min_difficulty), integer(1, 10'000'000).required(), kBits,
       "Tokens of each sample that are learned at first."},
      {"max_difficulty", at(&CurriculumPlan::max_difficulty), integer(1, 10'000'000).required(), kBits,
       "And in the end; model.context at most."},
      {"schedule_type", in_words(kSchedules, &CurriculumPlan::schedule), choice(words_of(kSchedules)).required(), kBits,
       "How the one becomes the other."},
      {"schedule_config",
       written_as<CurriculumPlan>([](const CurriculumPlan& plan) { return schedule_keys().written(plan); }),
       schedule_keys().shape().required(), kBits, "Numbers of the schedule, in DeepSpeed's names."},
  };
  return keys;
}

void read_sampler(const Reader& top, Scenario& scenario) {
  const Reader data = top.child("data"), own = data.child("sampler");
  Definition& d = scenario.train.definition;
  d.data.sampler = {};
  sampler_keys().read(own, d.data.sampler);
  const SamplerPlan& plan = d.data.sampler;
  if (!plan.on()) return;
  if (plan.order == SampleOrder::sequential && has_seed(plan))
    own.problem("seed", "a sequential order has none", "Remove it, or set order to \"shuffled\".");
  if (d.data.synthetic && plan.samples == 0)
    return own.problem("samples", "synthetic data hold as many samples as one likes", "Say how many.");
  const bool without_data = !d.data.synthetic && d.data.bytes.empty() && d.data.tokens.empty();
  if (without_data || d.model.context < 1 || d.global_batch < 1) return;  // said already
  const std::int64_t there = runtime::samples_of_data(d);
  if (there < plan.samples || there < 1)
    return own.problem("samples", fmt::format("the data hold {} samples of {} tokens", there, d.model.context + 1),
                       "Use more data, or ask for fewer samples.");
  if (plan.drop_last && there < d.global_batch)
    own.problem("drop_last", fmt::format("a batch of {} leaves all {} samples out", d.global_batch, there),
                "Use a smaller batch, or set it to false.");
}

void read_lessons(const Reader& top, Scenario& scenario) {
  read_packing(top, scenario);
  read_curriculum(top, scenario);
}

}  // namespace seeksim::harness
