// Loading: document -> schema -> meaning. Every stage reports all it finds, and one that cannot judge a value leaves
// it.
#include "harness/loading/load.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "harness/input/files.h"
#include "harness/input/reader.h"
#include "harness/input/schema.h"
#include "harness/loading/checks.h"
#include "harness/loading/ddp.h"
#include "harness/loading/deepspeed/activation_checkpointing.h"
#include "harness/loading/deepspeed/deepspeed.h"
#include "harness/loading/deepspeed/forms.h"
#include "harness/loading/deepspeed/precision.h"
#include "harness/loading/estimate.h"
#include "harness/loading/extensions.h"
#include "harness/loading/fault_plan.h"
#include "harness/loading/faults.h"
#include "harness/loading/features/changes.h"
#include "harness/loading/features/compression.h"
#include "harness/loading/features/context.h"
#include "harness/loading/features/evaluation.h"
#include "harness/loading/features/experts.h"
#include "harness/loading/features/fp8.h"
#include "harness/loading/features/hugging_face.h"
#include "harness/loading/features/local_sgd.h"
#include "harness/loading/features/optimizer_state.h"
#include "harness/loading/features/quantised.h"
#include "harness/loading/features/quirks.h"
#include "harness/loading/features/samples.h"
#include "harness/loading/features/shard_groups.h"
#include "harness/loading/features/staleness.h"
#include "harness/loading/fsdp_form.h"
#include "harness/loading/model_and_data.h"
#include "harness/loading/numerics.h"
#include "harness/loading/parallel.h"
#include "harness/loading/recovery.h"
#include "harness/loading/rules.h"
#include "harness/loading/scenario_json.h"
#include "harness/loading/schedule.h"
#include "harness/loading/schedule_string.h"
#include "harness/loading/sweep.h"
#include "harness/loading/world.h"

namespace seeksim::harness {
namespace {

void check_schema(Findings& findings, const Document& document) {
  for (const SchemaProblem& problem : explain(scenario_schema(), document.json()))
    findings.add(problem.pointer, problem.what, problem.next);
}

void check_name(const Reader& top, const Scenario& scenario) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  };
  if (scenario.name.empty()) return;
  if (!std::all_of(scenario.name.begin(), scenario.name.end(), fits) || scenario.name[0] == '.') {
    top.problem("name", fmt::format("{} cannot name files", in_quotes(scenario.name)),
                "Use letters, digits, '_', '-' and '.'.");
  }
}

// Instead of a DeepSpeed schedule: the rates themselves.
void read_lr_table(const Reader& top, Scenario& scenario) {
  const Json* table = top.find("lr_table");
  if (table == nullptr || !table->is_array()) return;
  runtime::SchedulerPlan& plan = scenario.train.definition.scheduler;
  if (!plan.type.empty()) top.problem("lr_table", "there is a deepspeed.scheduler too", "Keep one of the two.");
  plan = {};
  plan.type = "table";
  for (const Json& rate : *table) {
    if (rate.is_number()) plan.table.push_back(rate.get<double>());
  }
}

void read_bug(const Reader& top, Scenario& scenario) {
  const std::string text = top.text("bug");
  if (text.empty() || runtime::parse(text, scenario.train.bug)) return;
  const std::vector<std::string> known = runtime::bug_names();
  const std::string nearest = did_you_mean(text, known);
  top.problem("bug", fmt::format("there is no bug {}", in_quotes(text)),
              fmt::format("{}{}Known are: {}.", nearest, nearest.empty() ? "" : " ", fmt::join(known, ", ")));
}

// Made once to see that they can be: a wrong parameter is a message, not a stop in the middle.
void read_own_faults(const Reader& top, Scenario& scenario) {
  const Json* list = top.find("own_faults");
  if (list == nullptr || !list->is_array()) return;
  for (const Json& one : *list) {
    if (!one.is_object() || !one.contains("name") || !one["name"].is_string()) continue;  // the schema said so
    Json parameters = one;
    parameters.erase("name");
    OwnFaultSpec spec{one["name"], parameters.dump()};
    try {
      make_own_fault(spec, 0);
    } catch (const std::invalid_argument& wrong) {
      top.findings().add(fmt::format("/own_faults/{}", scenario.own_faults.size()), wrong.what(), "");
    }
    scenario.own_faults.push_back(std::move(spec));
  }
}

