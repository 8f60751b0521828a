#include "harness/commands/analyse_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "harness/analyse/analyse.h"
#include "harness/html/other_pages.h"
#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "harness/input/shell.h"
#include "harness/report/terminal.h"
#include "harness/search/reproduce.h"
#include "harness/search/shrink.h"

namespace seeksim::harness {
namespace {

struct Again {
  HangCause cause;
  Reproduced done;
};

Again reproduce_story(const Story& story, const std::string& file) {
  probe_writable(file, "--reproduce");
  const HangPicture picture = picture_of(story);
  Again again{cause_of(picture), {}};
  const std::string why = fmt::format("Made by seeksim analyse: {} Here {}.", story.headline, text_of(again.cause));
  write_file(file, scenario_text(reproduction(picture, again.cause, std::filesystem::path(file).stem().string(), why)));
  again.done = reproduce(picture, again.cause, file);
  return again;
}

// A line for each kind of end, not for each rank.
std::string table_of(const Reproduced& done) {
  std::vector<std::pair<HeldRank, std::vector<int>>> groups;
  for (const HeldRank& one : done.ranks) {
    const auto same = [&](const auto& group) {
      return group.first.job == one.job && group.first.simulation == one.simulation && group.first.same == one.same;
    };
    const auto at = std::find_if(groups.begin(), groups.end(), same);
    if (at == groups.end())
      groups.push_back({one, {one.rank}});
    else
      at->second.push_back(one.rank);
  }
  std::size_t width = 0;
  for (const auto& [one, ranks] : groups) width = std::max(width, ranks_text(ranks).size());
  std::string text = fmt::format("  {:<{}}  {:<32} {}\n", "", width, "in the job", "simulated");
  for (const auto& [one, ranks] : groups)
    text += fmt::format("  {:<{}}  {:<32} {}{}\n", ranks_text(ranks), width, one.job.empty() ? "not known" : one.job,
                        one.simulation, one.same ? "" : "  (otherwise)");
  return text;
}

std::string text_of(const Again& again, const std::string& file) {
  const HangCause& cause = again.cause;
  std::string text = fmt::format("\nReproduced in {}: {}.\n", file, text_of(cause));
  if (!again.done.same)
    text = fmt::format("\nNot reproduced: the simulated ranks end otherwise. The scenario is {}.\n", file);
  text += table_of(again.done);
  if (!cause.stands_in.empty())
    text += fmt::format("  A step of seeksim's has no {}; {} is in its place.\n", cause.operation, cause.stands_in);
  if (cause.several_groups)
    text += "  In the job they wait in several groups, and in the end for the same ranks; here it is one group.\n";
  if (cause.one_of_several) text += "  Other causes give this picture too; this is one of them.\n";
  text += "  Numbers, sizes and groups are the simulation's own.\n";
  return text + fmt::format("  Run it again: seeksim run {}\n", file);
}

Json json_of(const Again& again, const std::string& file) {
  Json json;
  json["scenario"] = file;
  json["same"] = again.done.same;
  json["cause"] = text_of(again.cause);
  json["stands_in"] = again.cause.stands_in;
  json["several_groups"] = again.cause.several_groups;
  json["one_of_several"] = again.cause.one_of_several;
  json["ranks"] = Json::array();
  for (const HeldRank& one : again.done.ranks)
    json["ranks"].push_back({{"rank", one.rank}, {"job", one.job}, {"simulation", one.simulation}, {"same", one.same}});
  return json;
}

// What makes the page again.
std::string command_of(const AnalyseArguments& a) {
  std::vector<std::string> words = {"seeksim", "analyse"};
  words.insert(words.end(), a.paths.begin(), a.paths.end());
  words.insert(words.end(), {"--html", a.html});
  if (!a.reproduce.empty()) words.insert(words.end(), {"--reproduce", a.reproduce});
  return command_line(words);
}

}  // namespace

ExitStatus analyse_command(const AnalyseArguments& a) {
  if (!a.html.empty()) probe_writable(a.html, "--html");
  Analysed analysed = analyse(a.paths);
  if (!analysed.story) {
    if (!a.reproduce.empty() || !a.html.empty())
      throw BadInput(a.html.empty() ? "--reproduce" : "--html", "these dumps are of a simulated run",
                     "Its scenario.json runs it again, with run --html.");
    a.json ? put_data(analysed.own_json) : put(analysed.own_text);
    return ExitStatus::as_expected;
  }
  Story& story = *analysed.story;
  if (!a.json) put(story_text(story));
  ExitStatus status = ExitStatus::as_expected;
  std::optional<BadInput> refused;  // thrown once everything else is written
  if (!a.reproduce.empty()) try {
      const Again again = reproduce_story(story, a.reproduce);
      story.details["reproduction"] = Tree(json_of(again, a.reproduce));
      if (!a.json) put(text_of(again, a.reproduce));
      if (!again.done.same) status = ExitStatus::check_failed;
    } catch (const BadInput& why) {
      refused = why;
    }
  const std::string json = story_json(story);
  if (a.json) put_data(json);
  if (!a.html.empty()) write_file(a.html, html::hang_page(Json(Tree::parse(json)), command_of(a)));
  if (refused) throw BadInput(*refused);
  return status;
}

}  // namespace seeksim::harness
