#include "harness/commands/shrink_command.h"

#include <fmt/format.h>

#include "harness/input/document.h"
#include "harness/input/files.h"
#include "harness/report/terminal.h"
#include "harness/search/shrink.h"

namespace seeksim::harness {
namespace {

// With --set applied and a ds_config.json that it names put in its place.
Json read_document(const ShrinkArguments& a) {
  Document document = Document::load(a.file, a.sets);
  if (!document.problems().empty()) throw BadInput(document.problems());
  return document.json();
}

Failure find_failure(const Json& document, const ShrinkArguments& a) {
  const Trial trial = try_scenario(document, a.file, a.wall_limit_s);
  if (trial.status == ExitStatus::bad_input) {
    std::vector<Problem> problems;
    for (const std::string& problem : trial.problems) problems.push_back({"", "", problem, ""});
    throw BadInput(std::move(problems));
  }
  const Failure failure = failure_of(trial, a.check);
  if (failure.status != ExitStatus::as_expected) return failure;
  std::string red;
  for (const std::string& check : trial.red) red += (red.empty() ? "" : ", ") + check;
  throw BadInput(a.file, a.check.empty() ? "it does not fail" : fmt::format("its check {} is not red", a.check),
                 red.empty() ? "Every check holds, so there is nothing to shrink." : fmt::format("Red are: {}.", red));
}

std::string story_of(const Shrunk& shrunk, const Failure& failure, const std::string& file) {
  std::string story = fmt::format("{}: {}\n", file, failure.text());
  for (const std::string& edit : shrunk.edits) story += "  " + edit + '\n';
  return story + fmt::format("{} edits kept, {} runs; {}\n", shrunk.edits.size(), shrunk.runs,
                             shrunk.smallest ? "nothing simpler fails the same way"
                                             : "stopped by --runs; there may be a smaller one");
}

}  // namespace

ExitStatus shrink_command(const ShrinkArguments& a) {
  if (!a.out.empty()) probe_writable(a.out, "--out");
  const Json document = read_document(a);
  const Failure failure = find_failure(document, a);
  const Shrunk shrunk = shrink(document, a.file, failure, a.runs_max, a.wall_limit_s);
  const std::string text = scenario_text(shrunk.scenario);
  (a.out.empty() ? note : put)(story_of(shrunk, failure, a.file));
  put_data(text);
  if (a.out.empty()) return ExitStatus::as_expected;
  write_file(a.out, text);
  put(fmt::format("written: {}\n", a.out));
  return ExitStatus::as_expected;
}

}  // namespace seeksim::harness
