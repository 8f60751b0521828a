#include "harness/releases/trial.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "harness/explain/museum.h"
#include "harness/input/files.h"
#include "harness/input/problem.h"
#include "harness/torch/child.h"
#include "harness/torch/run_record.h"

namespace seeksim::harness::releases {
namespace {

constexpr std::uint64_t kReportMax = 64 << 20;

// One call of seeksim torch run.
struct Ran {
  torch::Captured process;
  Json report;  // null: it left none
  double seconds = 0;
};

Ran run(const Question& question, int ranks, const std::vector<std::string>& script,
        const ReleaseEnvironment& environment, const std::string& folder) {
  std::vector<std::string> command = {question.program,   "torch", "run", "--python",
                                      environment.python, "--out", folder};
  if (ranks > 0) command.insert(command.end(), {"--np", std::to_string(ranks)});
  if (!question.scenario.empty()) command.push_back(question.scenario);
  command.emplace_back("--");
  command.insert(command.end(), script.begin(), script.end());
  std::filesystem::remove_all(folder);
  Ran ran;
  ran.process = torch::capture(command, variables_of(environment), question.limit_s);
  const std::string file = folder + "/report.json";
  if (std::filesystem::exists(file)) {
    ran.report = Json::parse(read_file(file, kReportMax), nullptr, false);
    if (ran.report.is_object()) ran.seconds = ran.report.value("wall_s", 0.0);
  }
  return ran;
}

// Lines without colours and file names of this machine say more; the last one of the error output says why.
std::string why_not(const Ran& ran) {
  if (ran.process.out_of_time) return "it did not end in time";
  const std::string words = torch::without_own_name(ran.process.last_words());
  return words.empty() ? "it ended " + torch::how(ran.process.ending) : words;
}

std::string detail_of(const Json& report, const std::string& check) {
  for (const Json& one : report.at("checks"))
    if (one.at("name") == check) return one.value("detail", "");
  return "";
}

// The script's own error in what seeksim torch run says of a script that failed by itself.
std::string error_in(const std::string& words) {
  constexpr std::string_view kBefore = "before the first step: ", kAfter = " Its output is above";
  const std::size_t begin = words.find(kBefore);
  return begin == std::string::npos ? words
                                    : words.substr(begin + kBefore.size(), words.find(kAfter) - begin - kBefore.size());
}

// The verdict of the judges that every run has. True: there is one, and nothing more is to be asked.
bool judged_by_itself(const Question& question, const Ran& ran, Answer& answer) {
  const std::string words = why_not(ran);
  if (!ran.report.is_object()) {
    const bool expected = question.check == "finished" && !question.says.empty() &&
                          (ran.process.err.find(question.says) != std::string::npos);
    answer.verdict = expected ? Verdict::red : Verdict::none;
    answer.caught_by = expected ? "finished" : "";
    answer.names = expected ? error_in(words) : words;
    return true;
  }
  const std::vector<std::string> red = red_checks(ran.report);
  if (red.empty()) return false;
  const auto is_red = [&red](const std::string& check) {
    return std::find(red.begin(), red.end(), check) != red.end();
  };
  // Where two runs were to be compared a script may fail for many reasons: only words of the question's own make that
  // the bug.
  const std::string end = is_red("finished") ? detail_of(ran.report, "finished") : "";
  if (!end.empty() && !question.against.empty() &&
      (question.says.empty() || end.find(question.says) == std::string::npos)) {
    answer.names = end;
    return true;
  }
  answer.verdict = Verdict::red;
  answer.caught_by = fmt::format("{}", fmt::join(red, ", "));
  answer.names = detail_of(ran.report, is_red(question.check) ? question.check : red.front());
  return true;
}

std::vector<torch::RankRun> records(const std::string& folder, bool losses) {
  std::vector<torch::RankRun> ranks = torch::read_ranks(folder, 0);
  for (torch::RankRun& rank : ranks)
    if (rank.record && !losses) rank.record->losses.clear();
  return ranks;
}

void judge_distance(const Question& question, const std::string& folder, Answer& answer) try {
  const std::string a = folder + "/a", b = folder + "/b";
  const torch::RunComparison found =
      torch::compare_runs(records(a, question.losses), records(b, question.losses), "the run", "the second run");
  if (found.weights == 0 && !question.losses) {
    answer.names = "no weight was recorded in both runs";
    return;
  }
  answer.verdict = found.grade <= question.grade ? Verdict::green : Verdict::red;
  const std::string away = found.grade == torch::Grade::bits
                               ? "the same bits"
                               : fmt::format("{} of {} weights differ, at most {:.1g} away", found.weights_differ,
                                             found.weights, found.weight_distance);
  answer.names = away;
  if (answer.verdict == Verdict::green) return;
  answer.caught_by = fmt::format("compare ({})", name(question.grade));
  if (found.first) answer.names = fmt::format("step {}: {}; {}", found.first->step, found.first->what, away);
} catch (const BadInput& nothing) {  // there is nothing that both recorded
  answer.names = nothing.what();
}

std::vector<std::string> command_of(const Exhibit& exhibit, const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {exhibit.folder + '/' + exhibit.script};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

}  // namespace

torch::Grade grade_named(const std::string& wanted) {
  for (const torch::Grade grade : {torch::Grade::bits, torch::Grade::reassociated, torch::Grade::rounding})
    if (torch::name(grade) == wanted) return grade;
  return torch::Grade::reassociated;
}

std::string_view name(Verdict verdict) {
  constexpr std::string_view kNames[] = {"green", "red", "no verdict"};
  return kNames[std::size_t(verdict)];
}

Question question_of(const Exhibit& exhibit, const std::string& program, const std::vector<std::string>& arguments) {
  Question question;
  question.program = program;
  question.ranks = exhibit.ranks;
  question.command = command_of(exhibit, arguments);
  if (exhibit.check.empty()) question.against = command_of(exhibit, exhibit.against);
  question.against_ranks = exhibit.against_ranks;
  question.grade = grade_named(exhibit.grade);
  question.losses = exhibit.losses;
  question.check = exhibit.check;
  question.says = exhibit.says;
  return question;
}

Answer ask(const Question& question, const ReleaseEnvironment& environment, const std::string& folder) {
  Answer answer;
  const Ran first = run(question, question.ranks, question.command, environment, folder + "/a");
  answer.seconds = first.seconds;
  if (judged_by_itself(question, first, answer)) return answer;
  if (question.against.empty()) {
    answer.verdict = Verdict::green;
    answer.names = "all checks hold";
    return answer;
  }
  const int ranks = question.against_ranks > 0 ? question.against_ranks : question.ranks;
  const Ran second = run(question, ranks, question.against, environment, folder + "/b");
  answer.seconds += second.seconds;
  if (!judged_by_itself(question, second, answer)) judge_distance(question, folder, answer);
  return answer;
}

LossCurve curve_of(const std::string& bad_folder, const std::string& good_folder) {
  const std::vector<torch::RankRun> bad = torch::read_ranks(bad_folder, 0), good = torch::read_ranks(good_folder, 0);
  const auto losses = [](const std::vector<torch::RankRun>& ranks) {
    return ranks.empty() || !ranks.front().record ? std::size_t(0) : ranks.front().record->losses.size();
  };
  if (losses(good) == 0) return {false, "no loss was recorded"};
  if (losses(bad) < losses(good))
    return {true, fmt::format("it ends after {} of {} losses", losses(bad), losses(good))};
  const torch::RunComparison found = torch::compare_runs(bad, good, bad_folder, good_folder);
  if (found.losses_differ == 0) return {false, "no: the same bits"};
  const std::string most = fmt::format("{:.2g} %", found.loss_distance * 100);
  return found.loss_distance < kCurvesApart ? LossCurve{false, "no: at most " + most + " away"}
                                            : LossCurve{true, "yes: up to " + most + " away"};
}

}  // namespace seeksim::harness::releases
