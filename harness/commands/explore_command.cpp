#include "harness/commands/explore_command.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <random>
#include <thread>

#include <nlohmann/json.hpp>

#include "harness/html/explore_page.h"
#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "harness/input/shell.h"
#include "harness/loading/load.h"
#include "harness/loading/schedule_string.h"
#include "harness/processes/refusals.h"
#include "harness/report/progress.h"
#include "harness/report/terminal.h"
#include "harness/search/exhaustive.h"
#include "harness/search/explore_shares.h"
#include "harness/search/explore_worker.h"
#include "harness/search/shrink.h"
#include "harness/search/twin.h"
#include "harness/verdict/checks.h"
#include "runtime/backend/machine/interrupts.h"

namespace seeksim::harness {
namespace {

constexpr int kShrinkRuns = 600;
constexpr std::size_t kTold = 20;
constexpr double kTwinsShare = 0.8;  // of the time
constexpr double kTwinsMost = 3600;  // seconds

std::uint64_t seed_of(const std::string& text) {
  if (text == "random") return std::random_device()();
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size())
    throw BadInput("--seed " + text, "a whole number or \"random\" is expected", "For example --seed 7.");
  return seed;
}

// By what it is, so that all processes of a launch write one finding to one file.
std::string file_name(const ExploreResult::Found& found) {
  std::string name;
  for (const char c : found.check) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  const std::string key = finding_key(found.check, found.why);
  return fmt::format("{}-{:08x}", name, XXH32(key.data(), key.size(), 0));
}

// The string that replays the file.
std::string schedule_of(const Json& document, const std::string& near) {
  return schedule_string(load_scenario_text(document.dump(), near));
}

Told write_found(const ExploreResult::Found& found, const ExploreArguments& a) {
  Told told;
  told.file = fmt::format("{}/{}.json", a.out, file_name(found));
  told.schedule = schedule_of(found.document, a.file);
  write_file(told.file, scenario_text(found.document));
  return told;
}

void shrink_found(const ExploreResult::Found& found, const ExploreArguments& a, Told& told) {
  const auto start = std::chrono::steady_clock::now();
  const Trial trial = try_scenario(found.document, a.file, 3 * a.wall_limit_s);
  const Failure failure = failure_of(trial, found.check == "progress" || found.check == "bug" ? "" : found.check);
  if (failure.status == ExitStatus::as_expected) return;
  const Shrunk shrunk = shrink(found.document, a.file, failure, kShrinkRuns, 3 * a.wall_limit_s);
  told.shrunk = fmt::format("{}/{}-shrunk.json", a.out, file_name(found));
  told.shrink_runs = shrunk.runs;
  told.shrink_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  write_file(told.shrunk, scenario_text(shrunk.scenario));
}

std::string sets_text(const std::vector<std::string>& sets) {
  std::string text;
  for (const std::string& set : sets) text += " --set " + set;
  return text;
}

std::string counts(const std::map<std::string, std::uint64_t>& of) {
  std::string text;
  for (const auto& [what, n] : of) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what, n);
  return text;
}

std::string summary(const ExploreResult& result, const Exhausted* exhausted, const ExploreArguments& a, int processes,
                    const Style& style) {
  std::string out = fmt::format("  cases     {} in {:.1f} s, {:.1f} a second, {} process{}: {}\n", result.cases,
                                result.wall_s, double(result.cases) / std::max(result.wall_s, 1e-9), processes,
                                processes == 1 ? "" : "es", counts(result.by));
  const Coverage& coverage = result.coverage;
  if (exhausted != nullptr) {
    out += exhausted_text(*exhausted);
    if (!result.stops.empty()) out += fmt::format("  stops     {}\n", counts(result.stops));
    return style.faint(out);
  }
  out += fmt::format(
      "  coverage  {} pairs of operations of two ranks, {} of them in both orders; {} of fault x operation x "
      "phase; {} branches of recovery\n",
      coverage.pairs(), coverage.pairs_in_both_orders(), coverage.struck().size(), coverage.branches().size());
  if (!result.stops.empty()) out += fmt::format("  stops     {}\n", counts(result.stops));
  if (!result.unjudged.empty()) out += fmt::format("  not judged, nothing to look at: {}\n", counts(result.unjudged));
  if (a.strategy == "enumerate")
    out += result.complete ? "  complete  each fault at each place was tried\n"
                           : "  the time was up before every place was tried\n";
  return style.faint(out);
}

// How many cases there were when: at most so many moments, about evenly spaced, the last one at the end.
class Moments {
 public:
  void note(std::uint64_t cases, std::uint64_t red, std::size_t findings) {
    const double after_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    if (!all_.empty() && after_s < all_.back()["after_s"].get<double>() + apart_s_) return;
    add(after_s, cases, red, findings);
    if (all_.size() < kMost) return;
    apart_s_ *= 2;
    for (std::size_t i = 1; i < all_.size(); ++i) all_.erase(all_.begin() + std::ptrdiff_t(i));
  }
  // The end of the search.
  Json with(const ExploreResult& result) const {
    Moments all = *this;
    all.add(result.wall_s, result.cases, result.red, result.found.size());
    return all.all_;
  }

