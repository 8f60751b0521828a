#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "harness/loading/estimate.h"
#include "harness/loading/schedule_string.h"
#include "harness/oracles/fast_bounds.h"
#include "harness/oracles/goodput.h"
#include "harness/oracles/inside_a_step.h"
#include "harness/oracles/numbers.h"
#include "harness/oracles/reruns.h"
#include "harness/report/report.h"
#include "harness/report/story.h"
#include "harness/scenario/variants.h"
#include "harness/verdict/stop_reason.h"
#include "runtime/decide/memory_ladder.h"
#include "runtime/rules/bugs.h"
#include "runtime/rules/quirks.h"
#include "runtime/seams/rank_names.h"
#include "runtime/seams/time.h"

namespace seeksim::harness {
namespace {

using How = RankRecord::How;
using runtime::rank_list;
using runtime::seconds;

// Which ranks were found too slow, and when the numbers left their range.
std::string findings(const RunRecord& run) {
  std::string text;
  for (const runtime::StragglerRecord& one : run.detection.stragglers) {
    text += fmt::format("  slow      rank {}: score {:.3f} after step {}, {} steps in a row{}\n", one.rank, one.score,
                        one.step, one.steps, one.leaves ? "; it leaves" : "");
  }
  if (!run.detection.scores.empty()) {
    const auto lowest =
        std::min_element(run.detection.scores.begin(), run.detection.scores.end(),
                         [](const auto& a, const auto& b) { return a.second.mean() < b.second.mean(); });
    text += fmt::format("  scores    lowest on average: rank {} with {:.3f}, at least {:.3f}\n", lowest->first,
                        lowest->second.mean(), lowest->second.least);
  }
  for (const runtime::DivergenceRecord& one : run.detection.divergences) {
    text += fmt::format("  diverged  {} of step {}: {:.6g}; the mean before it is {:.6g}\n", one.what, one.step,
                        one.value, one.mean);
    if (one.undoes_change >= 0) text += fmt::format("            the change of step {} is undone\n", one.undoes_change);
  }
  if (run.end != sim::WorldEnd::finished && run.detection.at_the_end) {
    text += fmt::format("  analysis  {}\n", run.detection.at_the_end->diagnosis.text);
    if (!run.detection.at_the_end->chain.empty())
      text += fmt::format("            {}\n", run.detection.at_the_end->chain);
  }
  return text;
}

// Ranks that did not finish, by how they ended: one line each kind.
std::string endings(const RunRecord& run) {
  std::string out;
  for (const How how : {How::evicted, How::died, How::stopped, How::threw, How::running, How::spare}) {
    std::vector<int> ranks;
    std::string why;
    for (std::size_t i = 0; i < run.ranks.size(); ++i) {
      if (run.ranks[i].how != how) continue;
      ranks.push_back(int(i));
      if (why.empty()) why = run.ranks[i].why;
    }
    const char* word = how == How::died ? "died" : name(how);
    for (std::size_t at = why.find('\n'); at != std::string::npos; at = why.find('\n', at + 1))
      why.insert(at + 1, std::string(12, ' '));
    if (!ranks.empty()) out += fmt::format("  {:<9} {}{}\n", word, rank_list(ranks), why.empty() ? "" : ": " + why);
  }
  return out;
}

std::string checkpoints(const RunRecord& run) {
  if (run.training.checkpoints.empty()) return {};
  std::size_t complete = 0;
  TimeNs blocked = 0;
  for (const Checkpoint& one : run.training.checkpoints) {
    complete += one.complete;
    blocked += one.blocked_ns;
  }
  std::string out = fmt::format("  saved     {} of {} checkpoints; training waited {:.3f} s for them\n", complete,
                                run.training.checkpoints.size(), double(blocked) / double(runtime::kSecond));
  for (const Checkpoint& one : run.training.checkpoints) {
    if (!one.why.empty()) out += fmt::format("            the one of step {} was abandoned: {}\n", one.step, one.why);
  }
  return out;
}

std::string attempts(const RunRecord& run) {
  std::string out;
  if (run.training.resumed_from > 0)
    out += fmt::format("  resumed   after step {} of an earlier run\n", run.training.resumed_from);
  for (std::size_t i = 1; i < run.training.attempts.size(); ++i) {
    out += fmt::format("  restarted after {} steps, {} lost: {}\n", run.training.attempts[i].first_step,
                       run.training.attempts[i].steps_lost, run.training.attempts[i - 1].why);
  }
  return out;
}

// A loss that rose tenfold turns no check red, and nobody means it.
std::string rise_of_loss(const RunRecord& run) {
  constexpr float kTold = 10;
  std::size_t least = 0, from = 0, to = 0;
  float most = kTold;
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    const float loss = run.steps[i].loss, before = run.steps[least].loss;
    if (!std::isfinite(loss)) continue;
    if (before > 0 && loss >= most * before) most = loss / before, from = least, to = i;
    if (loss < before) least = i;
  }
  if (to == 0) return "";
  return fmt::format(
      "  note      the loss rose {:.3g}-fold, from {} in step {} to {} in step {}: is the rate too high?\n", most,
      run.steps[from].loss, run.steps[from].step, run.steps[to].loss, run.steps[to].step);
}

std::string losses(const RunRecord& run) {
  if (run.steps.empty()) return "  no step was committed\n";
  if (!run.has_values) return fmt::format("  steps     {}; a shapes-only run has no losses\n", run.steps.size());
  return fmt::format("  loss      {} -> {} in {} step{}\n", run.steps.front().loss, run.steps.back().loss,
                     run.steps.size(), run.steps.size() == 1 ? "" : "s") +
         rise_of_loss(run);
}

std::string tags(const std::vector<std::size_t>& peaks) {
  std::vector<std::string> tags;
  for (std::size_t tag = 0; tag < peaks.size(); ++tag) {
    if (peaks[tag] > 0)
      tags.push_back(fmt::format("{} {}", name(runtime::MemoryTag(tag)), bytes_text(double(peaks[tag]))));
  }
  return fmt::format("{}", fmt::join(tags, ", "));
}

// Which rank stood for which.
std::string alike(const RunRecord& run) {
  if (!run.alike) return "";
  if (run.alike->classes == 0)
    return fmt::format("  alike     none: {}; {} ranks were simulated\n", run.alike->why_not, run.ranks.size());
  return fmt::format("  alike     {} ranks in {} class{}; {} of them were simulated\n", run.ranks.size(),
                     run.alike->classes, run.alike->classes == 1 ? "" : "es", run.alike->simulated);
}

// Peaks of the rank that needed most, by tag; report.json says what each is for.
std::string memory(const RunRecord& run) {
  std::string text;
  if (run.memory.peak > 0) {
    text = fmt::format("  memory    at most {} a rank: {}\n", bytes_text(double(run.memory.peak)),
                       tags(run.memory.peak_by_tag));
  }
  if (run.memory.host_peak > 0) {
    const std::string pinned =
        run.memory.pinned_peak > 0 ? fmt::format(", {} of it pinned", bytes_text(double(run.memory.pinned_peak))) : "";
    text += fmt::format("  host      at most {} a rank{}: {}\n", bytes_text(double(run.memory.host_peak)), pinned,
                        tags(run.memory.host_peak_by_tag));
  }
  return text;
}

std::string goodput(const Evidence& e) {
  if (!e.step_s) return "";
  return goodput_text(goodput_of(e.run, *e.step_s, e.scenario.train.checkpoint.every_steps));
}

// Told where it may have changed.
std::string layout(const Evidence& e) {
  return e.scenario.train.recovery.memory_ladder ? fmt::format("  layout    {}\n", runtime::text(e.run.layout())) : "";
}

// What a NaN did, and where it came from.
std::string births(const RunRecord& run) {
  std::string text;
  std::vector<std::int64_t> skipped;
  for (const runtime::StepRecord& step : run.steps) {
    if (step.skipped) skipped.push_back(step.step);
  }
  if (!skipped.empty()) {
    text += fmt::format(
        "  skipped   {} of {} steps: {}{}\n", skipped.size(), run.steps.size(),
        fmt::join(skipped.begin(), skipped.begin() + std::ptrdiff_t(std::min<std::size_t>(8, skipped.size())), ", "),
        skipped.size() > 8 ? ", ..." : "");
  }
  if (run.steps.size() > 0 && run.steps.front().loss_scale != 1)
    text += fmt::format("  scale     {} -> {}\n", run.steps.front().loss_scale, run.steps.back().loss_scale);
  if (const Birth* first = first_birth(run)) text += fmt::format("  born      {}\n", birth_text(*first));
  return text;
}

// The range log is in report.json; here stands how much of it there is.
std::string range_log(const RunRecord& run) {
  if (run.numbers.ranges.empty()) return "";
  std::size_t entries = 0;
  for (const RangeLog& log : run.numbers.ranges) entries += log.entries.size();
  const std::uint64_t left_out = run.ranges_left_out();
  return fmt::format("  ranges    {} entries of step {} are in the report{}\n", entries,
                     run.numbers.ranges.front().step,
                     left_out > 0 ? fmt::format("; {} more are LEFT OUT: a rank keeps the first {} of a step", left_out,
                                                run.numbers.ranges.front().entries.size())
                                  : "");
}

std::string pipeline(const Evidence& e) {
  const runtime::ParallelPlan& plan = e.scenario.train.layout.parallel;
  if (plan.pipeline == 1 || e.run.traffic.passes.empty()) return "";
  return fmt::format("  pipeline  {} stages, {}: {:.1f} % of their time in passes is waiting (the bubble)\n",
                     plan.pipeline, plan.schedule_name(), 100 * measured_bubble(e.run));
}

std::string overlap(const RunRecord& run) {
  if (run.traffic.overlap.in_flight_ns == 0) return "";
  return fmt::format(
      "  overlap   {:.1f} % of step communication overlapped with compute ({:.6g} of {:.6g} s, all ranks)\n",
      100 * run.traffic.overlap.share(), seconds(run.traffic.overlap.hidden_ns),
      seconds(run.traffic.overlap.in_flight_ns));
}

std::string copies(const RunRecord& run) {
  if (run.traffic.copies.in_flight_ns == 0) return "";
  return fmt::format(
      "  copies    {:.1f} % of host-device copies overlapped with kernels ({:.6g} of {:.6g} s, all ranks)\n",
      100 * run.traffic.copies.share(), seconds(run.traffic.copies.hidden_ns),
      seconds(run.traffic.copies.in_flight_ns));
}

// What a step moves, on average.
std::string files(const RunRecord& run) {
  if (!run.traffic.files.any()) return "";
  sim::FileUse::Bytes all;
  std::int64_t steps = 0;
  for (const auto& [step, bytes] : run.traffic.files.by_step) {
    if (step < 0) continue;
    ++steps;
    all.read += bytes.read;
    all.written += bytes.written;
  }
  std::string kinds;
  for (const auto& [kind, bytes] : run.traffic.files.by_kind) {
    kinds += fmt::format("{}{} {} and {}", kinds.empty() ? "" : ", ", kind, bytes_text(double(bytes.read)),
                         bytes_text(double(bytes.written)));
  }
  const double n = double(std::max<std::int64_t>(steps, 1));
  return fmt::format("  files     a step reads {} and writes {} (all ranks); in all: {}\n",
                     bytes_text(double(all.read) / n), bytes_text(double(all.written) / n), kinds);
}

std::string experts_text(const runtime::ModelPlan& m) {
  const runtime::ExpertsPlan& x = m.experts;
  std::string text = fmt::format(", {} experts and {} a token", x.count, x.per_token);
  if (x.sigmoid) text += " by sigmoids";
  if (x.shared > 0) text += fmt::format(", {} shared", x.shared);
  if (x.dense_layers > 0) text += fmt::format(", {} dense layer{}", x.dense_layers, x.dense_layers == 1 ? "" : "s");
  return text;
}

// How the ranks share the work: "ZeRO stage 2, bf16; 8 ranks: 2 data x 2 pipeline x 2 tensor; micro-batch 2 x 4
// accumulation steps".
std::string layout_line(const Scenario& scenario) {
  const runtime::Layout& layout = scenario.train.layout;
  const int ways = data_size(scenario), accumulation = micro_batches_of_replica(scenario);
  std::string axes;
  if (!layout.parallel.alone())
    axes = fmt::format("; {} data x {} pipeline x {} tensor", ways, layout.parallel.pipeline, layout.parallel.tensor);
  if (layout.parallel.expert > 1)
    axes = layout.parallel.pipeline * layout.parallel.tensor > 1
               ? fmt::format("{}, experts over {} of the data axis", axes, layout.parallel.expert)
               : fmt::format("; {} data, experts over {} of them", ways, layout.parallel.expert);
  if (layout.parallel.context > 1)
    axes =
        fmt::format("; {} data x {} pipeline x {} context{}{}", ways, layout.parallel.pipeline, layout.parallel.context,
                    layout.parallel.ring_attention ? ", ring" : "", layout.parallel.context_zigzag ? " (zigzag)" : "");
  if (layout.parallel.shard_group > 0) axes += fmt::format("; shards in groups of {}", layout.parallel.shard_group);
  if (layout.zero.stage == 3 && layout.zero.hpz_partition > 1)
    axes += fmt::format("; secondary shards in groups of {}", layout.zero.hpz_partition);
  if (layout.parallel.gather_rule != nullptr) axes += "; gathers by " + layout.parallel.own_gather;
  if (scenario.train.definition.quantised.on())
    axes += fmt::format("; gathers in 8 bits, a scale for {} elements", scenario.train.definition.quantised.block);
  if (const runtime::QuantisedGradientsPlan& q = scenario.train.definition.quantised_gradients; q.on())
    axes += fmt::format("; gradients of {} groups in {} bits{}", q.groups, q.bits,
                        q.inner > 1 ? fmt::format(", sums of {} in {}", q.inner, q.outer_bits) : "");
  return fmt::format("  layout    ZeRO stage {}, {}{}; micro-batch {} x {} accumulation step{}\n", layout.zero.stage,
                     name(scenario.train.definition.precision.compute), axes, layout.micro_batch, accumulation,
                     accumulation == 1 ? "" : "s");
}

}  // namespace