void check_own_family(const Reader& top, const Scenario& scenario) {
  const auto& own = scenario.train.definition.model.own;
  if (own == nullptr) return;
  if (const std::string why = own->problem(scenario.train); !why.empty()) top.findings().add("/model/family", why, "");
}

void read_golden(const Reader& golden, Scenario& scenario) {
  golden_keys().read(golden, scenario.golden);
  const Json* dropped = golden.find("drop_samples");
  if (dropped != nullptr && dropped->is_array() && !dropped->empty()) {
    golden.problem("drop_samples", "Not supported", "Name whole global batches with drop_batches.");
  }
  check_undone(golden, scenario);
  const Json* skipped = golden.find("skip_steps");
  if (skipped == nullptr || !skipped->is_array()) return;
  for (const Json& step : *skipped) {
    if (!step.is_number_integer()) return;  // the schema said so
    if (step.get<std::int64_t>() >= scenario.train.definition.steps) {
      golden.problem("skip_steps", fmt::format("there is no step {}", step.get<std::int64_t>()),
                     fmt::format("Steps go from 0 to {}.", scenario.train.definition.steps - 1));
      return;
    }
    scenario.golden.skip_steps.push_back(step.get<std::int64_t>());
  }
}

void refuse_too_large(Findings& findings, const Scenario& scenario) {
  constexpr double kAlwaysFree = 1 << 25;  // what is free takes longer to ask than a small scenario to load
  const Estimate need = estimate(scenario);
  if (need.bytes <= kAlwaysFree) return;
  const double free = double(host_memory_free());
  if (free == 0 || need.bytes <= 0.9 * free) return;
  findings.add("/world",
               fmt::format("about {} of memory are needed ({} ranks x {}, a model of {} parameters) and {} are free",
                           bytes_text(need.bytes), scenario.world.ranks(), bytes_text(need.bytes_per_rank),
                           count_text(need.parameters), bytes_text(free)),
               "Use fewer world.nodes, a smaller model.width, model.layers or model.vocab, or smaller micro-batches.");
}

// A row is a scenario of its own: what it needs to know of its sweep is whether the batch is cut by samples.
void leave_the_sweep(Json& document) {
  for (const char* key : {"sweep", "mode", "sweep_skip"}) document.erase(key);
}

void read_batch_arithmetic(const Reader& top, bool world_varies, Scenario& scenario) {
  scenario.by_samples = world_varies || top.text("batch_arithmetic", "deepspeed") == "by_samples";
  if (!scenario.by_samples) return;
  scenario.notes.push_back(
      fmt::format("{}train_batch_size stays and is cut by samples; accumulation follows from the micro-batch size",
                  world_varies ? "the sweep varies the world: " : ""));
}

std::vector<std::string> all_sets(const LoadOptions& options) {
  std::vector<std::string> sets = options.sets;
  if (options.row == nullptr) return sets;
  for (std::string& set : sets_of(*options.row)) sets.push_back(std::move(set));
  return sets;
}

