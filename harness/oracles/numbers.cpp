#include "harness/oracles/numbers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "harness/input/json_text.h"
#include "harness/oracles/reference_training.h"
#include "reference/random.h"
#include "runtime/seams/time.h"

namespace seeksim::harness {
namespace {

std::vector<std::int64_t> parse_steps(const std::string& text) {
  std::vector<std::int64_t> steps;
  if (text == "none") return steps;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t comma = std::min(text.find(',', from), text.size());
    steps.push_back(std::stoll(text.substr(from, comma - from)));
    from = comma + 1;
  }
  return steps;
}

std::vector<double> parse_numbers(const std::string& text) {
  std::vector<double> numbers;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t comma = std::min(text.find(',', from), text.size());
    numbers.push_back(std::stod(text.substr(from, comma - from)));
    from = comma + 1;
  }
  return numbers;
}

std::string list(const std::vector<std::int64_t>& steps) {
  return steps.empty() ? "none" : fmt::format("{}", fmt::join(steps, ", "));
}

// In the order of a step. What a rank sees only after a reduction comes after what its makers saw.
auto order_of(const Birth& b) {
  const runtime::Op& op = b.birth.op;
  const std::int32_t micro_batch = op.micro_batch < 0 ? INT32_MAX : op.micro_batch;
  return std::tuple(b.step, micro_batch, op.phase, op.sequence, b.rank);
}

Json number(float value) {
  if (std::isfinite(value)) return double(value);
  return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

}  // namespace

Finding same_steps(const std::vector<std::int64_t>& seen, const std::string& wanted, const char* what) {
  const std::vector<std::int64_t> want = parse_steps(wanted);
  if (seen == want) return good(fmt::format("{}: {}", what, list(seen)));
  return bad(fmt::format("{}: {} instead of {}", what, list(seen), list(want)));
}

std::string want_steps(const std::string& text, int) {
  try {
    const std::vector<std::int64_t> steps = parse_steps(text);
    return std::is_sorted(steps.begin(), steps.end()) ? "" : "needs ascending steps";
  } catch (const std::exception&) {
    return "needs steps, or none";
  }
}

std::string want_numbers(const std::string& text, int) {
  try {
    parse_numbers(text);
    return "";
  } catch (const std::exception&) {
    return "needs numbers, one a step";
  }
}

std::string want_birth(const std::string& text, int) {
  const Json where = Json::parse(text, nullptr, false);
  if (!where.is_object() || where.empty())
    return "needs an object with rank, step, micro_batch, layer, tensor or phase";
  for (const auto& [key, value] : where.items()) {
    const bool word = key == "tensor" || key == "phase";
    const bool integer = key == "rank" || key == "step" || key == "micro_batch" || key == "layer";
    if (!word && !integer) return fmt::format("knows no {}", key);
    if (word ? !value.is_string() : !value.is_number_integer()) return fmt::format("has a wrong {}", key);
  }
  return "";
}

// ---- steps ---------------------------------------------------------------------------------------------------------

Finding skipped(const Evidence& e, const std::string& steps) {
  if (e.run.steps.empty()) return blind("no step was committed");
  std::vector<std::int64_t> seen;
  for (const runtime::StepRecord& step : e.run.steps) {
    if (step.skipped) seen.push_back(step.step);
  }
  return same_steps(seen, steps, "skipped steps");
}

Finding loss_scale(const Evidence& e, const std::string& path) {
  if (e.run.steps.empty()) return blind("no step was committed");
  const std::vector<double> want = parse_numbers(path);
  for (std::size_t i = 0; i < std::min(want.size(), e.run.steps.size()); ++i) {
    if (e.run.steps[i].loss_scale != want[i])
      return bad(fmt::format("step {} had {} instead of {}", i, e.run.steps[i].loss_scale, want[i]));
  }
  if (want.size() != e.run.steps.size())
    return bad(fmt::format("{} steps instead of {}", e.run.steps.size(), want.size()));
  return good(fmt::format("{} steps, {} -> {}", want.size(), want.front(), want.back()));
}