std::string header_text(const Scenario& scenario, const Style& style) {
  const runtime::Definition& d = scenario.train.definition;
  const sim::WorldPlan& w = scenario.world;
  std::string out = fmt::format("{}  seed {}, training seed {}\n", style.bold(scenario.name), w.seed, d.training_seed);
  if (!scenario.why.empty()) out += fmt::format("  {}\n", scenario.why);
  out += fmt::format("  world     {} rank{} ({} x {}), {}\n", w.ranks(), w.ranks() == 1 ? "" : "s", w.nodes,
                     w.ranks_per_node, w.network);
  std::string own = d.model.llama() ? fmt::format(" ({} of keys), mlp {}", d.model.key_heads(), d.model.hidden()) : "";
  if (d.model.experts.on()) own += experts_text(d.model);
  out += fmt::format("  model     {}: {} layers, width {}, {} heads{}, context {}, vocabulary {}; {} parameters\n",
                     d.model.family, d.model.layers, d.model.width, d.model.heads, own, d.model.context, d.model.vocab,
                     count_text(estimate(scenario).parameters));
  const std::string source = d.data.synthetic ? "synthetic tokens"
                             : !scenario.given.batches.empty()
                                 ? scenario.given.batches
                                 : fmt::format("{} ({})", d.data.text, bytes_text(double(d.data.bytes.size())));
  out += fmt::format("  training  {} step{} of {} samples from {}; {}, lr {}{}\n", d.steps, d.steps == 1 ? "" : "s",
                     d.global_batch, source, d.optimizer.type, d.optimizer.lr,
                     d.scheduler.type.empty() ? "" : ", " + d.scheduler.type);
  if (const runtime::StalenessPlan& late = d.staleness; late.on())
    out += fmt::format("  workers   {}, whose gradients come at most {} step{} late\n", late.workers, late.bound,
                       late.bound == 1 ? "" : "s");
  if (const runtime::LocalSgdPlan& local = d.local_sgd; local.on())
    out += fmt::format("  workers   {} train apart; an outer step every {} step{}\n", local.workers, local.every,
                       local.every == 1 ? "" : "s");
  if (d.optimizer.ema_decay > 0) out += fmt::format("  mean      of weights, decay {}\n", d.optimizer.ema_decay);
  if (d.precision.stochastic_rounding) out += "  rounding  of weights at random\n";
  out += layout_line(scenario);
  constexpr std::size_t kFaultsTold = 100;
  if (scenario.faults.size() > kFaultsTold) {
    out += fmt::format("  faults    {} rules, {} of them drawn by the seed; --out writes those that came\n",
                       scenario.faults.size(), scenario.drawn_faults);
  }
  for (const OwnFaultSpec& fault : scenario.own_faults)
    out += fmt::format("  own fault {} {}\n", fault.name, fault.parameters);
  for (std::size_t i = 0; i < scenario.faults.size() && scenario.faults.size() <= kFaultsTold; ++i) {
    out += fmt::format("  faults.{}  {}\n", i, faults::text(faults::with_defaults(scenario.faults[i])));
  }
  if (!scenario.train.bug.is(runtime::Bug::none)) {
    out += style.bad(fmt::format("  A BUG IS PLANTED IN THE RUNTIME: {}\n", runtime::text(scenario.train.bug)));
  }
  if (d.quirks.any()) {
    out += style.bad(
        fmt::format("  QUIRKS ARE ON (not seeksim's own semantics): {}\n", fmt::join(quirk_names(d.quirks), ", ")));
  }
  for (const std::string& note : scenario.notes) out += style.faint(fmt::format("  note      {}\n", note));
  return out;
}

