#include "harness/campaign/study_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "harness/campaign/arrivals.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness::campaign {
namespace {

std::string percent(double share) { return fmt::format("{:.2f}", 100 * share); }

std::string with_interval(const Estimated& e) {
  return fmt::format("{} [{}, {}]", percent(e.mean), percent(e.low), percent(e.high));
}

const Metric& goodput() { return *find_metric("goodput"); }

Json json_of(const Estimated& e) { return {{"n", e.n}, {"mean", e.mean}, {"low", e.low}, {"high", e.high}}; }

std::string quoted_for_csv(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + '"';
}

const PolicyResult& best_of(const StudyResult& result) {
  return *std::max_element(
      result.policies.begin(), result.policies.end(),
      [](const PolicyResult& a, const PolicyResult& b) { return a.of(goodput()).mean < b.of(goodput()).mean; });
}

// Where the time of one policy goes, the largest part first.
std::string lost_text(const PolicyResult& policy) {
  std::vector<std::pair<double, std::string>> rows;
  for (std::size_t i = 0; i < kSpent; ++i) {
    const Estimated share = policy.share(Spent(i));
    if (share.mean > 0)
      rows.emplace_back(share.mean,
                        fmt::format("    {:>6} %  {:<12} {}\n", percent(share.mean), name(Spent(i)), text(Spent(i))));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string out;
  for (const auto& [share, line] : rows) out += line;
  return out;
}

// Which causes of failures cost how much.
std::string tolls_text(const PolicyResult& policy) {
  struct Row {
    std::string name;
    double stops = 0, lost = 0;
  };
  std::vector<Row> rows;
  double whole = 0;
  for (const CampaignResult& one : policy.campaigns) {
    whole += double(one.whole_ns);
    for (std::size_t i = 0; i < one.tolls.size(); ++i) {
      if (rows.size() <= i) rows.push_back({one.tolls[i].name});
      rows[i].stops += double(one.tolls[i].interruptions);
      rows[i].lost += double(one.tolls[i].lost_ns);
    }
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.lost > b.lost; });
  constexpr std::size_t kTold = 15;
  std::string out;
  for (const Row& row : rows) {
    if (&row - rows.data() >= std::ptrdiff_t(kTold)) return out + fmt::format("    and {} more\n", rows.size() - kTold);
    out += fmt::format("    {:>6} %  {}, {:.1f} stops of a campaign\n", percent(row.lost / std::max(1.0, whole)),
                       row.name, row.stops / double(policy.campaigns.size()));
  }
  return out;
}

std::string formula_text(const PolicyResult& policy) {
  if (!policy.formula) return "";
  const YoungDaly& f = *policy.formula;
  std::string out = fmt::format(
      "  young     Young and Daly give {} % for the last kind of checkpoint alone: {:.4g} s each {:.4g} s, a stop each "
      "{:.4g} s, {:.4g} s down; best each {:.4g} s\n",
      percent(f.goodput), f.cost_s, f.interval_s, f.mtbf_s, f.down_s, f.best_interval_s);
  if (policy.tried.empty()) return out;
  const auto best =
      std::max_element(policy.tried.begin(), policy.tried.end(),
                       [](const TriedInterval& a, const TriedInterval& b) { return a.goodput.mean < b.goodput.mean; });
  const double now = policy.of(goodput()).mean;
  out += fmt::format(
      "  best      {:.4g} s of steps between two checkpoints, of {} times that were tried: {} %, {:+.2f} points\n",
      best->every_s, policy.tried.size(), with_interval(best->goodput), 100 * (best->goodput.mean - now));
  return out;
}

StudyCheck published_check(const Published& published, const PolicyResult& first) {
  const Metric& metric = *find_metric(published.what);
  const Estimated e = first.of(metric);
  const bool ok = e.mean >= published.least && e.mean <= published.most;
  return {"published:" + published.what, ok,
          fmt::format("{:.4g} [{:.4g}, {:.4g}] is predicted; {:.4g} to {:.4g}: {}", e.mean, e.low, e.high,
                      published.least, published.most, published.source)};
}

StudyCheck young_daly_check(const StudyResult& result) {
  double worst = 0;
  std::string where = "no policy has checkpoints and stops";
  for (const PolicyResult& policy : result.policies) {
    if (!policy.formula) continue;
    const double lost = 1 - policy.of(goodput()).mean, formula = 1 - policy.formula->goodput;
    const double off = 100 * std::abs(lost - formula) / formula;
    if (off < worst) continue;
    worst = off;
    where = fmt::format("{} % lost, {} % by the formula, {:.3g} % off: {}", percent(lost), percent(formula), off,
                        label_of(result, policy));
  }
  const bool looked = std::any_of(result.policies.begin(), result.policies.end(),
                                  [](const PolicyResult& policy) { return policy.formula.has_value(); });
  return {fmt::format("young_daly:{:g}", result.study.young_daly), looked && worst <= result.study.young_daly, where};
}

}  // namespace

