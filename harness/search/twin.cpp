#include "harness/search/twin.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "harness/input/problem.h"
#include "harness/scenario/variants.h"
#include "harness/simulate/simulate.h"
#include "runtime/layout/parameters.h"

namespace seeksim::harness {
namespace {

constexpr double kWorthIt = 4;      // times fewer parameters
constexpr std::int64_t kAfter = 3;  // steps that follow the last fault, so that a recovery has something to go on with

double parameters_of(const Scenario& scenario) {
  const runtime::Definition& d = scenario.train.definition;
  const runtime::Parameters parameters(d.model, d.optimizer.decay_all);
  double sum = 0;
  for (const runtime::ParameterInfo& p : parameters.all()) sum += double(p.size);
  return sum;
}

// What else is made smaller, where the scenario still loads with it: tensor ways need slabs of rows.
struct Further {
  std::int64_t heads = 0;  // of keys, for each way that divides them; 0: as many as before
  bool samples = false;    // one in a micro-batch
};
constexpr Further kFurther[] = {{2, true}, {4, true}, {8, true}, {0, true}, {0, false}};

void at_most(Json& object, const char* key, std::int64_t value) {
  if (object.contains(key) && object[key].is_number_integer())
    object[key] = std::min<std::int64_t>(object[key].get<std::int64_t>(), value);
}

// As many heads share keys as before.
void shrink_heads(Json& model, const Scenario& scenario, std::int64_t each) {
  const runtime::ModelPlan& plan = scenario.train.definition.model;
  const runtime::ParallelPlan& parallel = scenario.train.layout.parallel;
  const std::int64_t ways = std::int64_t(parallel.tensor) * parallel.context, keys = plan.key_heads();
  if (keys % ways != 0 || keys <= each * ways) return;
  model["heads"] = plan.heads / keys * each * ways;
  if (model.contains("kv_heads")) model["kv_heads"] = each * ways;
}

// The smallest model with as many layers, experts and parameters.
void shrink_model(Json& model) {
  at_most(model, "width", 2 * model.value("heads", 1));  // rotary positions turn pairs
  at_most(model, "context", 4);
  at_most(model, "vocab", 16);
  at_most(model, "ffn", 8);
  at_most(model, "dense_ffn", 8);
}

// As many micro-batches, with one sample each.
void shrink_batch(Json& document, const Scenario& scenario) {
  const std::int64_t samples = scenario.train.layout.micro_batch;
  if (samples <= 1 || !document.contains("deepspeed")) return;
  Json config = document["deepspeed"];
  for (const char* key : {"train_batch_size", "train_micro_batch_size_per_gpu"}) {
    if (!config.contains(key) || !config[key].is_number_integer()) continue;
    const std::int64_t whole = config[key].get<std::int64_t>();
    if (whole % samples != 0) return;
    config[key] = whole / samples;
  }
  document["deepspeed"] = config;
}

// Sizes in parameters: as many buckets and as many modules ahead as before.
void scale_sizes(Json& document, double share) {
  if (!document.contains("deepspeed") || !document["deepspeed"].contains("zero_optimization")) return;
  Json& zero = document["deepspeed"]["zero_optimization"];
  for (const char* key :
       {"reduce_bucket_size", "allgather_bucket_size", "stage3_prefetch_bucket_size", "stage3_max_live_parameters",
        "stage3_max_reuse_distance", "stage3_param_persistence_threshold"}) {
    if (!zero.is_object() || !zero.contains(key) || !zero[key].is_number()) continue;
    const double size = zero[key].get<double>();
    if (size > 0 && std::isfinite(size)) zero[key] = std::max<std::int64_t>(1, std::int64_t(size * share));
  }
}

// Up to some steps after the last fault that names one; where steps are saved, all.
void shorten(Json& document, const Scenario& scenario) {
  if (scenario.train.checkpoint.on() || !document.contains("steps")) return;
  std::int64_t last = 0;
  for (const faults::Rule& rule : scenario.faults) last = std::max(last, rule.when.step.value_or(0));
  document["steps"] = std::min(scenario.train.definition.steps, last + kAfter);
}

// By rule, in the scenario as it is written.
std::vector<bool> strikes(const Scenario& scenario, const ExploreOptions& options) {
  SimulationOptions simulation;
  simulation.wall_limit_s = options.wall_limit_s;
  const RunRecord run = Simulation(scenario, simulation).run();
  std::vector<bool> fired;
  for (const faults::RuleStatus& rule : run.faults) fired.push_back(rule.fired > 0);
  return fired;
}

// A message of a large operation need not be there in a small one.
bool misses_a_fault(const Scenario& twin, const Scenario& whole, const ExploreOptions& options) {
  const std::vector<bool> of_twin = strikes(twin, options);
  return std::find(of_twin.begin(), of_twin.end(), false) != of_twin.end() && of_twin != strikes(whole, options);
}

Json made_smaller(const Explored& explored, const Further& further) {
  Json document = explored.document;
  if (further.heads > 0) shrink_heads(document["model"], explored.scenario, further.heads);
  if (further.samples) shrink_batch(document, explored.scenario);
  shrink_model(document["model"]);
  Json data = document.value("data", Json::object());
  data.erase("text"), data.erase("tokens");
  data["synthetic"] = true;
  document["data"] = data;
  shorten(document, explored.scenario);
  return document;
}

// None: something in the scenario needs the sizes as they are.
std::optional<Explored> twin_by(Json document, const Explored& explored, const ExploreOptions& options) {
  try {
    // What a parameter is in the twin is known once it is loaded.
    const double before = parameters_of(explored.scenario);
    const double share = parameters_of(load_explored(document, explored.scenario.file, options).scenario) / before;
    if (share * kWorthIt > 1) return std::nullopt;
    scale_sizes(document, share);
    Explored twin = load_explored(document, explored.scenario.file, options);
    twin.scenario.checks = explored.scenario.checks;
    if (misses_a_fault(twin.scenario, explored.scenario, options)) return std::nullopt;
    return twin;
  } catch (const BadInput&) {
    return std::nullopt;
  }
}

}  // namespace

std::optional<Explored> twin_of(const Explored& explored, const ExploreOptions& options) {
  const runtime::Definition& definition = explored.scenario.train.definition;
  const Json& document = explored.document;
  const bool of_numbers = document.contains("model") && document["model"].is_object();
  if (!of_numbers || definition.model.own != nullptr || !definition.initial_weights.empty() ||
      is_of_shapes(explored.scenario))
    return std::nullopt;
  std::vector<Json> tried;
  for (const Further& further : kFurther) {
    const Json smaller = made_smaller(explored, further);
    if (std::find(tried.begin(), tried.end(), smaller) != tried.end()) continue;
    if (std::optional<Explored> twin = twin_by(smaller, explored, options)) return twin;
    tried.push_back(smaller);
  }
  return std::nullopt;
}

Json as_its_twin_failed(const Explored& explored, const Json& found) {
  Json document = found;
  for (const char* key : {"model", "data", "steps", "deepspeed"}) {
    document.erase(key);
    if (explored.document.contains(key)) document[key] = explored.document[key];
  }
  if (document.contains("schedule")) document["schedule"].erase("deviations");  // decisions of another run
  return document;
}

}  // namespace seeksim::harness