std::string report_a_bug(const Scenario& scenario) {
  return fmt::format(
      "This is a bug in seeksim. Please report it with the scenario and the command:\n  seeksim run {} --seed {}\n",
      scenario.file, scenario.world.seed);
}

std::string replay_text(const Evidence& e, const Style& style) {
  constexpr std::size_t kTold = 8;
  std::string out;
  for (std::size_t i = 0; i < std::min(kTold, e.run.fault_decisions.size()); ++i) {
    const FaultDecision& one = e.run.fault_decisions[i];
    out += fmt::format("  fault     faults.{} on rank {} at {:.9f} s{}\n", one.rule, one.rank, seconds(one.at_ns),
                       one.op.empty() ? "" : ", in " + one.op);
  }
  if (e.run.fault_decisions.size() > kTold)
    out += fmt::format("  fault     ... {} more in the report\n", e.run.fault_decisions.size() - kTold);
  const std::string file = e.scenario.file.empty() ? "SCENARIO" : e.scenario.file;
  return style.faint(out +
                     fmt::format("  replay    seeksim run {} --schedule {}\n", file, schedule_string(e.scenario)));
}

// The steps in which one expert of a layer had most, and in which most found no room.
std::string experts_text(const Evidence& e) {
  const std::vector<ExpertLoad> loads = e.run.training.choices.loads();
  if (loads.empty()) return "";
  const auto most = [&](double ExpertLoad::*what) { return *std::ranges::max_element(loads, {}, what); };
  const ExpertLoad share = most(&ExpertLoad::share), dropped = most(&ExpertLoad::dropped);
  std::string out = fmt::format(
      "  experts   {:.1f} % of a layer's choices for one expert at most (step {}, layer {}, "
      "expert {}; even: {:.1f} %)",
      100 * share.share, share.step, share.layer, share.expert,
      100.0 / e.scenario.train.definition.model.experts.count);
  if (dropped.dropped > 0)
    out += fmt::format("; {:.1f} % of all choices dropped at most (step {})", 100 * dropped.dropped, dropped.step);
  return out + '\n';
}

