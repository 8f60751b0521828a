#include <cmath>

#include <nlohmann/json.hpp>

#include "harness/input/json_text.h"
#include "harness/loading/features/fast.h"
#include "harness/loading/schedule.h"
#include "harness/loading/schedule_string.h"
#include "harness/oracles/alarms.h"
#include "harness/oracles/fast_bounds.h"
#include "harness/oracles/flops.h"
#include "harness/oracles/formulas.h"
#include "harness/oracles/goodput.h"
#include "harness/oracles/inside_a_step.h"
#include "harness/oracles/numbers.h"
#include "harness/oracles/reruns.h"
#include "harness/record/causes.h"
#include "harness/report/bundle.h"
#include "harness/report/report.h"
#include "harness/scenario/variants.h"
#include "harness/verdict/figures.h"
#include "harness/verdict/stop_reason.h"
#include "runtime/decide/memory_ladder.h"
#include "runtime/rules/bugs.h"
#include "runtime/rules/quirks.h"
#include "runtime/seams/time.h"

namespace seeksim::harness {
namespace {

using runtime::seconds;

Json time_or_null(TimeNs ns) { return ns < 0 ? Json(nullptr) : Json(seconds(ns)); }

Json steps_json(const RunRecord& run, Json& report) {
  for (const char* key : {"loss", "grad_norm", "lr", "loss_scale", "skipped", "committed_s"})
    report[key] = Json::array();
  for (const runtime::StepRecord& step : run.steps) {
    report["loss"].push_back(run.has_values ? number_or_word(double(step.loss)) : Json(nullptr));
    report["grad_norm"].push_back(run.has_values ? number_or_word(double(step.grad_norm)) : Json(nullptr));
    report["lr"].push_back(number_or_word(step.lr));
    report["loss_scale"].push_back(number_or_word(step.loss_scale));
    report["skipped"].push_back(step.skipped);
    report["committed_s"].push_back(seconds(step.committed_ns));
  }
  return report;
}

void numbers_json(const RunRecord& run, Json& report) {
  const Birth* first = first_birth(run);
  report["born"] = first == nullptr ? Json(nullptr) : birth_json(*first);
  if (!run.numbers.ranges.empty()) {
    report["ranges"] = Json::array();
    report["ranges_left_out"] = run.ranges_left_out();
  }
  for (const RangeLog& log : run.numbers.ranges) {
    for (const runtime::RangeLogEntry& entry : log.entries) {
      Json one = sight_json(entry.sight);
      one["rank"] = log.rank;
      one["step"] = log.step;
      one["micro_batch"] = entry.op.micro_batch;
      one["layer"] = entry.op.layer;
      one["phase"] = std::string(name(entry.op.phase));
      one["tensor"] = entry.op.tensor;
      report["ranges"].push_back(std::move(one));
    }
  }
  if (!run.numbers.stagnation.empty()) report["stagnation"] = Json::array();
  for (const kernels::Stagnation& step : run.numbers.stagnation)
    report["stagnation"].push_back({{"changes", step.changes}, {"lost", step.lost}});
}

// What became of a fault: the first recovery that is put down to it, as times since it struck.
Json times_of(const RunRecord& run, const std::vector<Cause>& causes, int fault) {
  for (std::size_t i = 0; i < causes.size(); ++i) {
    if (causes[i].fault != fault) continue;
    const Recovery& r = run.detection.recoveries[i];
    const TimeNs injected = causes[i].injected_ns;
    const auto since = [injected](TimeNs at) { return at < 0 ? Json(nullptr) : Json(seconds(at - injected)); };
    return {{"epoch", r.epoch},
            {"detected_after_s", since(r.detected_ns)},
            {"agreed_after_s", since(r.agreed_ns)},
            {"rebuilt_after_s", since(r.rebuilt_ns)},
            {"first_step_after_s", since(r.resumed_ns)},
            {"steps_lost", r.steps_lost}};
  }
  return nullptr;
}

Json stragglers_json(const RunRecord& run) {
  Json scores = Json::array(), found = Json::array();
  for (const auto& [rank, score] : run.detection.scores)
    scores.push_back({{"rank", rank}, {"mean", score.mean()}, {"least", score.least}, {"steps", score.steps}});
  for (const runtime::StragglerRecord& one : run.detection.stragglers) {
    found.push_back({{"rank", one.rank},
                     {"step", one.step},
                     {"score", one.score},
                     {"steps_in_a_row", one.steps},
                     {"leaves", one.leaves}});
  }
  return {{"scores", scores}, {"found", found}};
}

Json divergences_json(const RunRecord& run) {
  Json list = Json::array();
  for (const runtime::DivergenceRecord& one : run.detection.divergences) {
    list.push_back({{"step", one.step},
                    {"what", one.what},
                    {"value", number_or_word(one.value)},
                    {"mean", number_or_word(one.mean)}});
    if (one.undoes_change >= 0) list.back()["undoes_change"] = one.undoes_change;
  }
  return list;
}

Json faults_json(const RunRecord& run, const std::vector<Cause>& causes) {
  Json list = Json::array();
  for (const faults::RuleStatus& rule : run.faults) {
    Json one = {{"kind", std::string(name(rule.kind))}, {"fired", rule.fired}};
    one["recovery"] = times_of(run, causes, int(&rule - run.faults.data()));
    one["first_fired_s"] = time_or_null(rule.first_fired_ns);
    one["ranks"] = rule.ranks;
    one["rule"] = rule.text;
    list.push_back(std::move(one));
  }
  return list;
}

// Ranks as numbers, links as "link:1->0".
Json culprits_json(const runtime::Diagnosis& diagnosis) {
  Json list = Json::array();
  if (diagnosis.links.empty()) {
    for (const int rank : diagnosis.culprits) list.push_back(rank);
  }
  for (const auto& [from, to] : diagnosis.links)
    list.push_back("link:" + std::to_string(from) + "->" + std::to_string(to));
  return list;
}

Json recovery_json(const RunRecord& run, const Recovery& r, const Cause& cause) {
  const int fault = cause.fault;
  Json one;
  one["fault"] = fault < 0 ? Json(nullptr) : Json(std::string(name(run.faults[std::size_t(fault)].kind)));
  one["t_inject_s"] = time_or_null(cause.injected_ns);
  one["t_detect_s"] = time_or_null(r.detected_ns);
  one["t_agree_s"] = time_or_null(r.agreed_ns);
  one["t_rebuild_s"] = time_or_null(r.rebuilt_ns);
  one["t_resumed_s"] = time_or_null(r.resumed_ns);
  one["steps_lost"] = r.steps_lost;
  one["culprits"] = culprits_json(r.diagnosis);
  one["verdict"] = std::string(name(r.diagnosis.verdict));
  one["diagnosis"] = r.diagnosis.text;
  one["fault_number"] = fault < 0 ? Json(nullptr) : Json(fault);
  one["epoch"] = r.epoch;
  one["step"] = r.step;
  one["evicted"] = r.evicted;
  one["survivors"] = r.survivors;
  if (!r.layout.empty()) one["layout"] = r.layout;
  if (!r.memory.empty()) one["memory_map"] = r.memory;
  return one;
}

Json layout_json(const RunRecord& run) {
  const runtime::Layout layout = run.layout();
  const auto home = [](runtime::Home where) {
    return where == runtime::Home::device ? "none" : where == runtime::Home::host ? "cpu" : "nvme";
  };
  Json checkpointing = "none";
  if (layout.checkpointing.every > 0) checkpointing = layout.checkpointing.every;
  if (!layout.checkpointing.layers.empty()) checkpointing = layout.checkpointing.layers;
  return {{"micro_batch", layout.micro_batch},
          {"stage", layout.zero.stage},
          {"checkpointing", std::move(checkpointing)},
          {"offload",
           {{"optimizer", home(layout.offload.optimizer.home)}, {"parameters", home(layout.offload.parameters.home)}}},
          {"text", runtime::text(layout)}};
}

Json pipeline_json(const Evidence& e) {
  const runtime::ParallelPlan& plan = e.scenario.train.layout.parallel;
  Json stages = Json::array();
  for (std::size_t rank = 0; rank < e.run.traffic.pipeline.size(); ++rank) {
    const runtime::PipelineRecord& told = e.run.traffic.pipeline[rank];
    if (told.in_flight.empty()) continue;
    stages.push_back(
        {{"rank", rank}, {"stage", told.stage}, {"micro_batches", told.micro_batches}, {"in_flight", told.in_flight}});
  }
  return {{"stages", plan.pipeline},
          {"schedule", plan.schedule_name()},
          {"bubble", measured_bubble(e.run)},
          {"ranks", stages}};
}

Json attempts_json(const RunRecord& run) {
  Json attempts = Json::array();
  for (const Attempt& attempt : run.training.attempts) {
    attempts.push_back({{"began_s", seconds(attempt.began_ns)},
                        {"ended_s", time_or_null(attempt.ended_ns)},
                        {"first_step", attempt.first_step},
                        {"steps_lost", attempt.steps_lost},
                        {"why", attempt.why.empty() ? Json(nullptr) : Json(attempt.why)}});
  }
  return attempts;
}

Json checkpoints_json(const RunRecord& run) {
  Json checkpoints = Json::array();
  for (const Checkpoint& one : run.training.checkpoints) {
    checkpoints.push_back({{"step", one.step},
                           {"complete", one.complete},
                           {"why", one.why.empty() ? Json(nullptr) : Json(one.why)},
                           {"began_s", time_or_null(one.began_ns)},
                           {"blocked_s", seconds(one.blocked_ns)},
                           {"ended_s", time_or_null(one.ended_ns)},
                           {"bytes", one.bytes}});
  }
  return checkpoints;
}

Json comm_json(const RunRecord& run) {
  Json table = Json::object();
  for (std::size_t kind = 0; kind < run.traffic.comm.size(); ++kind) {
    if (run.traffic.comm[kind].calls == 0) continue;
    table[std::string(name(runtime::OpKind(kind)))] = {
        {"calls", run.traffic.comm[kind].calls},
        {"bytes_sent_per_rank_max", run.traffic.comm[kind].bytes_sent_per_rank_max}};
  }
  return table;
}

Json memory_json(const RunRecord& run) {
  Json memory = {{"peak_bytes_per_rank_max", run.memory.peak}};
  for (std::size_t tag = 0; tag < run.memory.at_peak.size(); ++tag)
    memory["at_peak"][std::string(name(runtime::MemoryTag(tag)))] = run.memory.at_peak[tag];
  memory["by_tag"] = Json::object();
  for (std::size_t tag = 0; tag < run.memory.peak_by_tag.size(); ++tag) {
    memory["by_tag"][std::string(name(runtime::MemoryTag(tag)))] = run.memory.peak_by_tag[tag];
    memory["what"][std::string(name(runtime::MemoryTag(tag)))] = what_is(runtime::MemoryTag(tag));
  }
  memory["host_peak_bytes_per_rank_max"] = run.memory.host_peak;
  memory["pinned_peak_bytes_per_rank_max"] = run.memory.pinned_peak;
  memory["host_by_tag"] = Json::object();
  for (std::size_t tag = 0; tag < run.memory.host_peak_by_tag.size(); ++tag)
    memory["host_by_tag"][std::string(name(runtime::MemoryTag(tag)))] = run.memory.host_peak_by_tag[tag];
  return memory;
}

// Bytes of all ranks together. What a kind's files hold is read back where it is written.
Json files_json(const sim::FileUse& files) {
  Json json = {
      {"by_kind", Json::object()}, {"outside_steps", {{"read", 0}, {"written", 0}}}, {"per_step", Json::array()}};
  for (const auto& [kind, bytes] : files.by_kind)
    json["by_kind"][kind] = {{"read", bytes.read}, {"written", bytes.written}};
  for (const auto& [step, bytes] : files.by_step) {
    if (step < 0)
      json["outside_steps"] = {{"read", bytes.read}, {"written", bytes.written}};
    else
      json["per_step"].push_back({{"step", step}, {"read", bytes.read}, {"written", bytes.written}});
  }
  return json;
}

// All that decides the order of this run. A run whose decisions are numbered also as deviations from `first`.
Json replay_json(const Evidence& e) {
  constexpr std::size_t kChoicesTold = 100'000;
  Json json = schedule_keys().written(e.scenario.world.schedule);
  json["string"] = schedule_string(e.scenario);
  if (e.scenario.world.schedule.strategy == sim::Strategy::seeded) return json;
  json["decisions"] = e.run.schedule.decisions;
  json["choices"] = Json::array();
  if (e.run.schedule.choices.size() > kChoicesTold) return json;
  for (const sim::Deviation& one : e.run.schedule.choices) json["choices"].push_back({one.decision, one.choice});
  return json;
}

Json fault_decisions_json(const RunRecord& run) {
  Json json = Json::array();
  for (const FaultDecision& one : run.fault_decisions)
    json.push_back({{"rule", one.rule},
                    {"at_s", seconds(one.at_ns)},
                    {"rank", one.rank},
                    {"op", one.op.empty() ? Json(nullptr) : Json(one.op)}});
  return json;
}

Json world_json(const sim::WorldPlan& w) {
  return {{"nodes", w.nodes},   {"ranks_per_node", w.ranks_per_node},
          {"ranks", w.ranks()}, {"pipeline", 1},
          {"tensor", 1},        {"network", w.network}};
}

// ---- the report, in the order of its keys --------------------------------------------------------------------------

void what_ran(const Evidence& e, const Judgement& j, const ReportExtras& extras, Json& report) {
  const RunRecord& run = e.run;
  report["schema"] = kReportSchema;
  report["scenario"] = e.scenario.name;
  report["seed"] = e.scenario.world.seed;
  if (extras.backend == "sim") report["schedule"] = replay_json(e);
  report["fault_decisions"] = fault_decisions_json(run);
  report["training_seed"] = e.scenario.train.definition.training_seed;
  report["backend"] = extras.backend;
  report["device"] = extras.device;
  report["numerics"] = !run.has_values ? "shapes" : is_fast(e.scenario) ? "fast" : "exact";
  if (e.fast != nullptr) report["fast"] = fast_json(e);
  report["world"] = world_json(e.scenario.world);
  if (run.alike) {
    report["alike"] = {{"classes", run.alike->classes},
                       {"ranks_simulated", run.alike->simulated},
                       {"courses", hex(run.alike->digest())}};
    if (run.alike->classes == 0) report["alike"]["why_not"] = run.alike->why_not;
  }
  report["verdict"] = j.verdict;
  report["exit_code"] = code(j.status);
  report["fingerprint"] = hex(run.fingerprint);
  report["steps_committed"] = run.steps.size();
  report["virtual_s"] = seconds(run.virtual_ns);
  report["wall_s"] = extras.wall_s;
}

Json experts_json(const RunRecord& run) {
  Json steps = Json::array();
  for (const ExpertLoad& load : run.training.choices.loads())
    steps.push_back({{"step", load.step},
                     {"share", load.share},
                     {"layer", load.layer},
                     {"expert", load.expert},
                     {"dropped", load.dropped}});
  return steps;
}

void what_was_seen(const Evidence& e, const Judgement& j, Json& report) {
  const RunRecord& run = e.run;
  steps_json(run, report);
  if (!run.training.evaluations.empty()) report["evaluations"] = evaluations_json(run);
  if (e.scenario.train.counts_choices) report["experts"] = experts_json(run);
  numbers_json(run, report);
  if (e.scenario.train.recovery.rerun_and_compare) report["rerun"] = rerun_json(run);
  const auto state = run.state();
  report["params_digest"] = state ? Json(hex(state->params)) : Json(nullptr);
  report["faults"] = faults_json(run, causes_of(run));
  for (const OwnFaultStatus& own : run.own_faults)
    report["own_faults"].push_back({{"name", own.name}, {"fired", own.fired}});
  report["checks"] = Json::array();
  for (const CheckResult& check : j.checks) {
    report["checks"].push_back({{"name", check.name}, {"ok", check.ok}, {"detail", check.detail}});
    if (!check.looked) report["checks"].back()["looked"] = false;
  }
  report["races"] = Json::array();
  for (const sim::Race& race : run.races.found)
    report["races"].push_back({{"rank", race.rank}, {"text", race.text}, {"times", race.times}});
  report["accesses_checked"] = run.races.accesses;
  report["unwritten_reads"] = Json::array();
  for (const sim::UnwrittenRead& read : run.numbers.unwritten)
    report["unwritten_reads"].push_back({{"rank", read.rank}, {"text", read.text}, {"times", read.times}});
  if (!e.scenario.train.bug.is(runtime::Bug::none)) report["bug"] = runtime::text(e.scenario.train.bug);
  if (e.scenario.train.definition.quirks.any()) report["quirks"] = quirk_names(e.scenario.train.definition.quirks);
}

void what_broke(const Evidence& e, Json& report) {
  const RunRecord& run = e.run;
  report["recoveries"] = Json::array();
  const std::vector<Cause> causes = causes_of(run);
  for (std::size_t i = 0; i < causes.size(); ++i)
    report["recoveries"].push_back(recovery_json(run, run.detection.recoveries[i], causes[i]));
  report["attempts"] = attempts_json(run);
  report["steps_undone"] = run.training.undone_steps;
  if (run.training.resumed_from > 0) report["resumed_from"] = run.training.resumed_from;
  if (e.scenario.train.checkpoint.on()) report["checkpoints"] = checkpoints_json(run);
  if (e.step_s) report["goodput"] = goodput_json(goodput_of(run, *e.step_s, e.scenario.train.checkpoint.every_steps));
  report["analysis"] = analyses_json(run);
  if (e.scenario.train.recovery.straggler.on) report["stragglers"] = stragglers_json(run);
  if (e.scenario.train.recovery.divergence.on) report["divergences"] = divergences_json(run);
  report["joins"] = Json::array();
  for (const runtime::JoinRecord& join : run.detection.joins)
    report["joins"].push_back({{"epoch", join.epoch}, {"step", join.step}, {"ranks", join.ranks}});
}

void what_it_took(const Evidence& e, Json& report) {
  const RunRecord& run = e.run;
  report["comm"] = comm_json(run);
  report["comm_overlap"] = {{"in_flight_s", seconds(run.traffic.overlap.in_flight_ns)},
                            {"hidden_s", seconds(run.traffic.overlap.hidden_ns)},
                            {"share", run.traffic.overlap.share()}};
  report["copy_overlap"] = {{"in_flight_s", seconds(run.traffic.copies.in_flight_ns)},
                            {"hidden_s", seconds(run.traffic.copies.hidden_ns)},
                            {"share", run.traffic.copies.share()}};
  if (run.traffic.files.any()) report["files"] = files_json(run.traffic.files);
  if (!run.traffic.pipeline.empty()) report["pipeline"] = pipeline_json(e);
  report["memory"] = memory_json(run);
  report["layout"] = layout_json(run);
  report["figures"] = figures_json(e);
  for (const ModuleFlops& one : flops_of_sample(e.scenario.train.definition.model))
    report["step_flops"][one.module] = one.flops * e.scenario.train.definition.global_batch;
  if (e.scenario.watched.alarms.any()) report["alarms"] = alarms_json(raised_alarms(e.scenario, run));
}

void how_it_ended(const Evidence& e, const Judgement& j, Json& report) {
  const RunRecord& run = e.run;
  report["sentence"] = j.sentence;
  report["stopped"] = j.stopped.empty() ? Json(nullptr) : Json(j.stopped);
  if (!j.stopped.empty()) {
    const StopReason why = classify(run, j.stopped);
    report["failure_domain"] = why.domain;
    report["outlook"] = why.outlook;
  }
  if (e.golden != nullptr) {
    report["golden"] = {{"key", e.golden->key}, {"stored", e.golden->stored}, {"origin", e.golden->origin}};
  }
  if (!run.wait_for_graph.empty()) report["wait_for_graph"] = run.wait_for_graph;
}

}  // namespace

Json report_json(const Evidence& e, const Judgement& j, const ReportExtras& extras) {
  Json report;
  what_ran(e, j, extras, report);
  what_was_seen(e, j, report);
  what_broke(e, report);
  what_it_took(e, report);
  how_it_ended(e, j, report);
  return report;
}

Json failure_json(const std::string& scenario, ExitStatus status, const std::vector<std::string>& problems) {
  Json report;
  report["schema"] = kReportSchema;
  report["scenario"] = scenario;
  report["verdict"] = name(status);
  report["exit_code"] = code(status);
  report["problems"] = problems;
  return report;
}

Json whole_report(const std::vector<Json>& reports, ExitStatus status) {
  if (reports.size() == 1) return reports[0];
  return {{"schema", kReportSchema}, {"exit_code", code(status)}, {"runs", reports}};
}

}  // namespace seeksim::harness
