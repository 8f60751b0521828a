#include "harness/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <regex>
#include <set>

#include <nlohmann/json.hpp>

#include "harness/checkpoint_checks.h"
#include "harness/fast.h"
#include "harness/fault_rules.h"
#include "harness/numbers.h"
#include "harness/oracles.h"
#include "harness/parallel_checks.h"
#include "harness/problem.h"
#include "harness/quirks.h"
#include "harness/report.h"
#include "harness/rerun.h"
#include "harness/same_bits.h"
#include "runtime/memory_ladder.h"

namespace seeksim::harness {
namespace {

using How = RankRecord::How;

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

// ---- the judges ----------------------------------------------------------------------------------------------------

Finding golden_gradients(const Evidence& e) {
  const std::vector<std::uint64_t>&have = e.run.gradient_digests, &want = e.golden->gradients;
  if (want.empty()) return blind("the golden has no gradients");
  if (have.empty()) return blind("no gradients were recorded");
  if (!e.run.gradients_disagree.empty()) return bad(e.run.gradients_disagree + " had other gradients than the first");
  for (std::size_t i = 0; i < std::min(have.size(), want.size()); ++i) {
    if (have[i] != want[i]) return bad(fmt::format("gradients of step {} differ from the one-rank run's", i));
  }
  if (have.size() != want.size()) return bad(fmt::format("{} steps instead of {}", have.size(), want.size()));
  return good(fmt::format("gradients of {} steps, before clipping, equal the one-rank run's", have.size()));
}

Finding golden(const Evidence& e, const std::string& what) {
  const std::vector<int> ranks = finished(e.run);
  if (e.golden != nullptr && what == "gradients") return golden_gradients(e);
  if (e.golden == nullptr) return blind("there is no golden to compare with");
  if (ranks.empty()) return blind("no rank finished, so there is no state to compare");
  const Golden& want = *e.golden;
  const std::vector<std::int64_t>& left_out = e.scenario.golden_skip_steps;
  for (std::size_t i = 0; i < std::min(e.run.steps.size(), want.loss.size()); ++i) {
    const runtime::StepRecord& step = e.run.steps[i];
    if (step.step < e.run.resumed_from) continue;  // of an earlier run of the program
    if (std::find(left_out.begin(), left_out.end(), step.step) != left_out.end()) {
      if (!step.skipped) return bad(fmt::format("step {} was applied, which the golden skips", i));
      continue;
    }
    if (!same_bits(step.loss, want.loss[i]))
      return bad(fmt::format("loss of step {} is {} instead of {}", i, step.loss, want.loss[i]));
    if (!same_bits(step.grad_norm, want.grad_norm.at(i))) {
      return bad(fmt::format("gradient norm of step {} is {} instead of {}", i, step.grad_norm, want.grad_norm[i]));
    }
  }
  for (const int rank : ranks) {
    const std::string differs = difference(want, e.run.ranks[std::size_t(rank)].state);
    if (!differs.empty()) return bad(fmt::format("rank {}: {}", rank, differs));
  }
  if (e.run.steps.size() != want.loss.size())
    return bad(fmt::format("{} steps instead of {}", e.run.steps.size(), want.loss.size()));
  return good(fmt::format("weights {}, optimizer, data position and {} losses equal the one-rank run's on {}",
                          hex(want.state.params), want.loss.size(), ranks_text(ranks)));
}

Finding ranks_agree(const Evidence& e, const std::string&) {
  const std::vector<int> ranks = finished(e.run);
  if (!e.run.disagreements.empty()) {
    const Disagreement& d = e.run.disagreements.front();
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
  if (e.run.step_comparisons == 0) return blind("no step was committed by two ranks");
  return good(
      fmt::format("{} hold the same state; {} losses compared",
                  ranks.size() == e.run.ranks.size() ? fmt::format("all {} ranks", ranks.size()) : ranks_text(ranks),
                  e.run.step_comparisons));
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
    idle.push_back(fmt::format("faults.{} never fired: {}", i, e.run.faults[i].text));
  }
  if (!idle.empty()) return bad(fmt::format("{}", fmt::join(idle, "; ")));
  if (e.scenario.drawn_faults > 0)
    return good(fmt::format("{} times together; {} of {} rules were drawn", fired, e.scenario.drawn_faults,
                            e.run.faults.size()));
  const std::size_t rules = e.run.faults.size() + e.run.own_faults.size();
  return good(rules == 1 ? fmt::format("fired {} time{}", fired, fired == 1 ? "" : "s")
                         : fmt::format("all {} rules, {} times together", rules, fired));
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t from = 0;
  for (;;) {
    const std::size_t comma = text.find(',', from);
    parts.push_back(text.substr(from, comma == std::string::npos ? comma : comma - from));
    if (comma == std::string::npos) return parts;
    from = comma + 1;
  }
}

std::vector<std::string> parts_of_layout(const std::string& text) {
  std::vector<std::string> parts = split(text);
  for (std::string& part : parts) part.erase(0, part.find_first_not_of(' '));
  return parts;
}

// "5", "2,5", "link:1->0": the names of a diagnosis in the same form.
std::string culprits_of(const runtime::Diagnosis& diagnosis) {
  std::vector<std::string> parts;
  if (diagnosis.links.empty()) {
    for (const int rank : diagnosis.culprits) parts.push_back(std::to_string(rank));
  }
  for (const auto& [from, to] : diagnosis.links) parts.push_back(fmt::format("link:{}->{}", from, to));
  return fmt::format("{}", fmt::join(parts, ","));
}

Finding culprit(const Evidence& e, const std::string& wanted) {
  if (e.run.recoveries.empty()) return blind("nothing was diagnosed: there was no recovery");
  const Recovery& first = e.run.recoveries.front();
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
  if (e.run.recoveries.empty()) return good("none was needed");
  return bad(fmt::format("{}: {}", e.run.recoveries.size(), e.run.recoveries.front().diagnosis.text));
}

Finding recoveries(const Evidence& e, const std::string& wanted) {
  const std::size_t n = e.run.recoveries.size();
  return n == std::stoull(wanted) ? good(fmt::format("{} of them", n)) : bad(fmt::format("there were {}", n));
}

Finding evicted(const Evidence& e, const std::string& wanted) {
  std::set<int> gone;
  for (const Recovery& recovery : e.run.recoveries) gone.insert(recovery.evicted.begin(), recovery.evicted.end());
  for (std::size_t i = 0; i < e.run.ranks.size(); ++i) {
    if (e.run.ranks[i].how == How::evicted || e.run.ranks[i].how == How::died) gone.insert(int(i));
  }
  std::set<int> want;
  if (wanted != "none") {
    for (const std::string& rank : split(wanted)) want.insert(std::stoi(rank));
  }
  const std::string detail = gone.empty() ? "nobody left" : ranks_text({gone.begin(), gone.end()});
  return gone == want ? good(detail) : bad(detail);
}

Finding joined(const Evidence& e, const std::string& wanted) {
  std::set<int> in;
  for (const runtime::JoinRecord& join : e.run.joins) in.insert(join.ranks.begin(), join.ranks.end());
  std::set<int> want;
  if (wanted != "none") {
    for (const std::string& rank : split(wanted)) want.insert(std::stoi(rank));
  }
  const std::string detail = in.empty() ? "nobody came in" : ranks_text({in.begin(), in.end()});
  return in == want ? good(detail) : bad(detail);
}

Finding loss_falls(const Evidence& e, const std::string&) {
  const std::size_t n = e.run.steps.size();
  if (n < 2) return blind(fmt::format("{} steps; two are needed to compare", n));
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
  if (!e.undisturbed_ns || *e.undisturbed_ns <= 0) return blind("there is no undisturbed run to compare with");
  if (e.run.end != sim::WorldEnd::finished) return blind("the run did not finish");
  const double ratio = double(e.run.virtual_ns) / double(*e.undisturbed_ns);
  const std::string detail = fmt::format("{:.6g} s instead of {:.6g} s: {:.4g} times", seconds(e.run.virtual_ns),
                                         seconds(*e.undisturbed_ns), ratio);
  return ratio >= std::stod(least) ? good(detail) : bad(detail);
}

Finding overlap(const Evidence& e, const std::string& least) {
  if (e.run.overlap.in_flight_ns == 0) return blind("no step communicated");
  const std::string detail = fmt::format("{:.4g} of {:.6g} s in flight, over all ranks", e.run.overlap.share(),
                                         seconds(e.run.overlap.in_flight_ns));
  return e.run.overlap.share() >= std::stod(least) ? good(detail) : bad(detail);
}

Goodput goodput_of(const Evidence& e) { return goodput_of(e.run, *e.step_s, e.scenario.train.checkpoint.every_steps); }

Finding goodput(const Evidence& e, const std::string& least) {
  if (!e.step_s) return blind("how long an undisturbed step takes is not known");
  const Goodput g = goodput_of(e);
  if (g.steps == 0 || g.virtual_s <= 0) return blind("no step was committed");
  const std::string detail =
      fmt::format("{:.4g}: {} steps of {:.4g} s in {:.6g} s", g.ettr, g.steps, g.step_s, g.virtual_s);
  return g.ettr >= std::stod(least) ? good(detail) : bad(detail);
}

Finding young_daly(const Evidence& e, const std::string& percent) {
  if (!e.step_s) return blind("how long an undisturbed step takes is not known");
  const Goodput g = goodput_of(e);
  if (!g.formula) return blind("there were no checkpoints at intervals, or no failures");
  const double waste = 1 - g.ettr, off = 100 * (waste / g.formula->waste - 1);
  const std::string detail = fmt::format("{:.4g} is lost and {:.4g} by the formula: {:+.3g} %, over {} failures", waste,
                                         g.formula->waste, off, g.failures);
  return std::fabs(off) <= std::stod(percent) ? good(detail) : bad(detail);
}

Finding straggler(const Evidence& e, const std::string& wanted) {
  if (!e.scenario.train.recovery.straggler.on) return blind("nobody looked for stragglers (recovery.straggler)");
  if (e.run.scores.empty()) return blind("no two whole steps of one world were measured");
  std::set<int> found, want;
  for (const runtime::StragglerRecord& one : e.run.stragglers) found.insert(one.rank);
  if (wanted != "none") {
    for (const std::string& rank : split(wanted)) want.insert(std::stoi(rank));
  }
  double least = 1;
  for (const auto& [rank, score] : e.run.scores) least = std::min(least, score.mean());
  const std::string detail = fmt::format("{} too slow; the lowest mean score is {:.3f}",
                                         found.empty() ? "nobody is" : ranks_text({found.begin(), found.end()}), least);
  return found == want ? good(detail) : bad(detail);
}

Finding diverged(const Evidence& e, const std::string& wanted) {
  const runtime::DivergencePlan& plan = e.scenario.train.recovery.divergence;
  if (!plan.on) return blind("nobody looked (recovery.divergence)");
  if (std::int64_t(e.run.steps.size()) <= plan.window_steps && e.run.divergences.empty())
    return blind(fmt::format("the window of {} steps was never full", plan.window_steps));
  std::vector<std::string> found;
  for (const runtime::DivergenceRecord& one : e.run.divergences) found.push_back(std::to_string(one.step));
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
  if (!e.run.races_watched) return blind("the race detector was off");
  if (e.run.accesses == 0) return blind("no access to device memory was declared");
  if (e.run.races.empty()) return good(fmt::format("{} accesses to device memory are ordered", e.run.accesses));
  const sim::Race& first = e.run.races.front();
  const runtime::PlantedBug& bug = e.scenario.train.bug;
  const std::string planted = bug.is(runtime::Bug::none) ? "" : fmt::format(" (planted: {})", runtime::text(bug));
  return bad(fmt::format("{} pair{} of call sites, first rank {}: {}{}", e.run.races.size(),
                         e.run.races.size() == 1 ? "" : "s", first.rank, first.text, planted));
}

Finding no_poison(const Evidence& e, const std::string&) {
  if (!e.run.poison.empty()) return bad(e.run.poison.front());
  if (e.run.poison_looks == 0) return blind("no rank came to the end, and no step had a value that is not finite");
  return good(fmt::format("{} values of results were all written by somebody", e.run.poison_looks));
}

// ---- arguments -----------------------------------------------------------------------------------------------------

bool is_natural(const std::string& text) {
  return !text.empty() && text.size() < 10 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}
std::string want_none(const std::string& text, int) { return text.empty() ? "" : "takes no argument"; }
std::string want_bitwise(const std::string& text, int) {
  if (text == "bitwise" || text == "gradients") return "";
  return "is compared bitwise: write golden:bitwise, or golden:gradients";
}
std::string want_natural(const std::string& text, int) {
  return is_natural(text) ? "" : "takes a whole number, such as 1";
}
std::string want_layout(const std::string& text, int) {
  static const std::regex known(
      "(micro-batch [1-9][0-9]*|stage [0-3]|no checkpointing|checkpointing every layer|no offload|"
      "(pinned )?(optimizer|parameters) on (cpu|nvme)( and (pinned )?parameters on (cpu|nvme))?)");
  for (const std::string& part : parts_of_layout(text)) {
    if (!std::regex_match(part, known)) return fmt::format("knows no {}", in_quotes(part));
  }
  return "";
}
std::string want_step(const std::string& text, int) {
  return text.empty() || is_natural(text) ? "" : "takes a step, such as 3, or nothing";
}
std::string want_number(const std::string& text, int) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool fine = error == std::errc() && end == text.data() + text.size() && value >= 0 && std::isfinite(value);
  return fine ? "" : "takes a number, such as 1.5";
}
std::string want_rank(const std::string& text, int ranks) {
  if (!is_natural(text)) return fmt::format("names ranks; {} is none", in_quotes(text));
  if (ranks > 0 && std::stoi(text) >= ranks)
    return fmt::format("names rank {}, and ranks go from 0 to {}", text, ranks - 1);
  return "";
}
std::string want_ranks(const std::string& text, int ranks) {
  if (text == "none") return "";
  for (const std::string& part : split(text)) {
    if (const std::string wrong = want_rank(part, ranks); !wrong.empty()) return wrong;
  }
  return "";
}
std::string want_culprits(const std::string& text, int ranks) {
  for (const std::string& part : split(text)) {
    const std::size_t arrow = part.find("->");
    if (part.compare(0, 5, "link:") != 0) {
      if (const std::string wrong = want_rank(part, ranks); !wrong.empty()) return wrong;
    } else if (arrow == std::string::npos) {
      return "names a link as link:FROM->TO";
    } else {
      for (const std::string& end : {part.substr(5, arrow - 5), part.substr(arrow + 2)}) {
        if (const std::string wrong = want_rank(end, ranks); !wrong.empty()) return wrong;
      }
    }
  }
  return "";
}

// ---- the table -----------------------------------------------------------------------------------------------------

struct Row {
  CheckInfo info;
  std::function<std::string(const std::string& argument, int ranks)> wrong;
  std::function<Finding(const Evidence&, const std::string& argument)> look;
};

std::deque<Row>& rows() {
  static std::deque<Row> table = {
      {{"golden", "bitwise | gradients",
        "weights, optimizer state, data position, loss scale and every loss equal the one-rank run's, bit for bit; "
        "gradients: each step's, before clipping",
        true},
       want_bitwise,
       golden},
      {{"ranks_agree", "", "all ranks that finished hold the same state and reported the same losses"},
       want_none,
       ranks_agree},
      {{"faults_fired", "", "every fault rule fired (made in every run that has faults)"}, want_none, faults_fired},
      {{"culprit", "5 | link:1->0", "the first diagnosis names exactly these ranks or links, on every rank"},
       want_culprits,
       culprit},
      {{"finishes_within_virtual_s", "SECONDS", "virtual time of the whole run"}, want_number, finishes_within},
      {{"no_recovery", "", "nothing had to be recovered from"}, want_none, no_recovery},
      {{"recoveries", "N", "exactly so many recoveries"}, want_natural, recoveries},
      {{"evicted", "2,5 | none", "exactly these ranks died or were evicted"}, want_ranks, evicted},
      {{"joined", "2,5 | none",
        "exactly these ranks came in while the run was under way: spares, or ranks that returned"},
       want_ranks,
       joined},
      {{"steps_lost_at_most", "N", "committed steps that had to be trained again"}, want_natural, steps_lost},
      {{"restarts", "N", "the job was started again exactly so often"}, want_natural, restarts},
      {{"checkpoints_valid", "",
        "whatever has a manifest after the run is a whole checkpoint, and there is at least one"},
       want_none,
       checkpoints_valid},
      {{"straggler", "2,5 | none", "exactly these ranks were found too slow by their score (recovery.straggler)"},
       want_ranks,
       straggler},
      {{"diverged", "18 | none",
        "exactly in these steps loss or gradient norm were beyond the limit (recovery.divergence), each time"},
       want_steps,
       diverged},
      {{"loss_falls", "", "mean loss of the last quarter of the steps is below that of the first"},
       want_none,
       loss_falls},
      {{"no_races", "", "no two accesses to device memory are unordered (made wherever the race detector is on)"},
       want_none,
       no_races},
      {{"no_poison", "", "no memory that nobody wrote reached a result (made in every run that got so far)"},
       want_none,
       no_poison},
      {{"slowdown_at_least", "FACTOR", "virtual time, as a multiple of the same world's without faults", false, true},
       want_number,
       slowdown},
      {{"goodput_at_least", "SHARE",
        "of the virtual time that is steps which lasted: steps x undisturbed step time / whole time (ETTR)", false,
        false, false, false, true},
       want_number,
       goodput},
      {{"young_daly", "PERCENT",
        "what is lost to checkpoints and failures is Young's and Daly's C/tau + tau/2M + R/M, to so many percent of it",
        false, false, false, false, true},
       want_number,
       young_daly},
      {{"overlap_at_least", "SHARE",
        "of the virtual time in which a step's communication was in flight, hidden under compute"},
       want_number,
       overlap},
      {{"bubble_formula", "PERCENT",
        "the share of the stages' time in which they wait is (p-1)/(v*m+p-1), to so many percent of it"},
       want_number,
       bubble_formula},
      {{"live_activations", "", "stages hold the activations of min(p - s, m) micro-batches (1F1B) or of m (GPipe)"},
       want_none,
       live_activations},
      {{"collectives_match", "",
        "all members brought the same operation, tensor, step, type and count to each collective (made in every run)"},
       want_none,
       collectives_match},
      {{"replicas_equal", "",
        "after each step all ranks, and owners and their copies, hold the same bits (made in every run of several "
        "ranks)"},
       want_none,
       replicas_equal},
      {{"partition", "",
        "shards are disjoint, leave nothing out and lie on norm blocks; copies are their owners' (made where sharded)"},
       want_none,
       partition},
      {{"skipped", "3,5 | none", "exactly these steps were skipped"}, want_steps, skipped},
      {{"loss_scale", "65536,32768,...", "the scale of each step"}, want_numbers, loss_scale},
      {{"born", R"({"rank": 2, "layer": 1})",
        "the first value that is not finite was written there (\"provenance\": true): rank, step, micro_batch, layer, "
        "tensor, phase"},
       want_birth,
       born},
      {{"rerun_found", R"({"rank": 1, "step": 2} | none)",
        "micro-batches that were run twice had other bits there and nowhere else (recovery.rerun_and_compare): rank, "
        "step, micro_batch, parameter"},
       want_rerun,
       rerun_found},
      {{"rerun_genuine", "0,3 | none",
        "exactly in these steps values that are not finite came out twice, bit for bit (recovery.rerun_and_compare)"},
       want_steps,
       rerun_genuine},
      {{"stagnates_at_least", "SHARE", "of the updates are lost in rounding, where there are no fp32 masters"},
       want_number,
       stagnates},
      {{"tracks_fp32", "TOLERANCE", "each loss is so close to the same training's in fp32, relatively", false, false,
        false, true},
       want_number,
       tracks_fp32},
      {{"spikes", "5 | none", "exactly in these steps the loss leaps: a quarter above the mean of the five before"},
       want_steps,
       spikes},
      {{"layout", "stage 3, micro-batch 1",
        "what the run ended with, on every rank: micro-batch N, stage N, no checkpointing or checkpointing every "
        "layer, no offload or optimizer on cpu; any of them"},
       want_layout,
       layout},
      {{"memory_formula", "", "peaks of parameters, gradients, optimizer, copies and gathered space are ZeRO's"},
       want_none,
       memory_formula},
      {{"model_state_gb", "120,31.4,16.6,1.9",
        "10^9 bytes of parameters, gradients and optimizer state on the rank that needs most, to the digits as "
        "written; "
        "one number, or one for each of stages 0 to 3"},
       want_gigabytes,
       model_state},
      {{"traffic_formula", "", "bytes sent per rank, by operation, are ZeRO's"}, want_none, traffic_formula},
      {{"conservation", "",
        "in a run with tagged gradients, each sample enters each element of the reduced gradient once, with one weight",
        false, false, true},
       want_none,
       conservation},
      {{"one_history", "",
        "each step is committed once, by all members of one epoch or by none, with the same data position, Adam's "
        "step, learning rate and loss scale (made in every run of several ranks)"},
       want_none,
       one_history},
      {{"within_bounds", "",
        "each product and each sum over ranks of fast arithmetic is as close to the contract's, from the same "
        "operands, "
        "as fp32 sums in any order are (made in every run of \"numerics\": \"fast\")"},
       want_none,
       within_bounds},
      {{"quirk_differs", "STEP",
        "the quirks make a difference to the same run without them, in that step first if one is given (made in every "
        "run that has quirks)"},
       want_step,
       quirk_differs},
  };
  return table;
}

const Row* find(const std::string& name) {
  for (const Row& row : rows()) {
    if (name == row.info.name) return &row;
  }
  return nullptr;
}

// The argument of {name: argument} in canonical form.
std::string canonical(const Json& argument) {
  if (argument.is_string()) return argument.get<std::string>();
  if (!argument.is_array()) return argument.dump();
  if (argument.empty()) return "none";
  std::string text;
  for (const Json& one : argument) text += (text.empty() ? "" : ",") + one.dump();
  return text;
}

}  // namespace