std::string story_text(const Evidence& e, const Judgement& j, const Style& style) {
  std::string out = '\n' + story_of(e.run, style) + '\n' + attempts(e.run) + checkpoints(e.run) + losses(e.run) +
                    evaluations_text(e.run) + experts_text(e) + fast_text(e) + births(e.run) + rerun_text(e.run) +
                    range_log(e.run) + pipeline(e) + overlap(e.run) + copies(e.run) + files(e.run) + alike(e.run) +
                    memory(e.run) + layout(e) + goodput(e) + findings(e.run) + endings(e.run);
  if (e.run.end == sim::WorldEnd::deadlock && !e.run.wait_for_graph.empty()) {
    out += "  who waits for whom, at the moment nothing could progress:\n";
    for (const std::string& line : waits_of(e.run.wait_for_graph)) out += "    " + line + '\n';
  }
  if (!j.stopped.empty()) {
    const StopReason why = classify(e.run, j.stopped);
    out += fmt::format("  stop      failure domain: {}, outlook: {}\n", why.domain, why.outlook);
  }
  out += '\n';
  std::size_t width = 0;
  for (const CheckResult& check : j.checks) width = std::max(width, check.name.size());
  for (const CheckResult& check : j.checks) {
    out += fmt::format("  {}  {:<{}}  {}\n", check.ok ? style.good("ok  ") : style.bad("FAIL"), check.name,
                       std::min<std::size_t>(width, 40), check.detail);
  }
  const bool good = j.status == ExitStatus::as_expected;
  const std::string word = good                                  ? "PASS"
                           : j.status == ExitStatus::bug         ? "BUG"
                           : j.status == ExitStatus::no_progress ? "NO PROGRESS"
                                                                 : "FAIL";
  const auto state = e.run.state();
  out += fmt::format("{} {}: {}  (virtual {:.6f} s, wall {:.2f} s{})\n", good ? style.good(word) : style.bad(word),
                     e.scenario.name, j.sentence, seconds(e.run.virtual_ns), e.run.wall_s,
                     state ? ", params " + hex(state->params) : "");
  return out;
}

}  // namespace seeksim::harness