// More than a quarter above the mean of the five steps before it, which themselves are no spikes.
Finding spikes(const Evidence& e, const std::string& steps) {
  constexpr double kFactor = 1.25;
  constexpr std::size_t kBefore = 5;
  if (e.run.steps.size() < 2) return blind("fewer than two steps were committed");
  std::vector<std::int64_t> seen;
  std::vector<double> calm;
  for (const runtime::StepRecord& step : e.run.steps) {
    double mean = 0;
    const std::size_t n = std::min(calm.size(), kBefore);
    for (std::size_t i = calm.size() - n; i < calm.size(); ++i) mean += calm[i] / double(n);
    if (n > 0 && !(double(step.loss) <= kFactor * mean))
      seen.push_back(step.step);
    else
      calm.push_back(double(step.loss));
  }
  return same_steps(seen, steps, "loss spikes");
}

Finding tracks_fp32(const Evidence& e, const std::string& tolerance) {
  if (!e.fp32_loss || e.fp32_loss->empty()) return blind("there is no fp32 run to compare with");
  if (e.run.steps.size() != e.fp32_loss->size())
    return bad(fmt::format("{} steps, and {} in fp32", e.run.steps.size(), e.fp32_loss->size()));
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < e.run.steps.size(); ++i) {
    const double reference = double((*e.fp32_loss)[i]);
    const double apart = std::fabs(double(e.run.steps[i].loss) - reference) / std::fabs(reference);
    if (!(apart <= worst)) worst = apart, at = i;
  }
  const std::string detail = fmt::format("at most {:.3g} of the fp32 loss apart (step {})", worst, at);
  return worst <= std::stod(tolerance) ? good(detail) : bad(detail);
}

// ---- births --------------------------------------------------------------------------------------------------------

const Birth* first_birth(const RunRecord& run) {
  const auto first = std::min_element(run.numbers.births.begin(), run.numbers.births.end(),
                                      [](const Birth& a, const Birth& b) { return order_of(a) < order_of(b); });
  return first == run.numbers.births.end() ? nullptr : &*first;
}

std::string birth_text(const Birth& b) {
  const runtime::Op& op = b.birth.op;
  std::string text = fmt::format("rank {}, step {}", b.rank, b.step);
  if (op.micro_batch >= 0) text += fmt::format(", micro-batch {}", op.micro_batch);
  if (op.layer >= 0) text += fmt::format(", layer {}", op.layer);
  text += fmt::format(", {}: '{}' ({}) wrote element {} of '{}'", name(op.phase), op.tensor, op.site, b.birth.element,
                      b.birth.buffer);
  for (const runtime::TensorSight& seen : b.birth.operands) {
    if (seen.written) continue;
    const kernels::TensorRange& r = seen.range;
    text += fmt::format("; read '{}' ({}, {} to {}", seen.buffer, name(seen.type), r.min, r.max);
    if (r.nans + r.infinities > 0) text += fmt::format(", {} not finite", r.nans + r.infinities);
    text += ")";
  }
  return text;
}

Finding born(const Evidence& e, const std::string& where) {
  if (!e.scenario.train.provenance.on) return blind("provenance is off");
  const Birth* first = first_birth(e.run);
  if (first == nullptr) return blind("every value of every operation was finite");
  const Json want = Json::parse(where);
  const runtime::Op& op = first->birth.op;
  const Json seen = {{"rank", first->rank}, {"step", first->step}, {"micro_batch", op.micro_batch},
                     {"layer", op.layer},   {"tensor", op.tensor}, {"phase", std::string(name(op.phase))}};
  for (const auto& [key, value] : want.items()) {
    if (seen[key] != value)
      return bad(fmt::format("{} {} instead of {}: {}", key, seen[key].dump(), value.dump(), birth_text(*first)));
  }
  return good(birth_text(*first));
}

Json sight_json(const runtime::TensorSight& sight) {
  const kernels::TensorRange& r = sight.range;
  return {{"buffer", sight.buffer},
          {"memory", std::string(name(sight.tag))},
          {"type", std::string(name(sight.type))},
          {"written", sight.written},
          {"elements", r.n},
          {"min", number(r.min)},
          {"max", number(r.max)},
          {"mean", number(r.mean)},
          {"zeros", r.zeros},
          {"subnormals", r.subnormals},
          {"infinities", r.infinities},
          {"nans", r.nans}};
}