const std::vector<CheckInfo>& check_catalogue() {
  static std::vector<CheckInfo> infos;
  for (std::size_t i = infos.size(); i < rows().size(); ++i) infos.push_back(rows()[i].info);
  return infos;
}

void add_to_catalogue(const CheckInfo& info, std::function<std::string(const std::string&, int)> wrong,
                      std::function<Finding(const Evidence&, const std::string&)> look) {
  rows().push_back({info, std::move(wrong), std::move(look)});
}

CheckProblem read_check(const Json& written, int ranks, CheckSpec& spec) {
  if (written.is_string()) {
    const std::string text = written.get<std::string>();
    const std::size_t colon = text.find(':');
    spec.name = text.substr(0, colon);
    spec.argument = colon == std::string::npos ? "" : text.substr(colon + 1);
  } else {
    spec.name = written.begin().key();
    spec.argument = canonical(written.begin().value());
  }
  const Row* row = find(spec.name);
  if (row == nullptr) {
    std::vector<std::string> known;
    for (const Row& one : rows()) known.emplace_back(one.info.name);
    return {fmt::format("there is no check {}", in_quotes(spec.name)), did_you_mean(spec.name, known)};
  }
  const std::string wrong = row->wrong(spec.argument, ranks);
  if (wrong.empty()) return {};
  return {fmt::format("{} {}", spec.name, wrong),
          row->info.argument[0] ? fmt::format("For example {}:{}.", spec.name, row->info.argument) : ""};
}

