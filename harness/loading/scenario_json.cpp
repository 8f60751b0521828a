// A scenario written back: loading what this gives yields the same values, so that shrinking and sweeps edit values and
// never text.
#include <nlohmann/json.hpp>

#include "harness/loading/deepspeed/activation_checkpointing.h"
#include "harness/loading/deepspeed/deepspeed.h"
#include "harness/loading/deepspeed/offload.h"
#include "harness/loading/deepspeed/precision.h"
#include "harness/loading/fault_plan.h"
#include "harness/loading/faults.h"
#include "harness/loading/load.h"
#include "harness/loading/parallel.h"
#include "harness/loading/recovery.h"
#include "harness/loading/schedule_string.h"
#include "harness/scenario/variants.h"
#include "harness/scenario/written.h"

namespace seeksim::harness {
namespace {

Json model_json(const Scenario& scenario) {
  const runtime::ModelPlan& m = scenario.train.definition.model;
  Json model = {{"family", m.family},   {"layers", m.layers}, {"width", m.width}, {"heads", m.heads},
                {"context", m.context}, {"vocab", m.vocab},   {"tied", m.tied}};
  if (m.llama()) model.update({{"kv_heads", m.key_heads()}, {"ffn", m.hidden()}, {"rope_theta", m.rope_theta}});
  if (!scenario.init_file.empty()) model["init"] = scenario.init_file;
  if (m.logit_scale) model["logit_scale"] = true;
  if (!m.frozen.empty()) model["frozen"] = m.frozen;
  model["init_stddev"] = m.init_stddev;
  model["norm_eps"] = m.norm_eps;
  if (m.dropout.any()) model["dropout"] = dropout_json(m.dropout);
  return model;
}

Json world_json(const Scenario& scenario) {
  const sim::WorldPlan& w = scenario.world;
  Json world = {{"nodes", w.nodes},
                {"ranks_per_node", w.ranks_per_node},
                {"network", w.network},
                {"collectives", w.strict_collectives ? "strict" : "nccl"},
                {"noise", w.noise},
                {"race_detector", w.race_detector},
                {"device",
                 {{"tflops", w.device.flops_per_ns / 1e3},
                  {"bandwidth_gb_s", w.device.bytes_per_ns},
                  {"launch_us", double(w.device.launch_ns) / 1e3},
                  {"memory_gib", double(w.device.capacity_bytes) / double(std::size_t(1) << 30)}}}};
  write_storage(w, world);
  write_parallel(scenario, world);
  return world;
}

Json expect_json(const Expect& expect) {
  if (expect.what == Expect::What::check_fails) {
    const std::vector<std::string> names = expect.names();
    return {{"check_fails", names.size() == 1 ? Json(names.front()) : Json(names)}};
  }
  if (expect.what == Expect::What::stops) return {{"stops", expect.argument}};
  return "pass";
}

}  // namespace

Json to_json(const Scenario& scenario) {
  // Values derived for the base (a micro-batch, a default that depends on the stage) would bind the rows.
  if (!scenario.sweep.empty()) return Json::parse(scenario.written);
  const runtime::Definition& d = scenario.train.definition;
  Json json;
  json["name"] = scenario.name;
  if (!scenario.why.empty()) json["why"] = scenario.why;
  json["seed"] = scenario.world.seed;
  json["training_seed"] = d.training_seed;
  json["model"] = model_json(scenario);
  json["data"] = data_json(scenario);
  json["world"] = world_json(scenario);
  json["deepspeed"] = deepspeed_json(scenario);
  json["decay"] = d.optimizer.decay_all ? "all" : "matrices";
  if (d.scheduler.type == "table") json["lr_table"] = d.scheduler.table;
  json["steps"] = d.steps;
  json["faults"] = Json::array();
  for (const faults::Rule& rule : scenario.faults) json["faults"].push_back(to_json(rule));
  for (const OwnFaultSpec& own : scenario.own_faults) {
    json["own_faults"].push_back({{"name", own.name}});
    json["own_faults"].back().update(Json::parse(own.parameters));
  }
  if (scenario.planned.any()) json["fault_plan"] = fault_plan_json(scenario.planned);
  if (d.quirks.any()) json["quirks"] = quirk_names(d.quirks);
  if (scenario.world.schedule != sim::Schedule{}) json["schedule"] = schedule_json(scenario.world.schedule);
  json["recovery"] = recovery_json(scenario.train.recovery);
  if (scenario.train.checkpoint.on()) json["checkpoint"] = checkpoint_json(scenario.train.checkpoint);
  if (!scenario.train.bug.is(runtime::Bug::none)) json["bug"] = runtime::text(scenario.train.bug);
  if (const Exhibit& exhibit = scenario.museum; !exhibit.group.empty()) {
    json["museum"] = {
        {"group", exhibit.group}, {"symptom", exhibit.symptom}, {"fix", exhibit.fix}, {"source", exhibit.source}};
    if (!exhibit.without.empty()) json["museum"]["without"] = exhibit.without;
  }
  json["checks"] = Json::array();
  for (const CheckSpec& check : scenario.checks) json["checks"].push_back(check.text());
  json["expect"] = expect_json(scenario.expect);
  write_checkpointing(scenario.train.layout.checkpointing, json);
  write_grad_scaler(scenario, json);
  if (!scenario.golden_skip_steps.empty()) json["golden"]["skip_steps"] = scenario.golden_skip_steps;
  if (!scenario.golden_drop_batches.empty()) json["golden"]["drop_batches"] = scenario.golden_drop_batches;
  if (scenario.train.provenance.on) json["provenance"] = true;
  if (scenario.train.provenance.log_step >= 0) json["range_log"] = scenario.train.provenance.log_step;
  json["numerics"] = is_of_shapes(scenario) ? "shapes" : is_fast(scenario) ? "fast" : "exact";
  if (scenario.train.tf32) json["tf32"] = true;
  if (scenario.real_storage) json["storage"] = "real";
  if (scenario.by_samples) json["batch_arithmetic"] = "by_samples";
  if (scenario.strict_deepspeed) json["strict_deepspeed"] = true;
  if (scenario.golden_shared) json["golden"]["shared"] = true;
  return json;
}

}  // namespace seeksim::harness