// What was written, and what was given beside it.
std::string written_base(Json document, const Scenario& scenario, const LoadOptions& options) {
  document["seed"] = scenario.world.seed;
  if (!options.init.empty()) document["model"]["init"] = options.init;
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// --seed, but for a row that has a seed of its own.
std::uint64_t read_seed(const Reader& top, const LoadOptions& options) {
  const auto is_seed = [](const auto& setting) { return setting.first == "seed"; };
  const bool own = options.row != nullptr && std::any_of(options.row->begin(), options.row->end(), is_seed);
  return options.seed && !own ? *options.seed : top.natural("seed", 1);
}

// A script of the user's is nothing that seeksim trains by itself.
void refuse_torch(const Document& document) {
  if (!document.json().contains("torch")) return;
  const bool both = document.json().contains("model");
  throw BadInput(
      document.place("/torch"),
      both ? "\"torch\" and \"model\": the script brings the model" : "this scenario is for a PyTorch script",
      both ? "Keep one of the two."
           : fmt::format("Run it with its script: seeksim torch run {} -- train.py", document.file()));
}

// Algorithms and numbers beside the ordinary ones.
void read_algorithms(const Reader& top, Scenario& scenario) {
  read_compression(top, scenario);
  read_lessons(top, scenario);
  read_local_sgd(top, scenario);
  read_staleness(top, scenario);
  read_optimizer_state(top, scenario);
  read_fp8(top, scenario);
  read_ddp(top, scenario);
}

// What is right by itself, and may not go with the rest.
void check_together(const Reader& top, Scenario& scenario) {
  settle_routing(top, scenario);
  settle_counting(top, scenario);
  check_parallel(top, scenario);
  check_experts(top, scenario);
  check_context(top, scenario);
  check_shard_groups(top, scenario);
  check_quantised(top, scenario);
  read_quantised_gradients(top, scenario);
  check_rules(top, scenario);
  check_tokens(top, scenario);
  check_recovery(top, scenario);
  check_own_family(top, scenario);
}

Scenario load(Document document, const LoadOptions& options) {
  refuse_torch(document);
  Scenario scenario;
  scenario.file = document.file();
  if (!document.note().empty()) scenario.notes.push_back(document.note());
  const auto sweep = document.json().find("sweep");
  const bool world_varies = sweep != document.json().end() && varies_world(*sweep);
  if (options.row != nullptr) leave_the_sweep(document.json());
  // Rows of a sweep bring it to form again, with what they set in it.
  const Json in_fsdp = document.json().contains("fsdp") ? document.json() : Json();
  const Forms fsdp = bring_fsdp_to_form(document);
  Forms forms = bring_to_form(document);
  forms.written.insert(fsdp.written.begin(), fsdp.written.end());
  forms.problems.insert(forms.problems.end(), fsdp.problems.begin(), fsdp.problems.end());
  scenario.notes.insert(scenario.notes.end(), forms.notes.begin(), forms.notes.end());
  ModelForm model_form =
      bring_model_to_form(document, document.json().value("numerics", Json()) == "shapes", model_key_names());
  for (std::string& note : model_form.notes) scenario.notes.push_back(std::move(note));
  Findings findings(document);
  for (Problem& problem : model_form.problems) findings.add(std::move(problem));
  for (Problem& problem : forms.problems) findings.add(std::move(problem));
  check_schema(findings, document);
  const bool shaped = findings.empty();

  const Reader top(document.json(), "", findings);
  scenario_keys().read(top, scenario);
  check_name(top, scenario);
  scenario.world.seed = read_seed(top, options);
  read_model(top.child("model"), scenario);
  read_data(top.child("data"), scenario);
  const int ranks = read_world(top.child("world"), scenario);
  // Spares share neither the batch nor the model.
  const std::int64_t members = ranks - top.child("recovery").integer("spares", 0);
  const int sharing = read_parallel(top.child("world"), members > 0 ? int(members) : ranks, scenario);  // the batch
  read_batch_arithmetic(top, world_varies, scenario);
  read_quirks(top, scenario);
  read_deepspeed(top.child("deepspeed"), sharing, scenario);
  read_precision(top.child("deepspeed"), top, scenario);
  read_checkpointing(top, scenario);
  check_given_batch(top.child("data"), scenario);
  read_sampler(top, scenario);
  read_evaluation(top, scenario);
  read_lr_table(top, scenario);
  scenario.faults = read_faults(top, ranks > 0 ? node_of(scenario.world) : std::vector<int>());
  read_own_faults(top, scenario);
  read_recovery(top.child("recovery"), scenario);
  read_checkpoint(top.child("checkpoint"), scenario);
  read_fault_plan(top, scenario);
  read_schedule(top, scenario);
  read_bug(top, scenario);
  museum_keys().read(top.child("museum"), scenario.museum);
  read_checks(top, ranks, scenario);
  check_quirks(top, scenario);
  read_expect(top, scenario);
  read_changes(top, scenario);
  read_golden(top.child("golden"), scenario);
  read_numerics(top, scenario);
  read_algorithms(top, scenario);
  settle_steady(top, scenario);
  check_together(top, scenario);
  scenario.sweep = read_sweep(top);
  if (!scenario.sweep.empty())
    scenario.written = written_base(in_fsdp.is_null() ? document.json() : in_fsdp, scenario, options);
  if (shaped && findings.empty()) refuse_too_large(findings, scenario);
  if (shaped && findings.empty()) read_init(top, options.init, scenario);
  if (!findings.empty()) throw BadInput(as_written(findings.take(), forms, document));
  scenario.identity = identity_of(scenario);
  if (!options.schedule.empty() && scenario.sweep.empty()) apply_schedule(options.schedule, scenario);
  return scenario;
}

}  // namespace

Scenario load_scenario(const std::string& file, const LoadOptions& options) {
  return load(Document::load(file, all_sets(options)), options);
}

Scenario load_scenario_text(std::string_view text, const std::string& file, const LoadOptions& options) {
  return load(Document::from_text(text, file, all_sets(options)), options);
}

}  // namespace seeksim::harness