CheckResult judge(const CheckSpec& check, const Evidence& evidence) {
  const Row* row = find(check.name);
  if (row == nullptr) return {check.text(), false, "there is no such check"};
  Finding finding = row->look(evidence, check.argument);
  if (!finding.looked) finding.detail = "looked at nothing: " + finding.detail;
  return {check.text(), finding.ok && finding.looked, std::move(finding.detail), finding.looked};
}

namespace {
bool any_check(const Scenario& scenario, bool CheckInfo::*needs) {
  return std::any_of(scenario.checks.begin(), scenario.checks.end(), [&](const CheckSpec& check) {
    const Row* row = find(check.name);
    return row != nullptr && row->info.*needs;
  });
}
}  // namespace

bool needs_gradients(const Scenario& scenario) {
  return std::any_of(scenario.checks.begin(), scenario.checks.end(),
                     [](const CheckSpec& check) { return check.text() == "golden:gradients"; });
}

bool needs_golden(const Scenario& scenario) { return any_check(scenario, &CheckInfo::needs_golden); }
bool needs_undisturbed(const Scenario& scenario) { return any_check(scenario, &CheckInfo::needs_undisturbed); }
bool needs_fp32(const Scenario& scenario) { return any_check(scenario, &CheckInfo::needs_fp32); }
bool needs_step(const Scenario& scenario) {
  return scenario.drawn_faults > 0 || any_check(scenario, &CheckInfo::needs_step);
}
bool needs_tagged(const Scenario& scenario) { return any_check(scenario, &CheckInfo::needs_tagged); }

}  // namespace seeksim::harness
