#include "harness/commands/runs_command.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>

#include <nlohmann/json.hpp>

#include "harness/archive/kept_diff.h"
#include "harness/archive/kept_runs.h"
#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "harness/report/terminal.h"

namespace seeksim::harness {
namespace {

constexpr std::size_t kChangesTold = 4;

// When its record was written last, in UTC; empty: unknown.
std::string written_at(const std::string& folder) {
  struct stat info {};
  if (::stat((folder + "/run.json").c_str(), &info) != 0) return "";
  std::tm utc{};
  ::gmtime_r(&info.st_mtime, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &utc);
  return text;
}

std::string word_of(const Json& run, const char* key, const char* otherwise = "-") {
  const auto found = run.find(key);
  if (found == run.end() || found->is_null()) return otherwise;
  return found->is_string() ? found->get<std::string>() : found->dump();
}

std::string last_loss(const Json& run) {
  const auto loss = run.find("loss");
  if (loss == run.end() || !loss->is_array() || loss->empty()) return "-";
  const Json& last = loss->back();
  return last.is_number() ? fmt::format("{:.6g}", last.get<double>()) : word_of(run, "none");
}

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

// "deepspeed.optimizer.params.lr: 0.001 -> 0.01"
std::string change_text(const KeptDifference& one) {
  const auto side = [](const std::string& text) { return text.empty() ? std::string("nothing") : text; };
  return fmt::format("{}: {} -> {}", one.what, side(one.a), side(one.b));
}

std::string changes_text(const KeptDiff& diff) {
  std::string text;
  for (std::size_t i = 0; i < std::min(kChangesTold, diff.configuration.size()); ++i)
    text += fmt::format("      {}\n", change_text(diff.configuration[i]));
  if (diff.configuration.size() > kChangesTold)
    text += fmt::format("      and {} more\n", diff.configuration.size() - kChangesTold);
  if (!diff.program.empty()) text += "      by another program\n";
  return text;
}

std::string table_of(const std::vector<KeptRun>& runs, const Style& style) {
  std::size_t width = 3;
  for (const KeptRun& kept : runs) width = std::max(width, kept.folder.size());
  std::string text = fmt::format("{:<{}}  {:<16}  {:<8}  {:>5}  {:<9}  {}\n", "run", width, "written (UTC)", "verdict",
                                 "steps", "loss", "weights");
  const KeptRun* before = nullptr;
  for (const KeptRun& kept : runs) {
    const std::string verdict = word_of(kept.run, "verdict", word_of(kept.run, "state").c_str());
    text +=
        fmt::format("{:<{}}  {:<16}  {:<8}  {:>5}  {:<9}  {}\n", kept.folder, width, written_at(kept.folder), verdict,
                    word_of(kept.run, "steps_committed"), last_loss(kept.run), word_of(kept.run, "params_digest"));
    if (before != nullptr && folder_of(before->folder) == folder_of(kept.folder))
      text += style.faint(changes_text(kept_diff(*before, kept)));
    before = &kept;
  }
  return text;
}

Json json_of(const std::vector<KeptRun>& runs) {
  Json list = Json::array();
  for (const KeptRun& kept : runs) {
    Json one = kept.run;
    one["folder"] = kept.folder;
    one["configuration"] = kept.scenario;
    list.push_back(std::move(one));
  }
  return {{"schema", "seeksim-runs-1"}, {"runs", list}};
}

std::string rows_text(const char* title, const std::vector<KeptDifference>& rows) {
  std::string text;
  for (const KeptDifference& row : rows)
    text += fmt::format("  {:<14} {}\n", &row == &rows.front() ? title : "", change_text(row));
  return text.empty() ? fmt::format("  {:<14} the same\n", title) : text;
}

}  // namespace

ExitStatus runs_command(const RunsArguments& a, const Style& style) {
  std::vector<KeptRun> runs;
  std::vector<std::string> problems;
  for (const std::string& folder : a.folders) {
    std::string path = folder;
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    for (KeptRun& kept : kept_runs(path, problems)) runs.push_back(std::move(kept));
  }
  for (const std::string& problem : problems) complain(problem);
  if (a.json)
    put_data(dump(json_of(runs)));
  else
    put(runs.empty() ? "no run is kept there; `seeksim run S.json --out DIR` keeps one\n" : table_of(runs, style));
  return problems.empty() ? ExitStatus::as_expected : ExitStatus::bad_input;
}

ExitStatus diff_kept_runs(const std::string& a, const std::string& b, const std::string& report, const Style& style) {
  const KeptDiff diff = kept_diff(read_kept_run(a), read_kept_run(b));
  if (!report.empty()) write_file(report, dump(to_json(diff)));
  put(fmt::format("{} {} and {}\n", diff.same_result() ? style.good("SAME") : style.bad("DIFFERENT"), a, b));
  put(rows_text("configuration", diff.configuration));
  put(rows_text("program", diff.program));
  put(rows_text("result", diff.result));
  return diff.same_result() ? ExitStatus::as_expected : ExitStatus::check_failed;
}

}  // namespace seeksim::harness
