#include "harness/testing/property.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>

#include "harness/input/files.h"
#include "harness/search/shrink.h"

namespace seeksim::property {

using harness::ExitStatus;
using harness::Failure;
using harness::Trial;

namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// What is added to the seed of each property.
std::uint64_t wanted_seed() {
  const std::string text = environment("SEEKSIM_PROPERTY_SEED");
  if (text.empty()) return 0;
  if (text == "random") return std::random_device()();
  const bool number =
      text.size() < 19 && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  return number ? std::stoull(text) : XXH3_64bits(text.data(), text.size());
}

// How many cases there were of which world and precision.
class Tally {
 public:
  void count(const Drawn& drawn) {
    ++of_[drawn.precision][drawn.ranks];
    ++all_;
  }
  int all() const { return all_; }
  std::string text() const {
    std::string table = "  ranks     1    2    3    4    5    6    7    8\n";
    for (const auto& [precision, ranks] : of_) {
      table += "  " + precision + "  ";
      for (int n = 1; n <= 8; ++n) table += fmt::format("{:5}", ranks.contains(n) ? ranks.at(n) : 0);
      table += '\n';
    }
    return table;
  }

 private:
  std::map<std::string, std::map<int, int>> of_;
  int all_ = 0;
};

}  // namespace

rc::detail::TestParams search_parameters(std::uint64_t seed, int cases) {
  rc::detail::TestParams params;
  params.seed = wanted_seed() + seed;
  const std::string wanted = environment("SEEKSIM_PROPERTY_CASES");
  params.maxSuccess = wanted.empty() ? cases : std::max(1, std::atoi(wanted.c_str()));
  params.disableShrinking = true;  // harness/search/shrink.h shrinks
  return params;
}

Budget::Budget(double seconds) : seconds_(seconds) {
  const std::string wanted = environment("SEEKSIM_PROPERTY_SECONDS");
  if (!wanted.empty()) seconds_ = std::max(1.0, std::atof(wanted.c_str()));
}

double Budget::elapsed_s() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

Result check(const Property& property) {
  const Budget budget(property.budget_s);
  const rc::detail::TestParams params = search_parameters(property.seed, property.cases);
  const bool shows = !environment("SEEKSIM_PROPERTY_SHOW").empty();
  Tally tally;
  Json failing;
  Trial failed;
  const auto ran = rc::detail::checkTestable(
      [&] {
        if (budget.is_over()) return;
        Drawn drawn = *scenarios(property.wanted);
        if (property.change) property.change(drawn.document);
        if (shows) fmt::print("{}\n", harness::scenario_text(drawn.document)), std::fflush(stdout);
        const Trial trial = harness::try_scenario(drawn.document, "drawn.json", property.wall_limit_s);
        if (property.discard_refused && trial.status == ExitStatus::bad_input) RC_DISCARD("refused");
        tally.count(drawn);
        if (trial.status == ExitStatus::as_expected) return;
        failing = drawn.document;
        failed = trial;
        RC_FAIL("exit status " + std::to_string(code(trial.status)));
      },
      rc::detail::TestMetadata{}, params);
  Result result;
  result.held = ran.is<rc::detail::SuccessResult>() && tally.all() > 0;
  result.cases = tally.all();
  result.summary = fmt::format("{}: SEEKSIM_PROPERTY_SEED={}, {} cases in {:.1f} s\n{}", property.name,
                               params.seed - property.seed, result.cases, budget.elapsed_s(), tally.text());
  if (result.held) return result;
  if (failing.is_null()) {
    result.failure = property.name + ": too many of the drawn scenarios are refused";
    return result;
  }
  const Failure failure = failure_of(failed);
  result.scenario = harness::scenario_text(failing);
  if (failure.status == ExitStatus::as_expected) {  // refused, or red without a check that says why
    result.failure = fmt::format("exit status {}, {} \n", code(failed.status), fmt::join(failed.problems, "\n"));
  } else {
    const bool endless = failure.status == ExitStatus::no_progress;
    const int runs = endless ? property.shrink_runs / 20 : property.shrink_runs;
    const harness::Shrunk shrunk = harness::shrink(failing, "drawn.json", failure, runs, property.wall_limit_s);
    result.scenario = harness::scenario_text(shrunk.scenario);
    result.failure = fmt::format("{}; shrunk in {} runs to\n", failure.text(), shrunk.runs);
  }
  if (!property.save_to.empty()) harness::write_file(property.save_to, result.scenario);
  result.failure = property.name + ": " + result.failure + result.scenario;
  return result;
}

}  // namespace seeksim::property
