#include "harness/search/planner.h"

#include <fmt/format.h>

#include <limits>

#include "harness/input/problem.h"
#include "harness/oracles/flops.h"
#include "harness/simulate/simulate.h"

namespace seeksim::harness {
namespace {

RunRecord run_steps(const Scenario& scenario, std::int64_t steps) {
  Scenario dry = scenario;
  dry.train.definition.steps = steps;
  dry.train.numerics = runtime::Numerics::shapes;
  dry.train.bug = {};  // memory is planned for the program as it should be
  dry.world.race_detector = false;
  dry.world.device.capacity_bytes = std::numeric_limits<std::size_t>::max() / 2;
  dry.world.device.host_capacity_bytes = dry.world.device.pinned_capacity_bytes = dry.world.device.capacity_bytes;
  RunRecord run = Simulation(dry, {}).run();
  for (const RankRecord& rank : run.ranks) {
    if (rank.how != RankRecord::How::finished)
      throw BadInput(scenario.file, fmt::format("a dry run {}: {}", name(rank.how), rank.why),
                     "Leave out of the scenario what stops it.");
  }
  return run;
}

// Each number a layout is made of, next to the one that is given.
struct Layout {
  int stage;
  int micro_batch;
  int accumulation;
};

std::string words(const Layout& layout) {
  return fmt::format("stage {}, micro-batch {} x {}", layout.stage, layout.micro_batch, layout.accumulation);
}

Json patch_of(const Layout& layout, const Layout& given) {
  Json patch = Json::object();
  if (layout.micro_batch != given.micro_batch) {
    patch["train_micro_batch_size_per_gpu"] = layout.micro_batch;
    patch["gradient_accumulation_steps"] = layout.accumulation;
  }
  if (layout.stage != given.stage) patch["zero_optimization"]["stage"] = layout.stage;
  return patch;
}

// The given micro-batch and its divisors below, each at most half of the one before; multiples of what a router counts
// together.
std::vector<Layout> micro_batches(const Layout& given, int together) {
  std::vector<Layout> all = {given};
  const int samples = given.micro_batch * given.accumulation;
  for (int micro = given.micro_batch - 1; micro >= 1; --micro) {
    if (samples % micro == 0 && micro % together == 0 && 2 * micro <= all.back().micro_batch)
      all.push_back({given.stage, micro, samples / micro});
  }
  return all;
}

Json optimizer_on_host(const Scenario& given) {
  if (given.train.layout.offload.optimizer.home != runtime::Home::device) return Json::object();
  return {{"zero_optimization", {{"offload_optimizer", {{"device", "cpu"}, {"pin_memory", true}}}}}};
}

Json every_layer_again(const Scenario& given) {
  if (given.train.layout.checkpointing.any()) return Json::object();
  return {{"activation_checkpointing", {{"number_checkpoints", given.train.definition.model.layers}}}};
}

Json parameters_on_host(const Scenario& given) {
  if (given.train.layout.offload.parameters.home != runtime::Home::device) return Json::object();
  return {{"zero_optimization", {{"offload_param", {{"device", "cpu"}, {"pin_memory", true}}}}}};
}

Json optimizer_in_files(const Scenario& given) {
  if (given.train.layout.offload.optimizer.home == runtime::Home::nvme) return Json::object();
  return {{"zero_optimization", {{"offload_optimizer", {{"device", "nvme"}, {"nvme_path", "nvme"}}}}}};
}

void flatten(const Json& patch, const std::string& path, std::vector<std::string>& sets) {
  if (!patch.is_object()) {
    sets.push_back(path + '=' + patch.dump());
    return;
  }
  for (const auto& [key, value] : patch.items()) flatten(value, path + '.' + key, sets);
}

}  // namespace

DryRun dry_run(const Scenario& scenario) {
  const RunRecord one = run_steps(scenario, 1), two = run_steps(scenario, 2);
  DryRun dry;
  dry.peak_bytes = two.memory.peak;
  dry.at_peak = two.memory.at_peak;
  dry.host_peak_bytes = two.memory.host_peak;
  dry.step_ns = two.steps.at(1).committed_ns - two.steps.at(0).committed_ns;
  const double possible = double(dry.step_ns) * scenario.world.device.flops_per_ns * scenario.world.ranks();
  if (possible > 0) dry.mfu = flops_of_step(scenario.train.definition) / possible;
  for (std::size_t kind = 0; kind < two.traffic.comm.size(); ++kind)
    dry.sent_bytes += two.traffic.comm[kind].bytes_sent_per_rank_max - one.traffic.comm[kind].bytes_sent_per_rank_max;
  return dry;
}

const std::vector<Measure>& measures() {
  static const std::vector<Measure> table = {
      {"activations again", every_layer_again},
      {"optimizer on CPU", optimizer_on_host},
      {"parameters on CPU", parameters_on_host},
      {"optimizer on NVMe", optimizer_in_files},
  };
  return table;
}

std::vector<Candidate> candidates(const Scenario& scenario) {
  const Layout given{scenario.train.layout.zero.stage, scenario.train.layout.micro_batch, scenario.accumulation};
  std::vector<Candidate> all = {{"as given: " + words(given), Json::object()}};
  Layout at = given;
  const bool compresses = scenario.train.definition.compression.on();  // which only stages 0 and 1 without offload do
  const bool apart = scenario.train.definition.local_sgd.on();         // which only stage 0 does
  const bool waits = scenario.train.definition.staleness.on();         // which only stages 0 and 1 do
  const runtime::CompressionPlan& how = scenario.train.definition.compression;
  const bool replicated = apart || how.of_momentum() || how.in_factors();
  while (at.stage < (replicated ? 0 : compresses || waits ? 1 : 3)) {
    ++at.stage;
    all.push_back({words(at), patch_of(at, given)});
  }
  const bool on_device = compresses || apart || scenario.train.layout.parallel.shard_group > 0;  // is all that they do
  const std::vector<Layout> micro = micro_batches(at, scenario.train.definition.model.experts.samples);
  for (std::size_t i = 1; i < micro.size(); ++i) all.push_back({words(micro[i]), patch_of(micro[i], given)});
  Json measures_so_far = Json::object();
  std::string names;
  for (const Measure& measure : measures()) {
    const Json more = measure.patch(scenario);
    if (more.empty() || (on_device && more.contains("zero_optimization"))) continue;
    measures_so_far.merge_patch(more);
    names += std::string(", ") + measure.name;
    for (const Layout& layout : micro) {
      Json patch = patch_of(layout, given);
      patch.merge_patch(measures_so_far);
      all.push_back({words(layout) + names, std::move(patch)});
    }
  }
  return all;
}

std::vector<std::string> sets_of_patch(const Json& patch) {
  std::vector<std::string> sets;
  for (const auto& [key, value] : patch.items()) flatten(value, "deepspeed." + key, sets);
  return sets;
}

double PlanRow::bytes(LedgerOf ledger) const {
  switch (ledger) {
    case LedgerOf::seeksim:
      return double(run->peak_bytes);
    case LedgerOf::deepspeed:
      return sum_of(by_deepspeed);
    case LedgerOf::platform:
      return by_platform.empty() ? std::numeric_limits<double>::infinity() : sum_of(by_platform);
  }
  return 0;
}

Plan make_plan(const Scenario& given, const LoadPatched& load, std::size_t memory_bytes, const PlanOptions& options) {
  Plan plan;
  plan.platform = options.platform != nullptr;
  for (Candidate& candidate : candidates(given)) {
    PlanRow row{std::move(candidate), std::nullopt, {}, {}, "", false};
    try {
      const Scenario scenario = load(row.candidate.patch);
      row.by_deepspeed = deepspeed_ledger(scenario);
      if (options.platform) row.by_platform = options.platform(scenario);
      row.run = dry_run(scenario);
      row.fits = row.bytes(options.ledger) <= double(memory_bytes);
    } catch (const BadInput& bad) {  // a combination that DeepSpeed refuses
      row.refused = bad.problems().front().what;
    }
    plan.rows.push_back(std::move(row));
    const int here = int(plan.rows.size()) - 1;
    const PlanRow& made = plan.rows.back();
    if (made.fits && plan.recommended < 0) plan.recommended = here;
    const auto bytes_of_row = [&](int i) { return plan.rows[std::size_t(i)].bytes(options.ledger); };
    if (made.run && (plan.closest < 0 || bytes_of_row(here) < bytes_of_row(plan.closest))) plan.closest = here;
    if (plan.recommended >= 0 && !options.all) break;
  }
  return plan;
}

}  // namespace seeksim::harness
