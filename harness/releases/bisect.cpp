#include "harness/releases/bisect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

#include "harness/input/problem.h"

namespace seeksim::harness::releases {
namespace {

std::vector<std::string> split(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// Everything that a try needs; from the command line, or from an exhibit.
struct Search {
  std::string package, good, bad;
  std::vector<std::string> pins;
  Question question;
};

Search search_of(const BisectArguments& a, const std::string& program) {
  Search search{a.package, a.good, a.bad, a.pins, {}};
  if (!a.exhibit.empty()) {
    if (!a.command.empty())
      throw BadInput("-- " + a.command.front(), "the exhibit brings a script", "Leave one of the two out.");
    const Exhibit exhibit = exhibits({a.exhibit}).front();
    if (search.package.empty()) search.package = exhibit.package;
    if (search.good.empty()) search.good = exhibit.good;
    if (search.bad.empty()) search.bad = exhibit.bad;
    search.pins.insert(search.pins.begin(), exhibit.pins.begin(), exhibit.pins.end());
    search.question = question_of(exhibit, program, exhibit.arguments);
    return search;
  }
  if (a.command.empty())
    throw BadInput("seeksim torch bisect", "there is no script", "Put it behind --, or name an --exhibit.");
  search.question.program = program;
  search.question.ranks = a.ranks;
  search.question.scenario = a.scenario;
  search.question.command = a.command;
  search.question.grade = grade_named(a.grade);
  const std::vector<std::string> second = split(a.against);
  if (second.empty()) return search;
  search.question.against = {a.command.front()};
  search.question.against.insert(search.question.against.end(), second.begin(), second.end());
  return search;
}

void refuse_gaps(const Search& search) {
  for (const auto& [option, value] :
       {std::pair("--package", search.package), std::pair("--good", search.good), std::pair("--bad", search.bad)}) {
    if (value.empty())
      throw BadInput("seeksim torch bisect", fmt::format("{} is missing", option), "Give it, or an --exhibit.");
  }
}

std::string column(std::string text) {
  constexpr std::size_t kWidth = 12;
  text.resize(std::max(text.size() + 1, kWidth), ' ');
  return text;
}

class Tries {
 public:
  Tries(const Search& search, const std::string& python, const Print& print)
      : search_(search), python_(python), print_(print) {
    std::string pattern = (std::filesystem::temp_directory_path() / "seeksim-bisect-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr)
      throw BadInput(pattern, "no temporary folder can be made there", "Set TMPDIR to a folder with room.");
    folder_ = pattern;
  }
  Tries(const Tries&) = delete;
  Tries& operator=(const Tries&) = delete;
  ~Tries() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  // Installs, runs, judges, tells. Throws CannotBeHad.
  Answer judge(const std::string& version) const {
    std::vector<std::string> pins = search_.pins;
    pins.push_back(search_.package + "==" + version);
    const Answer answer = ask(search_.question, make_environment(pins, python_), folder_ + "/run");
    tell(version, answer.verdict, answer.names);
    return answer;
  }
  // The same, where a release that cannot be installed is only one that cannot be judged.
  Verdict judge_or_skip(const std::string& version) const try {
    return judge(version).verdict;
  } catch (const CannotBeHad& why) {
    tell(version, Verdict::none, why.what());
    return Verdict::none;
  }

  void hold_end(const std::string& version, Verdict wanted) const {
    const Answer answer = judge(version);
    if (answer.verdict == wanted) return;
    throw BadInput(fmt::format("{} {}", search_.package, version),
                   fmt::format("it is to be {}, and is {}: {}", name(wanted), name(answer.verdict), answer.names),
                   "Give two releases between which the verdict changes.");
  }

 private:
  void tell(const std::string& version, Verdict verdict, const std::string& names) const {
    print_("  " + column(version) + column(std::string(name(verdict))) + names + '\n');
  }

  const Search& search_;
  std::string python_;
  const Print& print_;
  std::string folder_;
};

std::string conclusion(const std::string& package, const Narrowed& found) {
  if (found.skipped.empty())
    return fmt::format("\n{} {} is the first release that is red; {} is green\n", package, found.first_bad,
                       found.last_good);
  return fmt::format("\nthe first red release of {} is {} or, not judged, one of {}; {} is green\n", package,
                     found.first_bad, fmt::join(found.skipped, ", "), found.last_good);
}

}  // namespace

std::vector<std::string> releases_between(const std::vector<std::string>& all, const std::string& package,
                                          const std::string& good, const std::string& bad) {
  const auto at = [&](const std::string& version) {
    const auto found = std::find(all.begin(), all.end(), version);
    if (found == all.end())
      throw BadInput(package + " " + version, "there is no such release", did_you_mean(version, all));
    return found;
  };
  const auto first = at(good), last = at(bad);
  if (first >= last)
    throw BadInput(package, fmt::format("{} does not come before {}", good, bad),
                   "bisect looks for the release that brought a bug: the good one is the older one.");
  return {first, last + 1};
}

Narrowed narrow(const std::vector<std::string>& releases, const std::function<Verdict(const std::string&)>& judge) {
  std::size_t green = 0, red = releases.size() - 1;
  std::vector<bool> skipped(releases.size(), false);
  for (;;) {
    std::vector<std::size_t> left;
    for (std::size_t i = green + 1; i < red; ++i)
      if (!skipped[i]) left.push_back(i);
    if (left.empty()) break;
    const std::size_t next = left[left.size() / 2];
    const Verdict verdict = judge(releases[next]);
    if (verdict == Verdict::none) skipped[next] = true;
    if (verdict == Verdict::green) green = next;
    if (verdict == Verdict::red) red = next;
  }
  return {
      releases[green], releases[red],
      std::vector<std::string>(releases.begin() + std::ptrdiff_t(green) + 1, releases.begin() + std::ptrdiff_t(red))};
}

ExitStatus bisect(const BisectArguments& arguments, const std::string& program, const Print& print) try {
  const Search search = search_of(arguments, program);
  refuse_gaps(search);
  const std::vector<std::string> releases =
      releases_between(releases_of(search.package, arguments.python), search.package, search.good, search.bad);
  print(fmt::format("{}: {} releases from {} to {}\n", search.package, releases.size(), search.good, search.bad));
  const Tries tries(search, arguments.python, print);
  tries.hold_end(search.good, Verdict::green);
  tries.hold_end(search.bad, Verdict::red);
  const Narrowed found = narrow(releases, [&](const std::string& version) { return tries.judge_or_skip(version); });
  print(conclusion(search.package, found));
  return found.skipped.empty() ? ExitStatus::as_expected : ExitStatus::check_failed;
} catch (const CannotBeHad& why) {
  print(fmt::format("seeksim: {}\n", why.what()));
  return ExitStatus::cannot_be_had;
}

}  // namespace seeksim::harness::releases