std::string label_of(const StudyResult& result, const PolicyResult& policy) {
  if (policy.settings.empty()) return result.study.name;
  return label(policy.settings, axis_keys(result.study.sweep));
}

std::vector<StudyCheck> checks_of(const StudyResult& result) {
  std::vector<StudyCheck> checks;
  std::size_t campaigns = 0;
  std::string wrong;
  for (const PolicyResult& policy : result.policies) {
    campaigns += policy.campaigns.size();
    if (wrong.empty() && !policy.wrong.empty()) wrong = label_of(result, policy) + ", " + policy.wrong;
  }
  checks.push_back({"time_adds_up", wrong.empty() && campaigns > 0,
                    wrong.empty()
                        ? fmt::format("{} campaigns: all causes together are the whole, to the nanosecond", campaigns)
                        : wrong});
  for (const Published& published : result.study.published)
    checks.push_back(published_check(published, result.policies.front()));
  if (result.study.young_daly > 0) checks.push_back(young_daly_check(result));
  return checks;
}

ExitStatus status_of(const StudyResult& result) {
  if (!result.broken.empty()) return ExitStatus::bug;
  const std::vector<StudyCheck> checks = checks_of(result);
  if (!checks.front().ok) return ExitStatus::bug;
  const bool good = std::all_of(checks.begin(), checks.end(), [](const StudyCheck& check) { return check.ok; });
  return good ? ExitStatus::as_expected : ExitStatus::check_failed;
}

std::string study_head(const StudyResult& result, const Style& style) {
  const Study& s = result.study;
  std::string out =
      fmt::format("{}  {} campaigns of {:g} h each, seeds from {}\n", style.bold(s.name), s.seeds, s.hours, s.seed);
  if (!s.why.empty()) out += "  " + s.why + '\n';
  out += fmt::format("  cluster   {} nodes of {} GPUs, {} in all; {} hot and {} cold spares\n", s.cluster.nodes,
                     s.cluster.gpus_per_node, s.cluster.nodes * s.cluster.gpus_per_node, s.spares.hot, s.spares.cold);
  for (const Cause& cause : s.causes)
    out += fmt::format("  fails     {}: {} {}, one each {:.4g} h\n", cause.name, name(cause.unit),
                       name(cause.arrivals.process), mtbf_hours_of(s, cause));
  if (!s.incidents.empty())
    out += fmt::format("  fails     {} incidents of {}\n", s.incidents.size(), s.incidents_file);
  for (const std::string& source : s.sources) out += "  input     " + source + '\n';
  return out + '\n';
}

std::string study_table(const StudyResult& result) {
  std::size_t width = 6;
  for (const PolicyResult& policy : result.policies) width = std::max(width, label_of(result, policy).size());
  width = std::min<std::size_t>(width, 60);
  std::string out = fmt::format("  {:<{}}  {:<23}{:>7}{:>8}{:>8}{:>8}{:>8}\n", "policy", width, "goodput %", "stops",
                                "redone", "saving", "down", "slow");
  const auto mean = [](const PolicyResult& policy, const char* name) { return policy.of(*find_metric(name)).mean; };
  for (const PolicyResult& policy : result.policies) {
    out += fmt::format("  {:<{}}  {:<23}{:>7.1f}{:>8}{:>8}{:>8}{:>8}\n", label_of(result, policy), width,
                       with_interval(policy.of(goodput())), mean(policy, "interruptions"),
                       percent(mean(policy, "redone_share")), percent(mean(policy, "checkpoint_share")),
                       percent(mean(policy, "down_share")), percent(mean(policy, "slow_share")));
  }
  if (result.policies.size() < 2) return out;
  // Spares count among all GPUs: what one costs stands against what it brings.
  const PolicyResult& first = result.policies.front();
  out += fmt::format("\n  {:<{}}  {:<27}{}\n", "against the first", std::max<std::size_t>(width, 17), "goodput, points",
                     "of all GPUs, points");
  for (const PolicyResult& policy : result.policies) {
    if (&policy == &first) continue;
    const Estimated beyond = policy.beyond(goodput(), first);
    out +=
        fmt::format("  {:<{}}  {:<27}{:+.2f}\n", label_of(result, policy), std::max<std::size_t>(width, 17),
                    fmt::format("{:+.2f} [{:+.2f}, {:+.2f}]", 100 * beyond.mean, 100 * beyond.low, 100 * beyond.high),
                    100 * policy.beyond(*find_metric("yield"), first).mean);
  }
  return out;
}