Json birth_json(const Birth& b) {
  const runtime::Op& op = b.birth.op;
  Json json = {{"rank", b.rank},
               {"step", b.step},
               {"micro_batch", op.micro_batch},
               {"layer", op.layer},
               {"phase", std::string(name(op.phase))},
               {"tensor", op.tensor},
               {"site", op.site},
               {"buffer", b.birth.buffer},
               {"element", b.birth.element}};
  json["operands"] = Json::array();
  for (const runtime::TensorSight& sight : b.birth.operands) json["operands"].push_back(sight_json(sight));
  return json;
}

// ---- rounding ------------------------------------------------------------------------------------------------------

Finding stagnates(const Evidence& e, const std::string& share) {
  std::int64_t changes = 0, lost = 0;
  for (const kernels::Stagnation& step : e.run.numbers.stagnation) changes += step.changes, lost += step.lost;
  if (changes == 0) return blind("no update was counted: that is done where there are no fp32 masters");
  const double seen = double(lost) / double(changes);
  const std::string detail = fmt::format("{:.4g} of {} updates were lost in rounding", seen, changes);
  return seen >= std::stod(share) ? good(detail) : bad(detail);
}

// ---- held-out samples ----------------------------------------------------------------------------------------------

// A run that went on from a checkpoint of an earlier program knows nothing of what that one evaluated.
namespace {

// Training came to its end: what is due after the last step was made by those who are left.
bool somebody_finished(const RunRecord& run) {
  return std::any_of(run.ranks.begin(), run.ranks.end(),
                     [](const RankRecord& rank) { return rank.how == RankRecord::How::finished; });
}

}  // namespace

Finding evaluations(const Evidence& e, const std::string&) {
  const runtime::EvaluationPlan& plan = e.scenario.train.definition.evaluation;
  const RunRecord::Training& told = e.run.training;
  if (!plan.on()) return blind("the scenario asks for no evaluation");
  if (!told.evaluations_disagree.empty()) return bad(told.evaluations_disagree);
  const auto last = std::int64_t(e.run.steps.size());
  const bool ended = last < e.scenario.train.definition.steps || !somebody_finished(e.run);
  std::size_t due = 0;
  for (std::int64_t steps = std::max<std::int64_t>(told.resumed_from, 1); steps <= last; ++steps) {
    if (!plan.is_due(steps) && steps < e.scenario.train.definition.steps) continue;
    const bool there = std::any_of(told.evaluations.begin(), told.evaluations.end(),
                                   [steps](const auto& one) { return one.steps == steps; });
    if (!there && steps == last && ended) continue;  // the run ended before it
    if (!there) return bad(fmt::format("the evaluation after {} steps is missing", steps));
    ++due;
  }
  if (due == 0) return blind("the run ended before the first evaluation");
  return good(fmt::format("{} evaluation{} of {} held-out samples, each when it was due", due, due == 1 ? "" : "s",
                          plan.samples));
}

bool evaluations_to_judge(const Evidence& e) {
  const runtime::Definition& d = e.scenario.train.definition;
  const auto committed = std::int64_t(e.run.steps.size());
  const bool finished = committed >= d.steps && e.run.end == sim::WorldEnd::finished && somebody_finished(e.run);
  return d.evaluation.on() && (finished || !e.run.training.evaluations.empty());
}

std::string evaluations_text(const RunRecord& run) {
  const std::vector<runtime::EvaluationRecord>& all = run.training.evaluations;
  if (all.empty()) return "";
  if (!run.has_values)
    return fmt::format("  held out  evaluated {} times; a shapes-only run has no losses\n", all.size());
  const auto point = [](const runtime::EvaluationRecord& one) {
    return fmt::format("{} after {} step{}", one.loss, one.steps, one.steps == 1 ? "" : "s");
  };
  if (all.size() == 1) return fmt::format("  held out  loss {}\n", point(all.front()));
  return fmt::format("  held out  loss {} -> {}, evaluated {} times\n", point(all.front()), point(all.back()),
                     all.size());
}

