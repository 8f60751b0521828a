#include "harness/oracles/whole_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/oracles/arguments.h"
#include "harness/oracles/goodput.h"
#include "harness/record/same_bits.h"
#include "runtime/decide/memory_ladder.h"
#include "runtime/recovery/train.h"
#include "runtime/rules/bugs.h"
#include "runtime/seams/rank_names.h"
#include "runtime/seams/time.h"

namespace seeksim::harness {
namespace {

using How = RankRecord::How;
using runtime::rank_list;
using runtime::seconds;

std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.empty()) return "none";
  return fmt::format("{}{}", ranks.size() == 1 ? "rank " : "ranks ", rank_list(ranks));
}

std::vector<int> finished(const RunRecord& run) {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < run.ranks.size(); ++i) {
    if (run.ranks[i].how == How::finished) ranks.push_back(int(i));
  }
  return ranks;
}

std::string numbers(const runtime::StepRecord& step) {
  return fmt::format("loss {}, norm {}", step.loss, step.grad_norm);
}

}  // namespace

namespace {
Finding golden_gradients(const Evidence& e) {
  const std::vector<std::uint64_t>&have = e.run.training.gradient_digests, &want = e.golden->gradients;
  if (want.empty()) return blind("the golden has no gradients");
  if (have.empty()) return blind("no gradients were recorded");
  if (!e.run.training.gradients_disagree.empty())
    return bad(e.run.training.gradients_disagree + " had other gradients than the first");
  for (std::size_t i = 0; i < std::min(have.size(), want.size()); ++i) {
    if (have[i] != want[i]) return bad(fmt::format("gradients of step {} differ from the golden's", i));
  }
  if (have.size() != want.size()) return bad(fmt::format("{} steps instead of {}", have.size(), want.size()));
  return good(fmt::format("gradients of {} steps, before clipping, equal the golden's", have.size()));
}

bool contains(const std::vector<std::int64_t>& steps, std::int64_t step) {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

// How the golden is of another training than the run.
struct OtherTraining {
  std::string why;        // empty: both train alike
  std::size_t steps = 0;  // so many are alike all the same
};

// The golden leaves out batches, or a change of the configuration, because the loss was to diverge; in this run it did
// not.
// Or it skips a step because of a fault, and a recovery redid that step without the fault, which strikes once.
OtherTraining other_training(const Evidence& e) {
  for (const runtime::StepRecord& step : e.run.steps) {
    const auto redid = [&](const Recovery& recovery) { return recovery.step - recovery.steps_lost <= step.step; };
    if (step.skipped || !contains(e.scenario.golden.skip_steps, step.step)) continue;
    if (std::any_of(e.run.detection.recoveries.begin(), e.run.detection.recoveries.end(), redid))
      return {fmt::format("the golden skips step {}, which this run did again after a recovery and applied", step.step),
              std::size_t(step.step)};
  }
  const std::vector<std::int64_t>&batches = e.scenario.golden.drop_batches, &undone = e.scenario.golden.undo_changes;
  const auto& divergences = e.run.detection.divergences;
  if (!batches.empty() && divergences.empty()) {
    return {fmt::format("the golden leaves out batches {}, and no step of this run diverged, so that it left out none",
                        fmt::join(batches, ", ")),
            std::size_t(batches.front())};
  }
  for (const std::int64_t step : undone) {
    if (std::any_of(divergences.begin(), divergences.end(), [&](const auto& d) { return d.undoes_change == step; }))
      continue;
    return {fmt::format("the golden leaves out the change of step {}, which this run did not undo", step),
            std::size_t(step)};
  }
  return {};
}
}  // namespace

namespace {
// Where held-out losses are not the golden's; empty: nowhere.
std::string other_evaluations(const Evidence& e) {
  const auto& have = e.run.training.evaluations;
  const auto& want = e.golden->evaluations;
  for (const auto& [steps, loss] : want) {
    if (steps < e.run.training.resumed_from) continue;  // of an earlier run of the program
    const auto at = std::find_if(have.begin(), have.end(), [s = steps](const auto& one) { return one.steps == s; });
    if (at == have.end()) return fmt::format("there is no held-out loss after {} steps", steps);
    if (!same_bits(at->loss, loss))
      return fmt::format("held-out loss after {} steps is {} instead of {}", steps, at->loss, loss);
  }
  return "";
}
}  // namespace

Finding golden(const Evidence& e, const std::string& what) {
  const std::vector<int> ranks = finished(e.run);
  if (e.golden != nullptr && what == "gradients") return golden_gradients(e);
  if (e.golden == nullptr) return blind("there is no golden to compare with");
  if (ranks.empty()) return blind("no rank finished, so there is no state to compare");
  const Golden& want = *e.golden;
  const std::vector<std::int64_t>& left_out = e.scenario.golden.skip_steps;
  const OtherTraining other = other_training(e);
  std::size_t comparable = std::min(e.run.steps.size(), want.loss.size());
  if (!other.why.empty()) comparable = std::min(comparable, other.steps);
  for (std::size_t i = 0; i < comparable; ++i) {
    const runtime::StepRecord& step = e.run.steps[i];
    if (step.step < e.run.training.resumed_from) continue;  // of an earlier run of the program
    if (contains(left_out, step.step)) {
      if (!step.skipped) return bad(fmt::format("step {} was applied, which the golden skips", i));
      continue;
    }
    if (!same_bits(step.loss, want.loss[i]))
      return bad(fmt::format("loss of step {} is {} instead of {}", i, step.loss, want.loss[i]));
    if (!same_bits(step.grad_norm, want.grad_norm.at(i))) {
      return bad(fmt::format("gradient norm of step {} is {} instead of {}", i, step.grad_norm, want.grad_norm[i]));
    }
  }
  if (!other.why.empty()) return blind(other.why);
  if (const std::string differs = other_evaluations(e); !differs.empty()) return bad(differs);
  for (const int rank : ranks) {
    const std::string differs = difference(want, e.run.ranks[std::size_t(rank)].state);
    if (!differs.empty()) return bad(fmt::format("rank {}: {}", rank, differs));
  }
  if (e.run.steps.size() != want.loss.size())
    return bad(fmt::format("{} steps instead of {}", e.run.steps.size(), want.loss.size()));
  const std::string held_out =
      want.evaluations.empty() ? std::string() : fmt::format(" and {} held-out ones", want.evaluations.size());
  return good(fmt::format("weights {}, optimizer, data position and {} losses{} equal the golden's on {}",
                          hex(want.state.params), want.loss.size(), held_out, ranks_text(ranks)));
}

Finding ranks_agree(const Evidence& e, const std::string&) {
  const std::vector<int> ranks = finished(e.run);
  if (!e.run.training.disagreements.empty()) {
    const Disagreement& d = e.run.training.disagreements.front();
    return bad(fmt::format("step {}: rank {} has {}, another {}", d.step, d.rank, numbers(d.seen), numbers(d.first)));
  }
  if (ranks.size() < 2) return blind(fmt::format("{} finished; two are needed to compare", ranks_text(ranks)));
  const runtime::StateDigest& first = e.run.ranks[std::size_t(ranks[0])].state;
  for (const int rank : ranks) {
    if (e.run.ranks[std::size_t(rank)].state == first) continue;
    Golden other;
    other.state = first;
    return bad(fmt::format("rank {} and rank {}: {}", rank, ranks[0],
                           difference(other, e.run.ranks[std::size_t(rank)].state)));
  }
  if (e.run.training.step_comparisons == 0) return blind("no step was committed by two ranks");
  return good(
      fmt::format("{} hold the same state; {} losses compared",
                  ranks.size() == e.run.ranks.size() ? fmt::format("all {} ranks", ranks.size()) : ranks_text(ranks),
                  e.run.training.step_comparisons));
}

Finding faults_fired(const Evidence& e, const std::string&) {
  if (e.run.faults.empty() && e.run.own_faults.empty()) return blind("the scenario has no faults");
  std::vector<std::string> idle;
  std::uint64_t fired = 0;
  for (std::size_t i = 0; i < e.run.own_faults.size(); ++i) {
    fired += e.run.own_faults[i].fired;
    if (e.run.own_faults[i].fired == 0)
      idle.push_back(fmt::format("own_faults.{} never fired: {}", i, e.run.own_faults[i].name));
  }
  const std::size_t written = e.run.faults.size() - std::min(e.run.faults.size(), e.scenario.drawn_faults);
  for (std::size_t i = 0; i < e.run.faults.size(); ++i) {
    fired += e.run.faults[i].fired;
    if (i >= written || e.run.faults[i].fired > 0) continue;
    const std::string met =
        i < e.scenario.faults.size() ? "; " + met_text(e.scenario.faults[i], e.run.faults[i]) : std::string();
    idle.push_back(fmt::format("faults.{} never fired: {}{}", i, e.run.faults[i].text, met));
  }
  if (!idle.empty()) return bad(fmt::format("{}", fmt::join(idle, "; ")));
  if (e.scenario.drawn_faults > 0)
    return good(fmt::format("{} times together; {} of {} rules were drawn", fired, e.scenario.drawn_faults,
                            e.run.faults.size()));
  const std::size_t rules = e.run.faults.size() + e.run.own_faults.size();
  return good(rules == 1 ? fmt::format("fired {} time{}", fired, fired == 1 ? "" : "s")
                         : fmt::format("all {} rules, {} times together", rules, fired));
}

namespace {
// "5", "2,5", "link:1->0": the names of a diagnosis in the same form.
std::string culprits_of(const runtime::Diagnosis& diagnosis) {
  std::vector<std::string> parts;
  if (diagnosis.links.empty()) {
    for (const int rank : diagnosis.culprits) parts.push_back(std::to_string(rank));
  }
  for (const auto& [from, to] : diagnosis.links) parts.push_back(fmt::format("link:{}->{}", from, to));
  return fmt::format("{}", fmt::join(parts, ","));
}
}  // namespace

Finding culprit(const Evidence& e, const std::string& wanted) {
  if (e.run.detection.recoveries.empty()) return blind("nothing was diagnosed, since there was no recovery");
  const Recovery& first = e.run.detection.recoveries.front();
  std::vector<std::string> want = split(wanted), named = split(culprits_of(first.diagnosis));
  std::sort(want.begin(), want.end());
  std::sort(named.begin(), named.end());
  if (want != named) {
    return bad(fmt::format(
        "named instead: {} ({})",
        first.diagnosis.culprits.empty() && first.diagnosis.links.empty() ? "nobody" : culprits_of(first.diagnosis),
        first.diagnosis.text));
  }
  if (!first.of_another_mind.empty()) {
    return bad(fmt::format("{} named others", ranks_text(first.of_another_mind)));
  }
  return good(first.diagnosis.text);
}

Finding finishes_within(const Evidence& e, const std::string& limit) {
  const double took = seconds(e.run.virtual_ns);
  if (e.run.end != sim::WorldEnd::finished) return blind("the run did not finish");
  const std::string detail = fmt::format("{:.6g} s of virtual time", took);
  return took <= std::stod(limit) ? good(detail) : bad(detail);
}

Finding no_recovery(const Evidence& e, const std::string&) {
  if (e.run.detection.recoveries.empty()) return good("none was needed");
  return bad(
      fmt::format("{}: {}", e.run.detection.recoveries.size(), e.run.detection.recoveries.front().diagnosis.text));
}

Finding recoveries(const Evidence& e, const std::string& wanted) {
  const std::size_t n = e.run.detection.recoveries.size();
  return n == std::stoull(wanted) ? good(fmt::format("{} of them", n)) : bad(fmt::format("there were {}", n));
}

Finding evicted(const Evidence& e, const std::string& wanted) {
  std::set<int> gone;
  for (const Recovery& recovery : e.run.detection.recoveries)
    gone.insert(recovery.evicted.begin(), recovery.evicted.end());
  for (std::size_t i = 0; i < e.run.ranks.size(); ++i) {
    if (e.run.ranks[i].how == How::evicted || e.run.ranks[i].how == How::died) gone.insert(int(i));
  }
  std::set<int> want;
  if (wanted != "none") {
    for (const std::string& rank : split(wanted)) want.insert(std::stoi(rank));
  }
  const std::string detail = gone.empty() ? "no rank left" : ranks_text({gone.begin(), gone.end()});
  return gone == want ? good(detail) : bad(detail);
}

Finding joined(const Evidence& e, const std::string& wanted) {
  std::set<int> in;
  for (const runtime::JoinRecord& join : e.run.detection.joins) in.insert(join.ranks.begin(), join.ranks.end());
  std::set<int> want;
  if (wanted != "none") {
    for (const std::string& rank : split(wanted)) want.insert(std::stoi(rank));
  }
  const std::string detail = in.empty() ? "no rank joined" : ranks_text({in.begin(), in.end()});
  return in == want ? good(detail) : bad(detail);
}

namespace {

// Whether every weight at the end has the bits that it began with. (Kept in 16 bits alone, they have other digests.)
bool nothing_was_trained(const Evidence& e) {
  const auto state = e.run.state();
  if (!state || state->by_tensor.empty() || e.run.training.resumed_from > 0) return false;
  return state->by_tensor == runtime::initial_digests(e.scenario.train.definition);
}

}  // namespace

// Other batches alone may have another loss: where nothing was trained, none fell.
Finding loss_falls(const Evidence& e, const std::string&) {
  const std::size_t n = e.run.steps.size();
  if (n < 2) return blind(fmt::format("{} steps; two are needed to compare", n));
  const bool all_skipped =
      std::all_of(e.run.steps.begin(), e.run.steps.end(), [](const runtime::StepRecord& step) { return step.skipped; });
  if (all_skipped) return bad(fmt::format("no step was applied: all {} were skipped", n));
  if (nothing_was_trained(e)) return bad(fmt::format("after {} steps the weights are those of the beginning", n));
  const std::size_t part = std::max<std::size_t>(1, n / 4);
  double first = 0, last = 0;
  for (std::size_t i = 0; i < part; ++i) {
    first += double(e.run.steps[i].loss) / double(part);
    last += double(e.run.steps[n - 1 - i].loss) / double(part);
  }
  const std::string detail =
      fmt::format("{:.6g} -> {:.6g} (means of {} step{})", first, last, part, part == 1 ? "" : "s");
  return last < first ? good(detail) : bad(detail);
}

Finding slowdown(const Evidence& e, const std::string& least) {
  if (!e.undisturbed_ns || *e.undisturbed_ns <= 0) return blind("there is no fault-free run to compare with");
  if (e.run.end != sim::WorldEnd::finished) return blind("the run did not finish");
  const double ratio = double(e.run.virtual_ns) / double(*e.undisturbed_ns);
  const std::string detail = fmt::format("{:.6g} s instead of {:.6g} s: {:.4g} times", seconds(e.run.virtual_ns),
                                         seconds(*e.undisturbed_ns), ratio);
  return ratio >= std::stod(least) ? good(detail) : bad(detail);
}

Finding overlap(const Evidence& e, const std::string& least) {
  if (e.run.traffic.overlap.in_flight_ns == 0) return blind("no step communicated");
  const std::string detail = fmt::format("{:.4g} of {:.6g} s in flight, over all ranks", e.run.traffic.overlap.share(),
                                         seconds(e.run.traffic.overlap.in_flight_ns));
  return e.run.traffic.overlap.share() >= std::stod(least) ? good(detail) : bad(detail);
}

namespace {
Goodput goodput_of(const Evidence& e) { return goodput_of(e.run, *e.step_s, e.scenario.train.checkpoint.every_steps); }
}  // namespace

Finding goodput(const Evidence& e, const std::string& least) {
  if (!e.step_s) return blind("the duration of a fault-free step is not known");
  const Goodput g = goodput_of(e);
  if (g.steps == 0 || g.virtual_s <= 0) return blind("no step was committed");
  const std::string detail =
      fmt::format("{:.4g}: {} steps of {:.4g} s in {:.6g} s", g.ettr, g.steps, g.step_s, g.virtual_s);
  return g.ettr >= std::stod(least) ? good(detail) : bad(detail);
}

Finding young_daly(const Evidence& e, const std::string& percent) {
  if (!e.step_s) return blind("the duration of a fault-free step is not known");
  const Goodput g = goodput_of(e);
  if (!g.formula) return blind("there were no checkpoints at intervals, or no failures");
  const double waste = 1 - g.ettr, off = 100 * (waste / g.formula->waste - 1);
  const std::string detail = fmt::format("{:.4g} is lost and {:.4g} by the formula: {:+.3g} %, over {} failures", waste,
                                         g.formula->waste, off, g.failures);
  return std::fabs(off) <= std::stod(percent) ? good(detail) : bad(detail);
}

Finding straggler(const Evidence& e, const std::string& wanted) {
  if (!e.scenario.train.recovery.straggler.on) return blind("straggler detection is off (recovery.straggler)");
  if (e.run.detection.scores.empty()) return blind("no two whole steps of one world were measured");
  std::set<int> found, want;
  for (const runtime::StragglerRecord& one : e.run.detection.stragglers) found.insert(one.rank);
  if (wanted != "none") {
    for (const std::string& rank : split(wanted)) want.insert(std::stoi(rank));
  }
  double least = 1;
  for (const auto& [rank, score] : e.run.detection.scores) least = std::min(least, score.mean());
  const std::string detail = fmt::format("{} too slow; the lowest mean score is {:.3f}",
                                         found.empty() ? "nobody is" : ranks_text({found.begin(), found.end()}), least);
  return found == want ? good(detail) : bad(detail);
}

Finding diverged(const Evidence& e, const std::string& wanted) {
  const runtime::DivergencePlan& plan = e.scenario.train.recovery.divergence;
  if (!plan.on) return blind("divergence detection is off (recovery.divergence)");
  if (std::int64_t(e.run.steps.size()) <= plan.window_steps && e.run.detection.divergences.empty())
    return blind(fmt::format("the window of {} steps was never full", plan.window_steps));
  std::vector<std::string> found;
  for (const runtime::DivergenceRecord& one : e.run.detection.divergences) found.push_back(std::to_string(one.step));
  const std::string steps = found.empty() ? "none" : fmt::format("{}", fmt::join(found, ","));
  const std::string detail = found.empty() ? "no step" : "step " + steps;
  return steps == wanted ? good(detail) : bad(detail);
}

// Which parts of a layout are named; the others may be anything.
Finding layout(const Evidence& e, const std::string& wanted) {
  const std::vector<int> ranks = finished(e.run);
  if (ranks.empty()) return blind("no rank finished, so there is no last layout");
  const std::string seen = runtime::text(e.run.layout());
  for (const int rank : ranks) {
    const std::string other = runtime::text(e.run.ranks[std::size_t(rank)].layout);
    if (other != seen) return bad(fmt::format("rank {}: {}, rank {}: {}", ranks[0], seen, rank, other));
  }
  const std::vector<std::string> parts = parts_of_layout(seen);
  for (const std::string& part : parts_of_layout(wanted)) {
    if (std::find(parts.begin(), parts.end(), part) == parts.end()) return bad(seen);
  }
  return good(seen);
}

Finding no_races(const Evidence& e, const std::string&) {
  if (!e.run.races.watched) return blind("the race detector was off");
  if (e.run.races.accesses == 0) return blind("no access to device memory was declared");
  if (e.run.races.found.empty())
    return good(fmt::format("{} device memory accesses are ordered", e.run.races.accesses));
  const sim::Race& first = e.run.races.found.front();
  const runtime::PlantedBug& bug = e.scenario.train.bug;
  const std::string planted = bug.is(runtime::Bug::none) ? "" : fmt::format(" (planted: {})", runtime::text(bug));
  return bad(fmt::format("{} pair{} of call sites, first rank {}: {}{}", e.run.races.found.size(),
                         e.run.races.found.size() == 1 ? "" : "s", first.rank, first.text, planted));
}

// A recovery brings state back by other ways than launches, and an abort leaves what was declared to be written half
// done: what has been written is only known in a run without either.
static bool judges_reads(const RunRecord& run) {
  return run.numbers.reads > 0 && run.detection.recoveries.empty() && run.detection.joins.empty() &&
         run.training.attempts.size() <= 1;
}

bool has_poison_to_judge(const Evidence& e) {
  return e.run.numbers.poison_looks > 0 || (judges_reads(e.run) && !e.run.numbers.unwritten.empty());
}

Finding no_poison(const Evidence& e, const std::string&) {
  const RunRecord::Numbers& seen = e.run.numbers;
  const bool judged = judges_reads(e.run);
  const std::string first =
      judged && !seen.unwritten.empty()
          ? fmt::format("{}{}", seen.unwritten.front().text,
                        seen.unwritten.size() > 1 ? fmt::format(" (and {} more)", seen.unwritten.size() - 1) : "")
          : "";
  if (!seen.poison.empty()) return bad(seen.poison.front() + (first.empty() ? "" : "; " + first));
  if (!first.empty()) return bad(first);
  if (seen.poison_looks == 0) return blind("no rank finished, and no step had a value that is not finite");
  const std::string reads = judged ? fmt::format(" and {} declared reads", seen.reads) : "";
  return good(fmt::format("{} result values{} checked; all were written before use", seen.poison_looks, reads));
}

}  // namespace seeksim::harness