std::string study_tail(const StudyResult& result, const Style& style) {
  const PolicyResult& best = best_of(result);
  std::string out = fmt::format("\n  time      of {}{}, in the mean:\n",
                                result.policies.size() > 1 ? "the best policy, " : "", label_of(result, best));
  out += lost_text(best) + "  lost to   causes, with the steps that they undid:\n" + tolls_text(best);
  out += formula_text(best);
  out +=
      "  Intervals hold the mean of all campaigns 19 times in 20 (Student's t over seeds; differences seed by "
      "seed).\n\n";
  for (const std::string& problem : result.broken) out += "  " + problem + '\n';
  for (const StudyCheck& check : checks_of(result))
    out +=
        fmt::format("  {}  {:<28}  {}\n", check.ok ? style.good("ok  ") : style.bad("FAIL"), check.name, check.detail);
  const ExitStatus status = status_of(result);
  const bool good = status == ExitStatus::as_expected;
  const std::string word = good ? "PASS" : status == ExitStatus::bug ? "BUG" : "FAIL";
  return out + fmt::format("{} {}: {} {}  (wall {:.2f} s)\n", good ? style.good(word) : style.bad(word),
                           result.study.name, result.policies.size(),
                           result.policies.size() == 1 ? "policy" : "policies", result.wall_s);
}

std::string study_csv(const StudyResult& result) {
  std::vector<std::string> head;
  const std::vector<std::string> keys = axis_keys(result.study.sweep);
  for (const std::string& key : keys) head.push_back(key);
  head.emplace_back("campaigns");
  for (const Metric& metric : metrics()) {
    for (const char* what : {"", "_low", "_high"}) head.push_back(std::string(metric.name) + what);
  }
  for (std::size_t i = 0; i < kSpent; ++i) head.push_back(std::string("time_") + name(Spent(i)));
  std::string out;
  for (const std::string& name : head) out += (out.empty() ? "" : ",") + quoted_for_csv(name);
  out += '\n';
  for (const PolicyResult& policy : result.policies) {
    std::vector<std::string> line;
    for (const std::string& key : keys) {
      const auto found = std::find_if(policy.settings.begin(), policy.settings.end(),
                                      [&](const auto& setting) { return setting.first == key; });
      line.push_back(found == policy.settings.end() ? "" : quoted_for_csv(found->second));
    }
    line.push_back(std::to_string(policy.campaigns.size()));
    for (const Metric& metric : metrics()) {
      const Estimated e = policy.of(metric);
      for (const double value : {e.mean, e.low, e.high}) line.push_back(fmt::format("{:.9g}", value));
    }
    for (std::size_t i = 0; i < kSpent; ++i) line.push_back(fmt::format("{:.9g}", policy.share(Spent(i)).mean));
    out += fmt::format("{}\n", fmt::join(line, ","));
  }
  return out;
}

Json study_json(const StudyResult& result) {
  Json json = {{"schema", "seeksim-study-1"},
               {"study", result.study.name},
               {"seed", result.study.seed},
               {"hours", result.study.hours},
               {"verdict", name(status_of(result))},
               {"exit_code", code(status_of(result))},
               {"wall_s", result.wall_s},
               {"checks", Json::array()},
               {"policies", Json::array()}};
  for (const StudyCheck& check : checks_of(result))
    json["checks"].push_back({{"check", check.name}, {"ok", check.ok}, {"detail", check.detail}});
  for (const PolicyResult& policy : result.policies) {
    Json one = {{"settings", Json::object()}, {"figures", Json::object()}, {"time", Json::object()}};
    for (const auto& [key, value] : policy.settings) one["settings"][key] = Json::parse(value);
    for (const Metric& metric : metrics()) one["figures"][metric.name] = json_of(policy.of(metric));
    for (std::size_t i = 0; i < kSpent; ++i) one["time"][name(Spent(i))] = json_of(policy.share(Spent(i)));
    if (policy.formula) {
      const YoungDaly& f = *policy.formula;
      one["young_daly"] = {{"cost_s", f.cost_s}, {"interval_s", f.interval_s}, {"mtbf_s", f.mtbf_s},
                           {"down_s", f.down_s}, {"goodput", f.goodput},       {"best_interval_s", f.best_interval_s}};
    }
    for (const TriedInterval& tried : policy.tried)
      one["tried_intervals"].push_back({{"every_s", tried.every_s}, {"goodput", json_of(tried.goodput)}});
    one["survival"] = Json::array();
    const std::vector<double> survival = policy.runs().survival();
    for (std::size_t i = 0; i < survival.size(); ++i)
      one["survival"].push_back({{"hours", double(RunLengths::edge(i)) / 3600e9}, {"share", survival[i]}});
    one["campaigns"] = Json::array();
    for (const CampaignResult& campaign : policy.campaigns) one["campaigns"].push_back(to_json(campaign));
    json["policies"].push_back(std::move(one));
  }
  return json;
}

}  // namespace seeksim::harness::campaign