Json evaluations_json(const RunRecord& run) {
  Json all = Json::array();
  for (const runtime::EvaluationRecord& one : run.training.evaluations)
    all.push_back({{"steps", one.steps},
                   {"loss", run.has_values ? number_or_word(double(one.loss)) : Json(nullptr)},
                   {"at_s", runtime::seconds(one.at_ns)}});
  return all;
}

// ---- samples of a set ----------------------------------------------------------------------------------------------

// What an epoch should have used so far is known from the reference's own order, which is written anew from its
// definition (docs/data.md); what it did use, from what the ranks told when they loaded it.
namespace {

// By sample of the data set: the steps that should have used it in an epoch, and those that did.
struct Use {
  std::vector<std::int64_t> due, made;
};

struct Epochs {
  std::map<std::int64_t, std::map<std::int64_t, Use>> by_number;
  std::int64_t places = 0;
};

Epochs look(const Evidence& e, const reference::Training& t) {
  Epochs seen;
  const reference::Sampler& s = t.data.sampler;
  const std::int64_t used = s.drop_last ? s.samples / t.batch * t.batch : s.samples;
  for (std::size_t i = 0; i < e.run.training.samples.size() && i < e.run.steps.size(); ++i) {
    const UsedSamples& told = e.run.training.samples[i];
    if (told.rows.empty()) continue;  // of an earlier run of the program
    const std::int64_t begin = e.run.steps[i].data_position - t.batch;
    for (int place = 0; place < t.batch; ++place, ++seen.places) {
      std::map<std::int64_t, Use>& epoch = seen.by_number[(begin + place) / used];
      epoch[reference::row_of(t, begin + place)].due.push_back(std::int64_t(i));
      const std::int64_t row = std::size_t(place) < told.rows.size() ? told.rows[std::size_t(place)] : -1;
      if (row >= 0) epoch[row].made.push_back(std::int64_t(i));
    }
  }
  return seen;
}

// Empty: each was used when it was due.
std::string wrong_use(std::int64_t epoch, std::int64_t row, const Use& use) {
  if (use.made.size() > 1)
    return fmt::format("sample {} is used {} times in epoch {}: in steps {} and {}", row, use.made.size(), epoch,
                       use.made[0], use.made[1]);
  if (use.due.empty())
    return fmt::format("sample {} is used in step {}, and is not due in epoch {} yet", row, use.made[0], epoch);
  if (use.made.empty())
    return fmt::format("sample {} is left out of epoch {}: it was due in step {}", row, epoch, use.due[0]);
  if (use.made != use.due)
    return fmt::format("sample {} of epoch {} is used in step {}, and was due in step {}", row, epoch, use.made[0],
                       use.due[0]);
  return "";
}

}  // namespace

Finding samples_once(const Evidence& e, const std::string&) {
  const runtime::Definition& d = e.scenario.train.definition;
  if (!d.data.sampler.on()) return blind("the data are no set of samples: there is no data.sampler");
  if (!e.run.training.samples_disagree.empty()) return bad(e.run.training.samples_disagree);
  const reference::Training t = reference_training(d);
  const Epochs seen = look(e, t);
  if (seen.places == 0) return blind("no step is known to have used samples");
  std::string first;
  for (const auto& [epoch, rows] : seen.by_number) {
    for (const auto& [row, use] : rows) {
      const std::string wrong = wrong_use(epoch, row, use);
      if (use.made.size() > 1) return bad(wrong);
      if (first.empty()) first = wrong;
    }
  }
  if (!first.empty()) return bad(first);
  return good(fmt::format("{} samples in {} epoch{} of {}, each when it was due", seen.places, seen.by_number.size(),
                          seen.by_number.size() == 1 ? "" : "s", t.data.sampler.samples));
}

bool samples_to_judge(const Evidence& e) {
  return e.scenario.train.definition.data.sampler.on() && !e.run.training.samples.empty() && !e.run.steps.empty();
}

}  // namespace seeksim::harness
