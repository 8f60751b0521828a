#include "harness/campaign/study_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "harness/campaign/arrivals.h"
#include "harness/campaign/incident_log.h"
#include "harness/campaign/metrics.h"
#include "harness/campaign/study_keys.h"
#include "harness/input/files.h"
#include "harness/input/schema.h"
#include "harness/loading/sweep.h"

namespace seeksim::harness::campaign {
namespace {

// Failures of a campaign: with more of them a rate is a mistake.
constexpr double kFailuresMax = 10e6;
constexpr double kUnitsMax = 20e6;

Distribution read_distribution(const Reader& at, const char* key) {
  Distribution to;
  const Json* given = at.find(key);
  if (given == nullptr) return to;
  if (given->is_number()) return Distribution::of(given->get<double>());
  const Reader of = at.child(key);
  using Kind = Distribution::Kind;
  if (!of.has("distribution")) to.kind = Kind::exponential;
  distribution_keys().read(of, to);
  const bool uniform = to.kind == Kind::uniform;
  if (uniform && to.most < to.least) of.problem("most", "is less than least", "Swap them.");
  if (!uniform && !of.has("mean")) of.problem("mean", "is missing", "Give the mean of all draws.");
  if (to.mean < 0) to.mean = 0;  // the schema said so
  return to;
}

void read_optional(const Reader& at, const char* key, std::optional<Distribution>& to) {
  if (at.has(key)) to = read_distribution(at, key);
}

void read_arrivals(const Reader& at, Cause& cause) {
  Arrivals& to = cause.arrivals;
  arrival_keys().read(at, to);
  constexpr std::pair<Rate, const char*> kRates[] = {{Rate::mtbf_hours, "mtbf_hours"},
                                                     {Rate::per_unit_day, "per_unit_day"},
                                                     {Rate::per_gpu_hour, "per_gpu_hour"},
                                                     {Rate::per_node_day, "per_node_day"}};
  std::vector<std::string> given;
  for (const auto& [rate, key] : kRates) {
    if (!at.has(key)) continue;
    given.emplace_back(key);
    to.rate_of = rate;
    to.rate = std::max(1e-12, at.number(key, 1));
  }
  if (given.empty()) at.problem("", "no rate is given", "For example \"mtbf_hours\": 50000, of one unit.");
  if (given.size() > 1) at.problem("", fmt::format("{} are given", fmt::join(given, " and ")), "Keep one.");
  const bool of_many = cause.unit == Unit::rack || cause.unit == Unit::switch_ || cause.unit == Unit::power;
  if (of_many && (to.rate_of == Rate::per_gpu_hour || to.rate_of == Rate::per_node_day))
    at.problem(given.back().c_str(), fmt::format("is no rate of a {}", name(cause.unit)),
               "Use mtbf_hours or per_unit_day, of one of them.");
}

Cause read_cause(const Reader& at) {
  Cause to;
  cause_keys().read(at, to);
  read_arrivals(at.child("arrivals"), to);
  read_optional(at, "detect_s", to.detect_s);
  read_optional(at, "repair_hours", to.repair_hours);
  if (at.has("slow")) {
    const Reader slow = at.child("slow");
    slow_keys().read(slow, to.slow);
    to.slow.hours = read_distribution(slow, "hours");
    if (to.slow.evict && !to.repair_hours)
      at.problem("slow", "a node that is evicted is away for a while", "Give repair_hours.");
    if (to.announced) at.problem("announced", "a slow node is not announced", "Remove it, or \"slow\".");
  }
  return to;
}

// Reads each object of a list.
template <class Each>
void for_each_in(const Reader& top, const char* key, Each&& each) {
  const Json* list = top.find(key);
  if (list == nullptr || !list->is_array()) return;
  for (std::size_t i = 0; i < list->size(); ++i)
    each(Reader((*list)[i], top.at(key) + '/' + std::to_string(i), top.findings()));
}

void read_tier(const Reader& at, Study& study) {
  Tier tier;
  tier_keys().read(at, tier);
  const bool by_time = tier.every_s > 0, by_steps = tier.every_steps > 0;
  if (by_time == by_steps) at.problem("", "one of every_s and every_steps says how often", "Give one, above 0.");
  if (tier.write_s && *tier.write_s < tier.blocks_s)
    at.problem("write_s", "ends before training goes on: it counts from the checkpoint's begin", "At least blocks_s.");
  study.tiers.push_back(tier);
}

void read_recovery(const Reader& at, Study& study) {
  Recovery& to = study.recovery;
  recovery_keys().read(at, to);
  read_optional(at, "detect_s", to.detect_s);
  read_optional(at, "agree_s", to.agree_s);
  read_optional(at, "rebuild_s", to.rebuild_s);
  if (at.has("restart_s")) to.restart_s = read_distribution(at, "restart_s");
  if (to.policy == Policy::rebuild && !to.rebuild_s)
    at.problem("rebuild_s", "policy rebuild needs it", "How long do survivors take to make a new group?");
}

void read_published(const Reader& at, Study& study) {
  Published to;
  published_keys().read(at, to);
  if (at.has("what") && find_metric(to.what) == nullptr) {
    std::vector<std::string> known;
    for (const Metric& metric : metrics()) known.emplace_back(metric.name);
    at.problem("what", fmt::format("there is no figure {}", in_quotes(to.what)), did_you_mean(to.what, known));
  }
  if (at.has("least") && at.has("most") && to.most < to.least) at.problem("most", "is less than least", "Swap them.");
  study.published.push_back(to);
}

void read_log(const Reader& top, Study& study) {
  if (study.incidents_file.empty()) return;
  const std::int64_t nodes = study.cluster.nodes + study.spares.hot + study.spares.cold;
  try {
    const std::string at = top.findings().place(top.at("incidents"));
    const std::string file = resolve(study.incidents_file, study.file, at);
    IncidentLog log = read_incidents(read_file(file, kIncidentBytesMax, at), file, nodes);
    for (Problem& problem : log.problems) top.findings().add(std::move(problem));
    study.incidents = std::move(log.incidents);
  } catch (const BadInput& bad) {
    for (const Problem& problem : bad.problems()) top.findings().add(problem);
  }
}

// What values cannot be together.
void check(const Reader& top, const Study& study) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < study.causes.size(); ++i) {
    const Cause& cause = study.causes[i];
    const Reader at((*top.find("failures"))[i], fmt::format("/failures/{}", i), top.findings());
    if (!names.insert(cause.name).second)
      at.problem("cause", fmt::format("{} is here twice", in_quotes(cause.name)), "Causes have names of their own.");
    if (units_of(study, cause.unit) == 0)
      at.problem("unit", fmt::format("the cluster has no unit {}", in_quotes(name(cause.unit))),
                 "Set how many nodes it holds in \"cluster\".");
    const bool noticed = cause.detect_s || study.recovery.detect_s || cause.announced || cause.slow.factor > 1;
    if (!noticed)
      at.problem("detect_s", "nobody says when it is noticed", "Give it here, or recovery.detect_s for all causes.");
    if (double(units_of(study, cause.unit)) > kUnitsMax)
      at.problem("unit", "there are more than 20 million of them", "Use larger units, or unit \"job\".");
    const double failures = double(units_of(study, cause.unit)) * study.hours / mtbf_hours_of(study, cause);
    if (failures > kFailuresMax)
      at.problem("arrivals", fmt::format("about {:.3g} failures of a campaign", failures),
                 fmt::format("At most {:.3g} are simulated.", kFailuresMax));
  }
  if (study.causes.empty() && study.incidents_file.empty())
    top.problem("failures", "nothing fails", "List causes in \"failures\", or name a log of \"incidents\".");
  if (!study.incidents_file.empty() && !study.recovery.detect_s)
    top.problem("recovery", "nobody says when incidents of the log are noticed", "Give recovery.detect_s.");
  if (study.cluster.nodes_per_replica > study.cluster.nodes)
    top.child("cluster").problem("nodes_per_replica", "is more than all nodes", "Use at most \"nodes\".");
  if (study.best_interval && study.tiers.empty())
    top.problem("best_interval", "there are no checkpoints", "List them in \"checkpoints\".");
}

