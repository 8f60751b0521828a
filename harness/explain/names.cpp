#include "harness/explain/names.h"

#include <fmt/format.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "harness/explain/named_by_checks.h"
#include "harness/record/golden.h"
#include "harness/record/same_bits.h"
#include "harness/scenario/variants.h"
#include "harness/simulate/simulate.h"
#include "runtime/layout/parameters.h"

namespace seeksim::harness {
namespace {

using runtime::OpKind;
using runtime::Phase;

constexpr std::size_t kBytesMax = std::size_t(1) << 30;  // of values that are kept

// The kind of mistake that a culprit's operation shows.
Mistake mistake_of(const Culprit& culprit, const Scenario& scenario) {
  const runtime::Op& op = culprit.op;
  const std::string_view site = op.site == nullptr ? "" : op.site;
  if (culprit.struck) return Mistake::machine;
  if (op.kind == OpKind::data_load) return Mistake::data;
  if (op.kind == OpKind::storage_read || op.kind == OpKind::storage_write || op.phase == Phase::checkpoint ||
      op.phase == Phase::recovery || op.kind == OpKind::redistribute || op.kind == OpKind::hand_over)
    return Mistake::state;
  if (op.kind == OpKind::send_activation || op.kind == OpKind::send_gradient || op.kind == OpKind::all_to_all)
    return Mistake::message;
  if (op.kind == OpKind::publish || op.kind == OpKind::param_gather || op.phase == Phase::publish)
    return Mistake::publication;
  const bool over_ways = culprit.over_ways ||
                         (scenario.train.layout.parallel.tensor > 1 && site.starts_with("tensor_parallel")) ||
                         site.starts_with("context_gradients");
  if (over_ways || culprit.buffer == "values of all ways") return Mistake::reduction;
  switch (op.phase) {
    case Phase::data:
      return Mistake::data;
    case Phase::forward:
    case Phase::recompute:
    case Phase::evaluation:
      return Mistake::forward;
    case Phase::backward:
      return Mistake::gradient;
    case Phase::grad_reduce:
      return culprit.buffer == "norms" || culprit.buffer == "norm blocks" ? Mistake::norm : Mistake::reduction;
    case Phase::init:
      return op.step < 0 ? Mistake::update : Mistake::state;
    case Phase::optimizer:
      return Mistake::update;
    default:
      return Mistake::unknown;
  }
}

// The golden that is stored, or the same one-rank run with other micro-batches, against the one whose values are kept.
std::string golden_differs(const Scenario& scenario, const RunRecord& run) {
  const std::optional<Golden> stored = stored_golden(scenario);
  if (!stored) return {};
  for (std::size_t i = 0; i < std::min(run.steps.size(), stored->loss.size()); ++i) {
    if (same_bits(run.steps[i].loss, stored->loss[i]) && same_bits(run.steps[i].grad_norm, stored->grad_norm[i]))
      continue;
    return fmt::format(
        "this program's own one-rank run differs from the stored golden in step {} (loss {:.9g} and {:.9g}): the "
        "mistake is in what one rank does too, and values are held against a wrong run",
        run.steps[i].step, run.steps[i].loss, stored->loss[i]);
  }
  return {};
}

RunRecord run_watched(const Scenario& scenario, ValueSink* sink, double wall_limit_s) {
  SimulationOptions options;
  options.wall_limit_s = wall_limit_s;
  options.sink = sink;
  return Simulation(scenario, options).run();
}

// The first that is not of an attempt that was given up, and no fault in a step that the golden leaves out as well.
const Culprit* first_that_counts(const std::vector<Culprit>& all, const RunRecord& run, const GoldenValues& golden) {
  const bool faulty =
      std::any_of(run.faults.begin(), run.faults.end(), [](const faults::RuleStatus& rule) { return rule.fired > 0; });
  const auto counts = [&](const Culprit& one) {
    const runtime::Op& op = one.reader ? *one.reader : one.op;
    if (op.step < 0 && op.phase == Phase::checkpoint) return !one.struck;  // what an attempt begins with
    const GoldenStep* const like = golden.step(op.step);
    for (const runtime::StepRecord& step : run.steps) {
      if (step.step != op.step) continue;
      if (one.struck && step.skipped && like != nullptr && !like->applied) return false;
      return step.epoch == op.epoch || run.training.attempts.size() > 1;
    }
    return !faulty;  // nobody committed the step: a fault that ended it leaves anything in memory
  };
  const auto found = std::find_if(all.begin(), all.end(), counts);
  return found == all.end() ? nullptr : &*found;
}

// A fault that changes what messages carry struck in this part of the step; what came of it is folded by other kernels.
const FaultDecision* message_fault_behind(const Culprit& culprit, const Scenario& scenario, const RunRecord& run) {
  const FaultDecision* last = nullptr;
  for (const FaultDecision& one : run.fault_decisions) {
    const faults::FaultKind kind = scenario.faults.at(one.rule).kind;
    const bool content = kind == faults::FaultKind::message_corrupt || kind == faults::FaultKind::zombie_message;
    if (content && one.phase == culprit.op.phase && one.at_ns <= culprit.at_ns) last = &one;
  }
  return last;
}

// The bytes of the gradients of single samples, which are most of it. They are known before anything is run.
double bytes_of_leaves(const Scenario& scenario) {
  const runtime::Definition& d = scenario.train.definition;
  return double(sizeof(float)) * double(runtime::Parameters(d.model, d.optimizer.decay_all).size()) *
         double(d.global_batch) * double(d.steps);
}

std::string too_many_values() { return fmt::format("its values take more than {} MiB", kBytesMax >> 20); }

std::string why_not(const Scenario& scenario) {
  if (is_of_shapes(scenario)) return "a shapes-only run has no values";
  if (is_fast(scenario)) return "fast arithmetic has other bits than the golden";
  if (!scenario.sweep.empty() || scenario.planned.any()) return "it is many runs";
  if (scenario.train.definition.compression.on())
    return "gradients are compressed, and what ranks sum is not what samples gave";
  if (scenario.train.definition.staleness.on())
    return "gradients come late (staleness), and what ranks sum is not what the step's samples gave";
  if (scenario.train.definition.local_sgd.on())
    return "workers have weights of their own (local_sgd), and no rank sums gradients of others' samples";
  if (scenario.train.definition.model.experts.samples > 1)
    return "samples are routed together (routing_samples), and the golden's values are looked at one by one";
  if (scenario.train.definition.quirks.any()) return "with a quirk it is another training than the golden";
  if (bytes_of_leaves(scenario) > double(kBytesMax)) return too_many_values();
  return {};
}

}  // namespace

Names names_of(const Scenario& scenario, const Json& report, double wall_limit_s) {
  Names names;
  names.not_looked = why_not(scenario);
  if (names.not_looked.empty()) {
    const Scenario one = one_sample_at_a_time(scenario);
    GoldenValues golden(one.train.definition.global_batch, 0, one.train.definition.steps, kBytesMax);
    const RunRecord right = run_watched(one, &golden, wall_limit_s);
    golden.finish(one);
    if (golden.full()) names.not_looked = too_many_values();
    names.golden_differs = golden_differs(scenario, right);
    const bool recovers = !report.value("recoveries", Json::array()).empty();
    std::optional<RunRecord> before;  // for who is a member after which recovery
    if (recovers) before = run_watched(scenario, nullptr, wall_limit_s);
    ValueJudge judge(scenario, golden, before ? &*before : nullptr);
    const RunRecord run = run_watched(scenario, &judge, wall_limit_s);
    names.compared = judge.compared();
    names.differing = judge.differing();
    if (const Culprit* first = first_that_counts(judge.culprits(), run, golden)) {
      names.culprit = *first;
      Culprit& culprit = *names.culprit;
      const FaultDecision* const message = message_fault_behind(culprit, scenario, run);
      culprit.struck = culprit.struck || message != nullptr;
      names.mistake = message != nullptr ? Mistake::message : mistake_of(culprit, scenario);
      const std::int64_t step = culprit.reader ? culprit.reader->step : culprit.op.step;
      names.committed = step < 0 || std::any_of(run.steps.begin(), run.steps.end(),
                                                [step](const runtime::StepRecord& of) { return of.step == step; });
      for (std::size_t i = 1; i < run.training.attempts.size(); ++i)
        names.after_restart = names.after_restart || run.training.attempts[i].first_step == step;
      for (const runtime::JoinRecord& join : run.detection.joins) {
        const bool joins = std::find(join.ranks.begin(), join.ranks.end(), culprit.rank) != join.ranks.end();
        names.after_join = names.after_join || (joins && join.step == step);
      }
      const std::uint32_t epoch = culprit.reader ? culprit.reader->epoch : culprit.op.epoch;
      const auto recovered = std::find_if(run.steps.begin(), run.steps.end(),
                                          [epoch](const runtime::StepRecord& of) { return of.epoch == epoch; });
      const bool first_of_epoch = epoch > 0 && recovered != run.steps.end() && recovered->step == step;
      names.after_restart = names.after_restart || names.after_join || first_of_epoch;
      names.phase = name(culprit.op.phase);
      names.kind = name(message != nullptr ? message->kind : culprit.op.kind);
      names.tensor = culprit.op.tensor == nullptr ? "" : culprit.op.tensor;
    }
  }
  heed_checks(scenario, report, names);
  return names;
}

// ---- words ---------------------------------------------------------------------------------------------------------

namespace {

std::string how_text(const Culprit& c) {
  const std::string_view injected = c.struck ? "; an injected fault struck it" : "";
  switch (c.how) {
    case Culprit::How::computed:
      return fmt::format("what it read is the golden's, what it wrote is not{}", injected);
    case Culprit::How::brought:
      return fmt::format("it wrote what is read as another value; nothing is known of what it read{}", injected);
    case Culprit::How::changed:
      return fmt::format("it wrote a right value, but another one is read{}", injected);
    default:
      return "its value is the one of the step before: nobody wrote the new one";
  }
}

std::string where_text(const Culprit& c) {
  std::string text = fmt::format("rank {}, step {}", c.rank, c.op.step);
  if (c.sample >= 0)
    text += fmt::format(", sample {}", c.sample);
  else if (c.samples.size() > 0)
    text += fmt::format(", samples {} to {}", c.samples.begin, c.samples.end - 1);
  if (c.op.layer >= 0) text += fmt::format(", layer {}", c.op.layer);
  if (c.op.site != nullptr && c.op.site[0] != 0) text += fmt::format(", at {}", c.op.site);
  return text;
}

}  // namespace

std::string names_text(const Names& n) {
  std::string out;
  const auto line = [&out](std::string_view what, const std::string& text) {
    if (!text.empty()) out += fmt::format("  {:<10}{}\n", what, text);
  };
  if (!n.golden_differs.empty()) line("golden", n.golden_differs);
  if (n.culprit) {
    const Culprit& c = *n.culprit;
    line("first", fmt::format("{} '{}' in {}: {}", name(c.op.kind), n.tensor, name(c.op.phase), how_text(c)));
    line("where", where_text(c));
    const std::string element = c.element < 0 ? "" : fmt::format(", element {}", c.element);
    const std::string bits = c.have.empty()   ? ""
                             : c.want.empty() ? ": " + c.have
                                              : ": " + c.have + " instead of " + c.want;
    line("value", fmt::format("'{}' ({}){}{}", c.buffer, name(c.type), element, bits));
    if (c.reader) line("met by", describe(*c.reader));
  } else if (n.names_operation()) {
    line("first", fmt::format("{} '{}' in {}, by {}", n.kind, n.tensor, n.phase, n.check));
  }
  if (n.mistake != Mistake::unknown) line("kind", fmt::format("{}: {}", name(n.mistake), mistake_text(n.mistake)));
  return out;
}

Json names_json(const Names& n) {
  Json json{{"mistake", std::string(name(n.mistake))},
            {"phase", n.phase},
            {"kind", n.kind},
            {"tensor", n.tensor},
            {"check", n.check},
            {"compared", n.compared},
            {"differing", n.differing}};
  if (!n.not_looked.empty()) json["not_looked"] = n.not_looked;
  if (!n.golden_differs.empty()) json["golden_differs"] = n.golden_differs;
  if (!n.culprit) return json;
  const Culprit& c = *n.culprit;
  const auto or_null = [](std::int64_t value) { return value < 0 ? Json(nullptr) : Json(value); };
  json["rank"] = c.rank;
  json["step"] = c.op.step;
  json["layer"] = or_null(c.op.layer);
  json["micro_batch"] = or_null(c.op.micro_batch);
  json["sample"] = or_null(c.sample);
  json["site"] = c.op.site == nullptr ? "" : c.op.site;
  json["buffer"] = c.buffer;
  json["element"] = or_null(c.element);
  json["have"] = c.have;
  json["want"] = c.want;
  json["how"] = how_text(c);
  json["struck"] = c.struck;
  return json;
}

}  // namespace seeksim::harness
