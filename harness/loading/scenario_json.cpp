#include "harness/loading/scenario_json.h"

#include "harness/input/schema.h"
#include "harness/loading/checks.h"
#include "harness/loading/ddp.h"
#include "harness/loading/deepspeed/activation_checkpointing.h"
#include "harness/loading/deepspeed/auto_values.h"
#include "harness/loading/deepspeed/deepspeed.h"
#include "harness/loading/deepspeed/precision.h"
#include "harness/loading/fault_plan.h"
#include "harness/loading/faults.h"
#include "harness/loading/features/alarms.h"
#include "harness/loading/features/changes.h"
#include "harness/loading/features/compression.h"
#include "harness/loading/features/evaluation.h"
#include "harness/loading/features/fp8.h"
#include "harness/loading/features/local_sgd.h"
#include "harness/loading/features/optimizer_state.h"
#include "harness/loading/features/quantised.h"
#include "harness/loading/features/samples.h"
#include "harness/loading/features/staleness.h"
#include "harness/loading/fsdp_form.h"
#include "harness/loading/model_and_data.h"
#include "harness/loading/recovery.h"
#include "harness/loading/schedule.h"
#include "harness/loading/world.h"
#include "harness/scenario/written.h"
#include "harness/verdict/figures.h"
#include "runtime/rules/bugs.h"
#include "runtime/rules/quirks.h"