Study load(Document document, const Settings* row) {
  if (row != nullptr) {
    for (const char* key : {"sweep", "mode", "sweep_skip"}) document.json().erase(key);
  }
  Findings findings(document);
  for (const SchemaProblem& problem : explain(study_schema(), document.json()))
    findings.add(problem.pointer, problem.what, problem.next);
  Study study;
  study.file = document.file();
  study.name = std::filesystem::path(document.file()).stem();
  const Reader top(document.json(), "", findings);
  study_keys().read(top, study);
  for_each_in(top, "failures", [&](const Reader& at) { study.causes.push_back(read_cause(at)); });
  for_each_in(top, "checkpoints", [&](const Reader& at) { read_tier(at, study); });
  for_each_in(top, "published", [&](const Reader& at) { read_published(at, study); });
  read_recovery(top.child("recovery"), study);
  study.sweep = read_sweep(top);
  if (findings.empty()) read_log(top, study);
  if (findings.empty()) check(top, study);
  if (!findings.empty()) throw BadInput(findings.take());
  return study;
}

std::vector<std::string> with_row(std::vector<std::string> sets, const Settings* row) {
  if (row == nullptr) return sets;
  for (std::string& set : sets_of(*row)) sets.push_back(std::move(set));
  return sets;
}

}  // namespace

const Json& study_schema() {
  static const Json schema = [] {
    Json head = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                 {"title", "seeksim study"},
                 {"description", "A campaign of thousands of hours, what fails in it, and policies to compare."}};
    head.update(study_keys().shape().schema());
    return head;
  }();
  return schema;
}

Study load_study(const std::string& file, const std::vector<std::string>& sets, const Settings* row) {
  return load(Document::load(file, with_row(sets, row)), row);
}

Study load_study_text(std::string_view text, const std::string& file, const std::vector<std::string>& sets,
                      const Settings* row) {
  return load(Document::from_text(text, file, with_row(sets, row)), row);
}

}  // namespace seeksim::harness::campaign