 private:
  static constexpr std::size_t kMost = 40;
  void add(double after_s, std::uint64_t cases, std::uint64_t red, std::size_t findings) {
    all_.push_back({{"after_s", after_s}, {"cases", cases}, {"red", red}, {"findings", findings}});
  }
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  double apart_s_ = 1;
  std::vector<Json> all_;
};

Json report_json(const ExploreResult& result, const Exhausted* exhausted, const ToldByKey& told,
                 const ExploreArguments& a, std::uint64_t seed) {
  Json json = {{"schema", "seeksim-explore-1"},
               {"scenario", a.file},
               {"strategy", a.strategy},
               {"seed", seed},
               {"cases", result.cases},
               {"red", result.red},
               {"wall_s", result.wall_s},
               {"complete", result.complete},
               {"by", result.by},
               {"stops", result.stops},
               {"unjudged", result.unjudged}};
  json["coverage"] = {{"pairs", result.coverage.pairs()},
                      {"pairs_in_both_orders", result.coverage.pairs_in_both_orders()},
                      {"struck", result.coverage.struck()},
                      {"branches", result.coverage.branches()}};
  if (exhausted != nullptr) json["exhaustive"] = exhausted_json(*exhausted);
  json["found"] = Json::array();
  for (const auto& [key, found] : result.found) {
    const Told& files = told.at(key);
    json["found"].push_back({{"check", found.check},
                             {"why", found.why},
                             {"times", found.times},
                             {"after_s", found.after_s},
                             {"shown", found.shown},
                             {"twin", found.of_twin},
                             {"itself", files.itself.empty() ? Json(nullptr) : Json(files.itself)},
                             {"file", files.file},
                             {"schedule", files.schedule},
                             {"replay", found.replay.empty() ? Json(nullptr) : Json(found.replay)},
                             {"shrunk", files.shrunk.empty() ? Json(nullptr) : Json(files.shrunk)},
                             {"shrink_s", files.shrink_s},
                             {"shrink_runs", files.shrink_runs}});
  }
  return json;
}

std::string command_of(const ExploreArguments& a) {
  std::vector<std::string> words = {"seeksim", "explore", a.file, "--strategy", a.strategy, "--budget", a.budget};
  for (const std::string& set : a.sets) words.insert(words.end(), {"--set", set});
  words.insert(words.end(), {"--seed", a.seed});
  if (a.cases > 0) words.insert(words.end(), {"--cases", std::to_string(a.cases)});
  if (a.no_faults) words.emplace_back("--no-faults");
  if (a.no_twin) words.emplace_back("--no-twin");
  if (a.no_reduction) words.emplace_back("--no-reduction");
  if (a.shrink) words.emplace_back("--shrink");
  words.insert(words.end(), {"--out", a.out, "--html", a.html});
  return command_line(words);
}

ExploreResult go_through_all(const ExploreWork& work, const ExploreArguments& a, Exhausted& exhausted) {
  ExhaustiveOptions options;
  options.budget_s = work.budget_s;
  options.runs_max = work.cases_max;
  options.findings_max = work.findings_max;
  options.wall_limit_s = a.wall_limit_s;
  options.orders.reduce = !a.no_reduction;
  options.tell = work.tell;
  return explore_exhaustively(work.explored, work.golden, options, exhausted);
}

// Reports while the exploration runs. In a launch whose processes meet, only the first one reports.
class Teller {
 public:
  Teller(const ExploreArguments& a, const Style& style, bool quiet) : a_(a), style_(style), quiet_(quiet) {}

  void put(const std::string& text) const {
    if (!quiet_) harness::put(text);
  }

  void begins(const ExploreOptions& options, const LaunchedAs& as, bool together) const {
    const std::string share = together      ? fmt::format(", {} processes that meet at the end", as.size)
                              : as.size > 1 ? fmt::format(", share {} of {}", as.rank + 1, as.size)
                                            : "";
    const bool schedules_only = a_.no_faults && options.strategy != ExploreStrategy::exhaustive;
    const std::string time = a_.budget == "endless" ? "until it is stopped" : "for " + a_.budget;
    put(fmt::format("  explore   {} {}, seed {}{}{}\n", a_.strategy, time, options.seed,
                    schedules_only ? ", schedules only" : "", share));
  }