namespace seeksim::harness {
namespace {

using namespace shapes;
using runtime::Definition;
using runtime::Layout;
using runtime::Numerics;
using runtime::OptimizerPlan;
using runtime::ProvenancePlan;
using runtime::SchedulerPlan;
using runtime::TrainPlan;

const Words<bool> kDecays = {{false, "matrices"}, {true, "all"}};
const Words<bool> kStorages = {{false, "sim"}, {true, "real"}};
const Words<bool> kBatchArithmetics = {{false, "deepspeed"}, {true, "by_samples"}};
const Words<Numerics> kNumerics = {{Numerics::exact, "exact"}, {Numerics::shapes, "shapes"}, {Numerics::fast, "fast"}};

// The path from a scenario to what may decide a bit.
template <class... Path>
Binding<Scenario> of_training(Path... path) {
  return at(&Scenario::train, &TrainPlan::definition, path...);
}

// A section whose keys fill the scenario itself.
Binding<Scenario> section(const Keys<Scenario>& keys) {
  return written_as<Scenario>([&keys](const Scenario& scenario) { return keys.written(scenario); });
}

// ---- when a key is written, and as what ----------------------------------------------------------------------------

bool has_table(const Scenario& s) { return s.train.definition.scheduler.type == "table"; }
bool has_own_faults(const Scenario& s) { return !s.own_faults.empty(); }
bool has_plan(const Scenario& s) { return s.planned.any(); }
bool has_quirks(const Scenario& s) { return s.train.definition.quirks.any(); }
bool has_checkpoints(const Scenario& s) { return s.train.checkpoint.on(); }
bool has_bug(const Scenario& s) { return !s.train.bug.is(runtime::Bug::none); }
bool is_exhibit(const Scenario& s) { return !s.museum.group.empty(); }
bool has_segments(const Scenario& s) { return s.train.layout.checkpointing.any(); }
bool has_torch_scaler(const Scenario& s) { return s.train.definition.scaler.kind == runtime::LossScalerKind::torch; }
bool has_golden(const Scenario& s) { return s.golden.any(); }

bool has_alarms(const Scenario& s) { return s.watched.alarms.any(); }
bool has_changes(const Scenario& s) { return !s.train.definition.changes.empty(); }
bool quantises(const Scenario& s) { return s.train.definition.quantised.on(); }
bool quantises_gradients(const Scenario& s) { return s.train.definition.quantised_gradients.on(); }
bool casts_to_fp8(const Scenario& s) { return s.train.definition.fp8.on(); }
bool compresses(const Scenario& s) { return s.train.definition.compression.on(); }
bool come_late(const Scenario& s) { return s.train.definition.staleness.on(); }
bool has_buckets(const Scenario& s) { return s.train.layout.zero.ddp_bucket_elements > 0; }
bool keeps_mean(const Scenario& s) { return s.train.definition.optimizer.ema_decay > 0; }
bool rounds_at_random(const Scenario& s) { return s.train.definition.precision.stochastic_rounding; }
bool has_workers(const Scenario& s) { return s.train.definition.local_sgd.on(); }

Json quirks_of(const Scenario& scenario) { return quirk_names(scenario.train.definition.quirks); }
Json bug_of(const Scenario& scenario) { return runtime::text(scenario.train.bug); }

Json data_of(const Scenario& scenario) {
  Json data = data_json(scenario);
  const runtime::DataPlan& plan = scenario.train.definition.data;
  if (has_sampler(scenario)) data["sampler"] = sampler_keys().written(plan.sampler);
  if (has_packing(scenario)) data["packing"] = packing_keys().written(plan.packing);
  return data;
}

Json faults_of(const Scenario& scenario) {
  Json list = Json::array();
  for (const faults::Rule& rule : scenario.faults) list.push_back(to_json(rule));
  return list;
}

Json own_faults_of(const Scenario& scenario) {
  Json list = Json::array();
  for (const OwnFaultSpec& own : scenario.own_faults) {
    list.push_back({{"name", own.name}});
    list.back().update(Json::parse(own.parameters));
  }
  return list;
}

Json checks_of(const Scenario& scenario) {
  Json list = Json::array();
  for (const CheckSpec& check : scenario.checks) list.push_back(check.text());
  return list;
}

Json expect_of(const Scenario& scenario) {
  const Expect& expect = scenario.expect;
  if (expect.what == Expect::What::check_fails) {
    const std::vector<std::string> names = expect.names();
    return {{"check_fails", names.size() == 1 ? Json(names.front()) : Json(names)}};
  }
  if (expect.what == Expect::What::stops) return {{"stops", expect.argument}};
  return "pass";
}

// The reader says what is wrong with another word.
Shape quirk_word() {
  std::vector<std::string> names;
  for (const runtime::QuirkInfo& row : runtime::quirk_catalogue()) names.emplace_back(row.name);
  return text().with("enum", names).with(kReaderSays, true);
}

// A fault of one's own has whatever parameters it takes, beside its name.
Shape own_fault_shape() { return object_with({{"name", text().required().described("As it was added.")}}); }

const Keys<Sweep>& mode_keys() {
  static const Keys<Sweep> keys = {
      {"sample", by_hand, integer(1, 100'000), kNoBit, "Rows to draw."},
  };
  return keys;
}

}  // namespace

// ---- the keys ------------------------------------------------------------------------------------------------------

const Keys<GoldenPlan>& golden_keys() {
  static const Keys<GoldenPlan> keys = {
      {"skip_steps", at(&GoldenPlan::skip_steps).read_by_hand().unless_standard(), list(integer(0)).unset(), kBits,
       "Steps that the golden does not apply, as the run shall not; their losses and norms are not compared."},
      {"drop_batches", at(&GoldenPlan::drop_batches).unless_standard(), list(integer(0)).unset(), kBits,
       "Global batches, counted from 0, that no step of the golden uses: the next one serves instead, as after a "
       "rollback that skips bad data."},
      {"undo_changes", at(&GoldenPlan::undo_changes).unless_standard(), list(integer(1)).unset(), kBits,
       "Changes, by their steps, that the golden does not make, as a run that rolled them back."},
      {"shared", at(&GoldenPlan::shared).unless_standard(), flag(), kNoBit,
       "In a sweep: all rows are compared with the golden of the scenario without its sweep, also a row that trains "
       "something else, which is then red."},
      {"drop_samples", by_hand, list(integer(0)), kNoBit, "Samples that are meant to be missing."},
  };
  return keys;
}

const Keys<Exhibit>& museum_keys() {
  static const Keys<Exhibit> keys = {
      {"group", at(&Exhibit::group),
       choice({"scaling", "precision", "sharding", "offload", "pipeline", "collectives", "data", "checkpoint", "memory",
               "hardware"})
           .required(),
       kNoBit, "What kind of mistake it is."},
      {"symptom", at(&Exhibit::symptom), text().length(1).required(), kNoBit, "What a user saw."},
      {"fix", at(&Exhibit::fix), text().length(1).required(), kNoBit, "What repaired it, in a sentence."},
      {"source", at(&Exhibit::source), text().length(1).required(), kNoBit,
       "Where it was: framework, and number of an issue, pull request or commit."},
      {"without", at(&Exhibit::without).unless_standard(), list(text().length(3)).unset(), kNoBit,
       "Options as of --set that take the mistake away, where it is neither a bug nor a quirk nor a fault."},
  };
  return keys;
}

const Keys<Scenario>& scenario_keys() {
  static const Keys<Scenario> keys = {
      {"$schema", by_hand, text(), kNoBit, "Path of this schema, for editors. Not read."},
      {"name", at(&Scenario::name), text().length(1, 100).required(), kNoBit,
       "Letters, digits, '_', '-' and '.'; as the file is called."},
      {"why", at(&Scenario::why).unless_standard(), text().unset(), kNoBit, "What this scenario shows, in a sentence."},
      {"seed", at(&Scenario::world, &sim::WorldPlan::seed), integer(0, kExact), kNoBit,
       "The world's seed: schedule, fault draws, noise. Never changes the weights. --seed overrides it."},
      {"training_seed", of_training(&Definition::training_seed), integer(0, kExact), kBits,
       "Decides initial weights, sample order and dropout."},
      {"model", section(model_keys()), either(model_keys().shape(), text()).required(), kBits,
       "The model to train: sizes, or Hugging Face's config.json, its path or that of its folder."},
      {"data", written_as<Scenario>(data_of), data_keys().shape().required(), kBits,
       "What to train on: a text, synthetic tokens, or given batches."},
      {"world", section(world_keys()), world_keys().shape().required(), kNoBit,
       "The machines. Never changes the weights."},
      {"deepspeed", written_as<Scenario>(deepspeed_json), either(deepspeed_keys().shape(), text()).required(), kNoBit,
       "The training configuration in DeepSpeed's own keys and defaults (0.19.8), or the path of a ds_config.json."},
      {"fsdp", by_hand, fsdp_keys().shape(), kNoBit,
       "The layout in the words of torch's FSDP, in place of deepspeed.zero_optimization, bf16 and fp16."},
      {"ddp", inside(ddp_keys(), &Scenario::train, &TrainPlan::layout, &Layout::zero).read_by_hand().when(has_buckets),
       ddp_keys().shape(), kNoBit,
       "ZeRO 0: gradients travel in buckets while backward goes on, as torch's DDP has them. Changes no bit."},
      {"auto", by_hand, auto_keys().shape(), kNoBit,
       "What Hugging Face's Trainer would be told: its arguments fill each \"auto\" of the deepspeed section. --auto "
       "lr=1e-4,batch=4 sets them."},
      {"compression",
       inside(compression_keys(), &Scenario::train, &TrainPlan::definition, &Definition::compression)
           .read_by_hand()
           .when(compresses),
       compression_keys().shape(), kBits,
       "What gradients are rounded to on their way to the ranks that sum them (ZeRO 0 and 1)."},
      {"local_sgd",
       inside(local_sgd_keys(), &Scenario::train, &TrainPlan::definition, &Definition::local_sgd)
           .read_by_hand()
           .when(has_workers),
       local_sgd_keys().shape(), kBits,
       "Workers with weights of their own, which meet in an outer step every so many steps: local SGD, DiLoCo (ZeRO "
       "0)."},
      {"staleness",
       inside(staleness_keys(), &Scenario::train, &TrainPlan::definition, &Definition::staleness)
           .read_by_hand()
           .when(come_late),
       staleness_keys().shape(), kBits,
       "Workers whose gradients come late, by a bounded number of steps, as those of asynchronous data parallelism do "
       "(ZeRO 0 and 1)."},
      {"ema",
       inside(ema_keys(), &Scenario::train, &TrainPlan::definition, &Definition::optimizer)
           .read_by_hand()
           .when(keeps_mean),
       ema_keys().shape(), kBits,
       "A running mean of the weights in fp32, kept beside them, sharded as they are, saved and recovered with them."},
      {"stochastic_rounding",
       of_training(&Definition::precision, &runtime::PrecisionPlan::stochastic_rounding)
           .read_by_hand()
           .when(rounds_at_random),
       flag(), kBits,
       "bf16 weights without fp32 masters are rounded up or down at random, so that on average no update is lost."},
      {"fp8",
       inside(fp8_keys(), &Scenario::train, &TrainPlan::definition, &Definition::fp8).read_by_hand().when(casts_to_fp8),
       fp8_keys().shape(), kBits,
       "Operands of linear layers (not of embeddings, norms, attention or the head) are cast to 8 bits, as NVIDIA's "
       "Transformer Engine does."},
      {"quantized_weights_block",
       of_training(&Definition::quantised, &runtime::QuantisedWeightsPlan::block).when(quantises), integer(1, 1024),
       kBits,
       "Elements that share a scale, with deepspeed.zero_optimization.zero_quantized_weights: a power of two. Blocks "
       "begin again with each parameter, and with each part of it that tensor parallelism may split off."},
      {"quantized_gradients",
       inside(quantised_gradients_keys(), &Scenario::train, &TrainPlan::definition, &Definition::quantised_gradients)
           .read_by_hand()
           .when(quantises_gradients),
       quantised_gradients_keys().shape(), kBits,
       "With deepspeed.zero_optimization.zero_quantized_gradients: which samples have a gradient that is quantised "
       "apart, and to what."},
      {"evaluation", section(evaluation_keys()).when(has_evaluation), evaluation_keys().shape(), kBits,
       "The loss of samples that no step trains on, between steps: without gradients and dropout."},
      {"curriculum",
       inside(curriculum_keys(), &Scenario::train, &TrainPlan::definition, &Definition::curriculum)
           .read_by_hand()
           .when(has_curriculum),
       curriculum_keys().shape(), kBits,
       "How many tokens of each sample a step learns from: few at first. Keys and formulas of DeepSpeed's "
       "curriculum_learning by sequence length."},
      {"decay",
       in_words(kDecays, &Scenario::train, &TrainPlan::definition, &Definition::optimizer, &OptimizerPlan::decay_all),
       choice(words_of(kDecays)), kBits,
       "What weight decay acts on: matrices only, as GPT-2 is trained, or everything, as DeepSpeed's groups do."},
      {"lr_table", of_training(&Definition::scheduler, &SchedulerPlan::table).read_by_hand().when(has_table),
       list(number().least(0)).entries(1).unset(), kBits,
       "The learning rate of each step, instead of deepspeed.scheduler; the last one holds from then on. To repeat a "
       "run that was made elsewhere."},
      {"changes", written_as<Scenario>(changes_json).when(has_changes), list(change_keys().shape()).unset(), kBits,
       "Changes of the configuration in the middle of the training, by step. The golden makes them too."},
      {"steps", of_training(&Definition::steps), integer(1, 1'000'000'000).required(), kBits,
       "Optimizer steps to train. They are numbered from 0."},
      {"faults", written_as<Scenario>(faults_of), list(rule_keys().shape()).standard(Json::array()), kNoBit,
       "What breaks. Each rule says when, what and how often; one that never fires makes the run red."},
      {"own_faults", written_as<Scenario>(own_faults_of).when(has_own_faults),
       list(own_fault_shape()).standard(Json::array()), kNoBit,
       "Faults that a program of one's own has added (add_fault in harness/loading/extensions.h): their name, and "
       "whatever parameters "
       "they take. They wrap every rank's seams, over the faults above."},
      {"fault_plan", inside(fault_plan_keys(), &Scenario::planned).read_by_hand().when(has_plan),
       fault_plan_keys().shape().standard(Json::object()), kNoBit,
       "Faults that are enumerated or drawn. Enumerated: the undisturbed run is watched, then there is one run for "
       "each place at which a fault can strike. Random: arrivals of a Poisson process, drawn by the world's seed. Each "
       "run of the plan is judged by the scenario's checks; a red run is reported as an ordinary scenario."},
      {"quirks", written_as<Scenario>(quirks_of).when(has_quirks), list(quirk_word()).unset(), kBits,
       "What is done as another framework does it, and not as seeksim would: seeksim list quirks names them."},
      {"schedule",
       inside(schedule_keys(), &Scenario::world, &sim::WorldPlan::schedule).read_by_hand().unless_standard(),
       schedule_keys().shape(), kNoBit,
       "Which ready host or queue runs next. A red run prints it as a string for --schedule."},
      {"recovery", inside(recovery_keys(), &Scenario::train, &TrainPlan::recovery).read_by_hand(),
       recovery_keys().shape(), kNoBit, "What the runtime does when something breaks."},
      {"checkpoint",
       inside(checkpoint_keys(), &Scenario::train, &TrainPlan::checkpoint).read_by_hand().when(has_checkpoints),
       checkpoint_keys().shape(), kNoBit,
       "Checkpoints in files: written by all ranks, complete or absent whatever crashes when, and loadable at another "
       "world size, ZeRO stage, pipeline or tensor split with the same bits."},
      {"bug", written_as<Scenario>(bug_of).when(has_bug), text().unset(), kNoBit,
       "A mistake planted in the runtime, to see that a check notices: seeksim list bugs names them."},
      {"museum", inside(museum_keys(), &Scenario::museum).read_by_hand().when(is_exhibit), museum_keys().shape(),
       kNoBit, "Of a scenario in scenarios/museum/: the mistake of a real framework that is planted here."},
      {"checks", written_as<Scenario>(checks_of), list(either(check_text(), check_shape())).standard(Json::array()),
       kNoBit, "What must hold. `seeksim list checks` prints them."},
      {"expect", written_as<Scenario>(expect_of), either(text(), expect_keys().shape().keys(1, 1)).standard("pass"),
       kNoBit,
       "\"pass\", or what must go red: {\"check_fails\": NAME}, {\"stops\": REASON}. Exit status 0 if and only if it "
       "is met."},
      {"show", at(&Scenario::watched, &Watched::show).unless_standard(), list(choice(figure_names())).unset(), kNoBit,
       "Figures that a sweep's table shows of each row, instead of those that its checks are about. `seeksim list "
       "figures` describes them."},
      {"alarms", inside(alarm_keys(), &Scenario::watched, &Watched::alarms).when(has_alarms), alarm_keys().shape(),
       kNoBit,
       "Limits on the numbers that a monitoring board shows. The story, the report and --metrics tell what passes "
       "them; "
       "the check \"alarms\" judges it."},
      {"checkpointing",
       inside(checkpointing_keys(), &Scenario::train, &TrainPlan::layout, &Layout::checkpointing)
           .read_by_hand()
           .when(has_segments),
       checkpointing_keys().shape(), kNoBit,
       "Layers whose activations are computed again in backward, as segments of which only the input is kept. Never "
       "changes a bit."},
      {"grad_scaler",
       inside(grad_scaler_keys(), &Scenario::train, &TrainPlan::definition, &Definition::scaler)
           .read_by_hand()
           .when(has_torch_scaler),
       grad_scaler_keys().shape(), kBits, "torch's GradScaler in place of DeepSpeed's loss scaler, for fp16."},
      {"golden", inside(golden_keys(), &Scenario::golden).read_by_hand().when(has_golden), golden_keys().shape(),
       kNoBit, "What the golden leaves out, where a run is meant to miss it, and whose golden it is."},
      {"provenance", at(&Scenario::train, &TrainPlan::provenance, &ProvenancePlan::on).unless_standard(), flag(),
       kNoBit, "Scan what every operation writes, and name the first one that wrote a value that is not finite."},
      {"range_log", at(&Scenario::train, &TrainPlan::provenance, &ProvenancePlan::log_step).unless_standard(),
       integer(0).unset(), kNoBit,
       "The step whose ranges (minimum, maximum, mean, zeros, subnormals, overflows of what each operation writes) are "
       "logged."},
      {"numerics", in_words(kNumerics, &Scenario::train, &TrainPlan::numerics).read_by_hand(),
       choice(words_of(kNumerics)), kNoBit,
       "exact: the numeric contract. shapes: no values at all, only sizes, order and time, for worlds too large to "
       "compute; what asks for values is refused. fast: products and sums over ranks as vendors make them, each held "
       "against the contract's from the same operands (within_bounds); what asks for exact bits is refused."},
      {"tf32", at(&Scenario::train, &TrainPlan::tf32).read_by_hand().unless_standard(), flag(), kNoBit,
       "fast: operands of fp32 products are rounded to TF32, as tensor cores take them."},
      {"storage", in_words(kStorages, &Scenario::real_storage).unless_standard(), choice(words_of(kStorages)), kNoBit,
       "Simulated files, or real ones."},
      {"batch_arithmetic", in_words(kBatchArithmetics, &Scenario::by_samples).read_by_hand().unless_standard(),
       choice(words_of(kBatchArithmetics)), kNoBit,
       "deepspeed: train_batch_size = micro-batch * accumulation * ranks is demanded. by_samples: train_batch_size "
       "stays, is cut by samples over any number of ranks, and accumulation follows from the micro-batch size; so it "
       "is after an elastic change, and wherever a sweep varies the world."},
      {"strict_deepspeed", at(&Scenario::strict_deepspeed).unless_standard(), flag(), kNoBit,
       "Refuse what DeepSpeed 0.19.8 refuses, in its words, where seeksim can do it: ZeRO 2 and 3 with a pipeline, "
       "masters in 16 bits without ZeRO, a schedule's keys that only another one has."},
      {"sweep", by_hand, either(object(), list(object())), kNoBit,
       "Many runs of one idea: {\"key.path\": [values], ...}, combined as mode says; {\"range\": [first, last]} "
       "instead of values stands for all whole numbers from first to last; a number in a key path indexes a list, as "
       "in --set. A list of such objects: the rows of each, one after the other. Each row is a run of its own, and all "
       "must be as expected."},
      {"mode", by_hand, either(text(), mode_keys().shape().keys(1)).standard("product"), kNoBit,
       "How the axes of a sweep are combined: \"product\" (all combinations), \"pairwise\" (every two values of "
       "different axes meet in some row), {\"sample\": N} (N rows of the product, drawn by --seed)."},
      {"sweep_skip", by_hand, list(object().keys(1)), kNoBit,
       "Combinations that make no sense: a row that has all the values of an entry {\"key.path\": value, ...} is left "
       "out. An entry that no row has is an error."},
  };
  return keys;
}

const Json& scenario_schema() {
  static const Json schema = [] {
    Json head = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                 {"title", "seeksim scenario"},
                 {"description", "One idea: a training run, what breaks in it, and what must hold afterwards."}};
    head.update(scenario_keys().shape().schema());
    return head;
  }();
  return schema;
}

Json to_json(const Scenario& scenario) {
  // Values derived for the base (a micro-batch, a default that depends on the stage) would bind the rows.
  if (!scenario.sweep.empty()) return Json::parse(scenario.written);
  return scenario_keys().written(scenario);
}

}  // namespace seeksim::harness
