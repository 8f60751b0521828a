#include "harness/releases/museum.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>

#include "harness/input/files.h"
#include "harness/input/problem.h"
#include "harness/input/schema.h"
#include "harness/releases/installed.h"
#include "harness/report/terminal.h"

namespace seeksim::harness::releases {
namespace {

// A folder for records, removed at the end unless the user named it.
class RecordFolder {
 public:
  explicit RecordFolder(const std::string& given) : path_(given), temporary_(given.empty()) {
    if (!temporary_) {
      make_folder(given, "--out");
      path_ = std::filesystem::absolute(given).string();
      return;
    }
    std::string pattern = (std::filesystem::temp_directory_path() / "seeksim-museum-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr)
      throw BadInput(pattern, "no temporary folder can be made there", "Set TMPDIR to a folder with room.");
    path_ = pattern;
  }
  RecordFolder(const RecordFolder&) = delete;
  RecordFolder& operator=(const RecordFolder&) = delete;
  ~RecordFolder() {
    std::error_code ignored;
    if (temporary_) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  bool temporary() const { return temporary_; }

 private:
  std::string path_;
  bool temporary_ = false;
};

std::string versions(const Exhibit& exhibit) {
  return exhibit.open() ? fmt::format("{} {}, open", exhibit.package, exhibit.bad)
                        : fmt::format("{} {}, green {}", exhibit.package, exhibit.bad, exhibit.good);
}

std::string problem_of(const Exhibit& exhibit, const Answer& bad, const Answer& good) {
  const std::string without = exhibit.open() ? exhibit.good + " with the way round it" : exhibit.good;
  if (bad.verdict != Verdict::red)
    return fmt::format("{} {} is not red but {}: {}", exhibit.package, exhibit.bad, name(bad.verdict), bad.names);
  if (bad.names.find(exhibit.says) == std::string::npos)
    return fmt::format("{} {} does not say \"{}\": {}", exhibit.package, exhibit.bad, exhibit.says, bad.names);
  if (good.verdict != Verdict::green)
    return fmt::format("{} {} is not green but {}: {}", exhibit.package, without, name(good.verdict), good.names);
  return "";
}

std::string row_text(const ShownRelease& one, const Style& style) {
  const std::string head = style.bold(one.exhibit.name) + "  ";
  if (one.unavailable) return head + style.faint("not shown") + ": " + one.problem + '\n';
  if (!one.problem.empty()) return head + style.bad("NOT AS EXPECTED") + ": " + one.problem + '\n';
  return head + style.good("red and green") +
         fmt::format(" by {}; the loss curve: {}; {:.0f} s\n    {}\n", one.bad.caught_by, one.curve.text,
                     one.bad.seconds + one.good.seconds, one.bad.names);
}

std::string summary(const std::vector<ShownRelease>& shown) {
  std::size_t good = 0, unseen = 0, missing = 0;
  for (const ShownRelease& one : shown) {
    missing += one.unavailable;
    good += one.problem.empty();
    unseen += one.problem.empty() && !one.curve.seen;
  }
  std::string text = fmt::format(
      "\n{} of {} exhibits are red on the release with the bug and green without it; the loss curve would not show {} "
      "of them\n",
      good, shown.size(), unseen);
  return missing == 0 ? text : text + fmt::format("{} were not shown: their packages could not be had\n", missing);
}

ExitStatus status_of(const std::vector<ShownRelease>& shown) {
  const auto wrong = [](const ShownRelease& one) { return !one.problem.empty() && !one.unavailable; };
  if (std::any_of(shown.begin(), shown.end(), wrong)) return ExitStatus::check_failed;
  const auto missing = [](const ShownRelease& one) { return one.unavailable; };
  return std::any_of(shown.begin(), shown.end(), missing) ? ExitStatus::cannot_be_had : ExitStatus::as_expected;
}

}  // namespace

ShownRelease show(const Exhibit& exhibit, const AskRelease& ask_release, const std::string& folder) {
  ShownRelease shown;
  shown.exhibit = exhibit;
  try {
    shown.bad = ask_release(exhibit, exhibit.bad, exhibit.arguments, folder + "/bad");
    shown.good = ask_release(exhibit, exhibit.good, exhibit.good_arguments(), folder + "/good");
  } catch (const CannotBeHad& why) {
    shown.problem = why.what();
    shown.unavailable = true;
    return shown;
  }
  shown.problem = problem_of(exhibit, shown.bad, shown.good);
  if (shown.problem.empty()) shown.curve = curve_of(folder + "/bad/a", folder + "/good/a");
  return shown;
}

std::string exhibit_list(const std::vector<Exhibit>& exhibits, const Style& style) {
  std::string text;
  for (const Exhibit& one : exhibits) {
    text += fmt::format("{}  {}\n    {} {}\n    {}\n", style.bold(one.name), versions(one), one.symptom, one.cause,
                        one.source);
  }
  return text;
}

std::string release_table(std::vector<ShownRelease> shown) {
  const auto place = [](const ShownRelease& one) {
    const std::vector<std::string>& all = exhibit_groups();
    return std::find(all.begin(), all.end(), one.exhibit.group) - all.begin();
  };
  std::stable_sort(shown.begin(), shown.end(),
                   [&](const ShownRelease& a, const ShownRelease& b) { return place(a) < place(b); });
  std::string text =
      "| group | exhibit | red on, green on | symptom | cause | caught by | the verdict names | the loss curve shows "
      "it "
      "| s | source |\n|---|---|---|---|---|---|---|---|---|---|\n";
  for (const ShownRelease& one : shown) {
    const Exhibit& e = one.exhibit;
    text += fmt::format("| {} | `{}` | {} | {} | {} | {} | {} | {} | {:.0f} | {} |\n", e.group, e.name, versions(e),
                        e.symptom, e.cause, one.bad.caught_by, one.bad.names, one.curve.text,
                        one.bad.seconds + one.good.seconds, e.source);
  }
  return text;
}

std::vector<Exhibit> of_packages(std::vector<Exhibit> exhibits, const std::vector<std::string>& packages) {
  if (packages.empty()) return exhibits;
  std::vector<std::string> known;
  for (const Exhibit& one : exhibits)
    if (std::find(known.begin(), known.end(), one.package) == known.end()) known.push_back(one.package);
  for (const std::string& package : packages) {
    if (std::find(known.begin(), known.end(), package) == known.end())
      throw BadInput("--package " + package, "no exhibit that you ask for is a bug of it",
                     did_you_mean(package, known));
  }
  std::erase_if(exhibits, [&](const Exhibit& one) {
    return std::find(packages.begin(), packages.end(), one.package) == packages.end();
  });
  return exhibits;
}

ExitStatus release_museum(const ReleaseMuseumArguments& arguments, const std::string& program, const Style& style) {
  const std::vector<Exhibit> all = of_packages(exhibits(arguments.names), arguments.packages);
  if (arguments.list) {
    put(exhibit_list(all, style));
    return ExitStatus::as_expected;
  }
  const RecordFolder folder(arguments.out);
  const auto forget = [&](const std::string& where) {
    if (folder.temporary()) std::filesystem::remove_all(where);
  };
  if (arguments.installed) {
    const ReleaseEnvironment environment = own_environment(arguments.python);
    const AskInstalled ask_installed = [&](const Exhibit& exhibit) {
      const std::string where = folder.path() + '/' + exhibit.name;
      const Answer answer = ask(question_of(exhibit, program, exhibit.arguments), environment, where);
      forget(where);
      return answer;
    };
    return installed_museum(all, installed_versions(environment, packages_of(all)), ask_installed, style);
  }
  const AskRelease ask_release = [&](const Exhibit& exhibit, const std::string& version,
                                     const std::vector<std::string>& words, const std::string& where) {
    const ReleaseEnvironment environment = make_environment(pins_with(exhibit, version), arguments.python);
    return ask(question_of(exhibit, program, words), environment, where);
  };
  std::vector<ShownRelease> shown;
  for (const Exhibit& exhibit : all) {
    const std::string where = folder.path() + '/' + exhibit.name;
    shown.push_back(show(exhibit, ask_release, where));
    arguments.markdown ? note(row_text(shown.back(), {})) : put(row_text(shown.back(), style));
    forget(where);
  }
  arguments.markdown ? put_data(release_table(shown)) : put(summary(shown));
  return status_of(shown);
}

}  // namespace seeksim::harness::releases