  void found(const ExploreResult::Found& found, const Told& files) const {
    put(fmt::format("  {}  after {:.1f} s{}: {}\n        seeksim run {}\n", style_.bad("RED "), found.after_s,
                    found.of_twin ? ", the twin" : "", found.why, files.file));
    put(style_.faint(fmt::format("        seeksim run {} --schedule {}\n", files.file, files.schedule)));
    if (!found.replay.empty())
      put(style_.faint(
          fmt::format("        seeksim run {}{} --schedule {}\n", a_.file, sets_text(a_.sets), found.replay)));
    if (!found.shown) put("        it does not fail the same way when it runs alone\n");
  }

  void looks_at_twin(const Explored& twin, double budget_s) const {
    const runtime::ModelPlan& model = twin.scenario.train.definition.model;
    put(style_.faint(
        fmt::format("  twin      first, for {:.0f} s: the same with width {}, {} heads, context {}, vocabulary {},\n"
                    "            micro-batches of {}, and {} steps\n",
                    budget_s, model.width, model.heads, model.context, model.vocab,
                    twin.scenario.train.layout.micro_batch, twin.scenario.train.definition.steps)));
  }

  void ends(const ExploreResult& result, const std::string& scenario) const {
    if (result.cases == 0) return;
    const std::string word = result.found.empty() ? style_.good("PASS") : style_.bad("FAIL");
    put(fmt::format("{} {}: {} of {} cases are red, {} finding{}\n", word, scenario, result.red, result.cases,
                    result.found.size(), result.found.size() == 1 ? "" : "s"));
  }

 private:
  const ExploreArguments& a_;
  const Style& style_;
  bool quiet_;
};

// What the twin showed: does the scenario itself show it, too?
void confirm(const ExploreResult& result, const Explored& explored, const ExploreArguments& a, const Teller& teller,
             ToldByKey& told) {
  for (const auto& [key, found] : result.found) {
    if (!found.of_twin || found.check == "crash" || runtime::interrupted() != 0) continue;
    const Json document = as_its_twin_failed(explored, found.document);
    const Trial trial = try_scenario(document, a.file, 3 * a.wall_limit_s);
    const std::string check = found.check == "progress" || found.check == "bug" ? "" : found.check;
    const bool alike = failure_of(trial, check).status != ExitStatus::as_expected;
    if (alike) {
      Told& files = told.at(key);
      files.itself = fmt::format("{}/{}-itself.json", a.out, file_name(found));
      write_file(files.itself, scenario_text(document));
      teller.put(fmt::format("  itself    {} fails so, too: seeksim run {}\n", explored.scenario.name, files.itself));
    } else {
      teller.put(fmt::format("  itself    {} does not fail by {} with the same faults; its twin does\n",
                             explored.scenario.name, found.check));
    }
  }
}

ExploreOptions options_of(const ExploreArguments& a) {
  ExploreOptions options;
  options.strategy = explore_strategy(a.strategy);
  options.seed = seed_of(a.seed);
  options.faults = !a.no_faults && options.strategy != ExploreStrategy::exhaustive;
  options.wall_limit_s = a.wall_limit_s;
  return options;
}

void shrink_all(const ExploreResult& result, const ExploreArguments& a, const Teller& teller, ToldByKey& told) {
  for (const auto& [key, found] : result.found) {
    if (!a.shrink || !found.shown || runtime::interrupted() != 0) continue;
    if (found.check == "crash") continue;  // what crashes would end this process too
    Told& files = told.at(key);
    shrink_found(found, a, files);
    if (!files.shrunk.empty())
      teller.put(fmt::format("  shrunk    {} in {} runs, {:.1f} s: seeksim run {}\n", found.check, files.shrink_runs,
                             files.shrink_s, files.shrunk));
  }
}

std::optional<Golden> golden_to_explore(const Explored& explored, bool of_twin, const Teller& teller) {
  if (!needs_golden(explored.scenario)) return std::nullopt;
  return find_golden(explored.scenario, {}, [&](std::string_view text) {
    if (!of_twin) teller.put(std::string(text));
  });
}

// The searches of one exploration, of the twin and of the scenario itself, and what they found together.
class Searches {
 public:
  Searches(const ExploreArguments& a, const ExploreOptions& options, const Teller& teller, Progress& bar, int processes,
           int first_worker)
      : a_(a), options_(options), teller_(teller), bar_(bar), processes_(processes), first_worker_(first_worker) {}

  void run(const Explored& explored, double budget_s, bool of_twin) {
    const std::optional<Golden> golden = golden_to_explore(explored, of_twin, teller_);
    const ExploreWork work{.explored = explored,
                           .golden = golden ? &*golden : nullptr,
                           .options = options_,
                           .processes = processes_,
                           .first_worker = first_worker_,
                           .budget_s = budget_s,
                           .cases_max = std::uint64_t(std::max(0, a_.cases)),
                           .findings_max = std::size_t(std::max(0, a_.findings)),
                           .of_twin = of_twin,
                           .tell = [this](const ExploreResult::Found& found) { tell(found); },
                           .tick = [this](std::uint64_t cases, std::uint64_t red) { tick(cases, red); }};
    if (options_.strategy == ExploreStrategy::exhaustive)
      result = go_through_all(work, a_, exhausted.emplace());
    else
      result.add(explore(work));
  }
  bool over() const {
    return runtime::interrupted() != 0 || (a_.findings > 0 && result.found.size() >= std::size_t(a_.findings));
  }

