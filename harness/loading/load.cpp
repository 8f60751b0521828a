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
#include "harness/loading/deepspeed/activation_checkpointing.h"
#include "harness/loading/deepspeed/deepspeed.h"
#include "harness/loading/deepspeed/offload.h"
#include "harness/loading/deepspeed/precision.h"
#include "harness/loading/estimate.h"
#include "harness/loading/fault_plan.h"
#include "harness/loading/faults.h"
#include "harness/loading/model_and_data.h"
#include "harness/loading/numerics.h"
#include "harness/loading/own.h"
#include "harness/loading/parallel.h"
#include "harness/loading/quirks.h"
#include "harness/loading/recovery.h"
#include "harness/loading/schedule_string.h"
#include "harness/loading/sweep.h"
#include "harness/verdict/checks.h"

namespace seeksim::harness {
namespace {

constexpr int kRanksMax = 65536;
constexpr int kWatchedRanksMax = 64;  // by the race detector, unless the scenario says otherwise

void check_schema(Findings& findings, const Document& document) {
  std::vector<SchemaProblem> problems = explain(scenario_schema(), document.json());
  // explain() knows what our schema uses; valijson knows all of draft-07. They agree unless the schema grew.
  if (problems.empty()) problems = validate(scenario_schema(), document.json());
  for (const SchemaProblem& problem : problems) findings.add(problem.pointer, problem.what, problem.next);
}

void read_name(const Reader& top, Scenario& scenario) {
  scenario.name = top.text("name");
  scenario.why = top.text("why");
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

// Returns the number of ranks, 0 when it cannot be told.
int read_world(const Reader& world, Scenario& scenario) {
  sim::WorldPlan& plan = scenario.world;
  const std::int64_t nodes = world.integer("nodes", 0), per_node = ranks_per_node(world, nodes);
  plan.network = world.text("network", "ib");
  plan.strict_collectives = world.text("collectives", "strict") == "strict";
  plan.noise = world.number("noise", plan.noise);
  const Reader device = world.child("device");
  const double tflops = device.number("tflops", plan.device.flops_per_ns / 1e3);
  plan.device.flops_per_ns = tflops * 1e3;
  plan.device.bytes_per_ns = device.number("bandwidth_gb_s", plan.device.bytes_per_ns);
  plan.device.launch_ns = runtime::TimeNs(device.number("launch_us", double(plan.device.launch_ns) / 1e3) * 1e3);
  const double gib = std::min(1e6, device.number("memory_gib", double(plan.device.capacity_bytes >> 30)));
  plan.device.capacity_bytes = std::size_t(gib * double(std::size_t(1) << 30));
  read_storage(world, plan);
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
  return plan.ranks();
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

void read_museum(const Reader& top, Scenario& scenario) {
  if (!top.has("museum")) return;
  const Reader museum = top.child("museum");
  Exhibit& exhibit = scenario.museum;
  exhibit = {museum.text("group"), museum.text("symptom"), museum.text("fix"), museum.text("source"), {}};
  const Json* without = museum.find("without");
  if (without == nullptr || !without->is_array()) return;
  for (const Json& set : *without) exhibit.without.push_back(set.is_string() ? set.get<std::string>() : "");
}

void read_checks(const Reader& top, int ranks, Scenario& scenario) {
  const Json* list = top.find("checks");
  if (list == nullptr || !list->is_array()) return;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Json& one = (*list)[i];
    if (!one.is_string() && !(one.is_object() && one.size() == 1)) continue;  // the schema said so
    CheckSpec spec;
    const CheckProblem wrong = read_check(one, ranks, spec);
    if (!wrong.what.empty()) top.findings().add(fmt::format("/checks/{}", i), wrong.what, wrong.next);
    if (wrong.what.empty()) scenario.checks.push_back(spec);
  }
}

void read_expect(const Reader& top, Scenario& scenario) {
  const Json* expect = top.find("expect");
  if (expect == nullptr) return;
  if (expect->is_string()) {
    if (*expect != "pass") {
      top.problem("expect", fmt::format("{} is not known", in_quotes(expect->get<std::string>())),
                  "Use \"pass\", {\"check_fails\": NAME} or {\"stops\": REASON}.");
    }
    return;
  }
  const Reader inner = top.child("expect");
  if (inner.has("stops")) scenario.expect = {Expect::What::stops, inner.text("stops")};
  if (!inner.has("check_fails")) return;
  const Json* wanted = inner.find("check_fails");
  std::vector<std::string> all;
  if (wanted->is_string()) all.push_back(wanted->get<std::string>());
  if (wanted->is_array()) {
    for (const Json& name : *wanted) all.push_back(name.is_string() ? name.get<std::string>() : "");
  }
  scenario.expect = {Expect::What::check_fails, fmt::format("{}", fmt::join(all, " "))};
  std::vector<std::string> named = {"finished",  "faults_fired",      "no_races",
                                    "no_poison", "collectives_match", "replicas_equal",
                                    "partition", "quirk_differs",     "one_history"};  // always judged
  if (top.text("numerics", "exact") == "fast") named.emplace_back("within_bounds");
  for (const CheckSpec& check : scenario.checks) named.insert(named.end(), {check.text(), check.name});
  for (const std::string& name : all) {
    if (std::find(named.begin(), named.end(), name) != named.end()) continue;
    inner.problem("check_fails", fmt::format("no check {} is made here", in_quotes(name)), did_you_mean(name, named));
  }
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
  scenario.golden_shared = golden.flag("shared", false);
  const Json* dropped = golden.find("drop_samples");
  if (dropped != nullptr && dropped->is_array() && !dropped->empty()) {
    golden.problem("drop_samples", "Not in this version", "Name whole global batches with drop_batches.");
  }
  const Json* batches = golden.find("drop_batches");
  if (batches != nullptr && batches->is_array()) {
    for (const Json& batch : *batches) {
      if (batch.is_number_integer()) scenario.golden_drop_batches.push_back(batch.get<std::int64_t>());
    }
  }
  const Json* skipped = golden.find("skip_steps");
  if (skipped == nullptr || !skipped->is_array()) return;
  for (const Json& step : *skipped) {
    if (!step.is_number_integer()) return;  // the schema said so
    if (step.get<std::int64_t>() >= scenario.train.definition.steps) {
      golden.problem("skip_steps", fmt::format("there is no step {}", step.get<std::int64_t>()),
                     fmt::format("Steps go from 0 to {}.", scenario.train.definition.steps - 1));
      return;
    }
    scenario.golden_skip_steps.push_back(step.get<std::int64_t>());
  }
}

void refuse_too_large(Findings& findings, const Scenario& scenario) {
  const Estimate need = estimate(scenario);
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

Scenario load(Document document, const LoadOptions& options) {
  Scenario scenario;
  scenario.file = document.file();
  const auto sweep = document.json().find("sweep");
  const bool world_varies = sweep != document.json().end() && varies_world(*sweep);
  if (options.row != nullptr) leave_the_sweep(document.json());
  std::vector<Problem> autos;
  refuse_auto(document, autos);
  Findings findings(document);
  for (Problem& problem : autos) findings.add(std::move(problem));
  check_schema(findings, document);
  const bool shaped = findings.empty();

  const Reader top(document.json(), "", findings);
  runtime::Definition& definition = scenario.train.definition;
  read_name(top, scenario);
  scenario.world.seed = read_seed(top, options);
  definition.training_seed = top.natural("training_seed", 1);
  definition.steps = top.integer("steps", definition.steps);
  definition.optimizer.decay_all = top.text("decay", "matrices") == "all";
  scenario.real_storage = top.text("storage", "sim") == "real";
  read_model(top.child("model"), scenario);
  read_data(top.child("data"), scenario);
  const int ranks = read_world(top.child("world"), scenario);
  // Spares share neither the batch nor the model.
  const std::int64_t members = ranks - top.child("recovery").integer("spares", 0);
  const int sharing = read_parallel(top.child("world"), members > 0 ? int(members) : ranks, scenario);  // the batch
  read_batch_arithmetic(top, world_varies, scenario);
  scenario.strict_deepspeed = top.flag("strict_deepspeed", false);
  read_quirks(top, scenario);
  read_deepspeed(top.child("deepspeed"), sharing, scenario);
  read_precision(top.child("deepspeed"), top, scenario);
  read_checkpointing(top, scenario);
  check_given_batch(top.child("data"), scenario);
  read_lr_table(top, scenario);
  scenario.faults = read_faults(top, ranks > 0 ? node_of(scenario.world) : std::vector<int>());
  read_own_faults(top, scenario);
  read_recovery(top.child("recovery"), scenario);
  read_checkpoint(top.child("checkpoint"), scenario);
  read_fault_plan(top, scenario);
  read_schedule(top, scenario);
  read_bug(top, scenario);
  read_museum(top, scenario);
  scenario.train.provenance.on = top.flag("provenance", false);
  scenario.train.provenance.log_step = top.integer("range_log", -1);
  read_checks(top, ranks, scenario);
  check_quirks(top, scenario);
  read_expect(top, scenario);
  read_golden(top.child("golden"), scenario);
  read_numerics(top, scenario);
  check_parallel(top, scenario);
  check_recovery(top, scenario);
  check_own_family(top, scenario);
  scenario.sweep = read_sweep(top);
  if (!scenario.sweep.empty()) scenario.written = written_base(document.json(), scenario, options);
  if (shaped && findings.empty()) refuse_too_large(findings, scenario);
  if (shaped && findings.empty()) read_init(top, options.init, scenario);
  if (!findings.empty()) throw BadInput(findings.take());
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