  ExploreResult result;
  ToldByKey told;
  Moments moments;
  std::optional<Exhausted> exhausted;

 private:
  void tell(const ExploreResult::Found& found) {
    const auto [at, is_new] = told.try_emplace(finding_key(found.check, found.why));
    if (!is_new) return;  // the twin has shown it
    at->second = write_found(found, a_);
    bar_.finish();
    if (told.size() <= kTold) teller_.found(found, at->second);
  }
  void tick(std::uint64_t cases, std::uint64_t red) {
    bar_.update(0, std::int64_t(result.cases + cases), std::int64_t(result.red + red));
    moments.note(result.cases + cases, result.red + red, told.size());
  }

  const ExploreArguments& a_;
  const ExploreOptions& options_;
  const Teller& teller_;
  Progress& bar_;
  int processes_, first_worker_;
};

}  // namespace

ExitStatus explore_command(const ExploreArguments& a, const Style& style) {
  const runtime::Interrupts noted;  // a signal is the end of the budget
  ExploreOptions options = options_of(a);
  const bool exhaustive = options.strategy == ExploreStrategy::exhaustive;
  const double budget = budget_s(a.budget);
  if (!a.report.empty()) probe_writable(a.report, "--report");
  if (!a.html.empty()) probe_writable(a.html, "--html");
  const Explored explored = load_explored(a.file, a.sets, options);
  const LaunchedAs as = launched_as();
  const int cores = int(std::max(1u, std::thread::hardware_concurrency()));
  const int processes = exhaustive ? 1 : a.jobs > 0 ? a.jobs : std::max(1, cores / as.beside);
  options.workers = processes * as.size;
  make_folder(a.out, "--out");
  if (exhaustive && as.size > 1)
    throw BadInput("--strategy exhaustive", "it is one search, which several processes cannot share",
                   "Run it without a launcher.");
  const bool together = shares_meet(as), quiet = together && as.rank > 0;
  if (together) need_mpi("explore");
  const Teller teller(a, style, quiet);
  teller.put(header_text(explored.scenario, style));
  for (const std::string& note : explored.notes) teller.put(style.faint(fmt::format("  note      {}\n", note)));
  // By a number of cases, and place by place, the scenario itself is meant.
  const bool counted = exhaustive || options.strategy == ExploreStrategy::enumerate || a.cases > 0;
  const std::optional<Explored> twin = counted || a.no_twin ? std::nullopt : twin_of(explored, options);
  teller.begins(options, as, together);

  Progress bar(!quiet && !exhaustive, explored.scenario.name, 0, "case", budget == kEndless ? 0 : budget);
  Searches searches(a, options, teller, bar, processes, as.rank * processes);
  const double twins_s = twin ? std::min(kTwinsShare * budget, kTwinsMost) : 0;
  if (twin) {
    teller.looks_at_twin(*twin, twins_s);
    searches.run(*twin, twins_s, true);
  }
  if (!searches.over()) searches.run(explored, budget - twins_s, false);
  ExploreResult& result = searches.result;
  ToldByKey& told = searches.told;
  bar.finish();
  if (together) {
    const ToldByKey own = told;
    if (!bring_together(as, result, told)) return ExitStatus::as_expected;
    for (const auto& [key, found] : result.found) {
      if (!own.contains(key)) teller.found(found, told.at(key));
    }
  }
  const Exhausted* const gone_through = searches.exhausted ? &*searches.exhausted : nullptr;
  teller.put(summary(result, gone_through, a, together ? options.workers : processes, style));
  confirm(result, explored, a, teller, told);
  shrink_all(result, a, teller, told);
  Json report = report_json(result, gone_through, told, a, options.seed);
  report["progress"] = searches.moments.with(result);
  if (!a.report.empty()) write_file(a.report, dump(report));
  if (!a.html.empty()) write_file(a.html, html::explore_page(report, command_of(a)));
  teller.ends(result, explored.scenario.name);
  if (runtime::interrupted() != 0) teller.put(fmt::format("  ended by {}\n", runtime::interrupt_text()));
  if (result.cases == 0 && runtime::interrupted() == 0)
    throw BadInput(a.file, "no case was run", "Give it more time: --budget.");
  return result.found.empty() ? ExitStatus::as_expected : ExitStatus::check_failed;
}

}  // namespace seeksim::harness
