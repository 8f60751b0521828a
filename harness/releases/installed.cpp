#include "harness/releases/installed.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "harness/report/terminal.h"

namespace seeksim::harness::releases {
namespace {

std::string package_of(const std::string& pin) { return pin.substr(0, pin.find("==")); }

std::vector<std::string> packages_of(const Exhibit& exhibit) {
  std::vector<std::string> all = {exhibit.package, "torch"};
  for (const std::string& pin : exhibit.pins) all.push_back(package_of(pin));
  return all;
}

// The numbers of a version, as far as they go: 2.15.0+cpu is {2, 15, 0}.
std::vector<int> numbers_of(const std::string& version) {
  std::vector<int> all;
  for (std::size_t at = 0; at < version.size() && version[at] >= '0' && version[at] <= '9'; ++at) {
    const std::size_t end = version.find_first_not_of("0123456789", at);
    all.push_back(std::atoi(version.substr(at, end - at).c_str()));
    if (end == std::string::npos || version[end] != '.') break;
    at = end;
  }
  return all;
}

// A bug that no release mended: an open one, or one whose release without it is an older one.
bool is_open(const Exhibit& exhibit) { return numbers_of(exhibit.good) <= numbers_of(exhibit.bad); }

Standing standing_of(const Exhibit& exhibit, Verdict verdict) {
  if (verdict == Verdict::none) return Standing::unjudged;
  if (is_open(exhibit)) return verdict == Verdict::red ? Standing::open : Standing::gone;
  return verdict == Verdict::red ? Standing::back : Standing::green;
}

std::size_t count(const std::vector<StandingExhibit>& all, Standing standing) {
  return static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [&](const StandingExhibit& one) { return one.standing == standing; }));
}

}  // namespace

std::vector<std::string> packages_of(const std::vector<Exhibit>& exhibits) {
  std::vector<std::string> all;
  for (const Exhibit& exhibit : exhibits)
    for (const std::string& package : packages_of(exhibit))
      if (std::find(all.begin(), all.end(), package) == all.end()) all.push_back(package);
  return all;
}

StandingExhibit stand(const Exhibit& exhibit, const Versions& versions, const AskInstalled& ask_installed) {
  StandingExhibit one;
  one.exhibit = exhibit;
  for (const std::string& package : packages_of(exhibit)) {
    if (versions.count(package) > 0) continue;
    one.names = package + " is not installed";
    return one;
  }
  one.version = versions.at(exhibit.package);
  const Answer answer = ask_installed(exhibit);
  one.standing = standing_of(exhibit, answer.verdict);
  one.names = answer.names;
  one.seconds = answer.seconds;
  return one;
}

std::string standing_text(const StandingExhibit& one, const Style& style) {
  const Exhibit& e = one.exhibit;
  const std::string head = style.bold(e.name) + "  ", on = fmt::format(" on {} {}", e.package, one.version);
  switch (one.standing) {
    case Standing::green:
      return fmt::format("{}{}{}; {:.0f} s\n", head, style.good("green"), on, one.seconds);
    case Standing::back:
      return fmt::format("{}{}{}, and green on {}; {:.0f} s\n    {}\n    The bug was: {} {}\n    {}\n", head,
                         style.bad("RED"), on, e.good, one.seconds, one.names, e.symptom, e.cause, e.source);
    case Standing::open:
      return fmt::format("{}{}{}; {:.0f} s\n    {}\n", head, style.faint("open, still red"), on, one.seconds,
                         one.names);
    case Standing::gone:
      return fmt::format("{}{}{}, which mends an open bug; {:.0f} s\n    {}\n", head, style.good("green"), on,
                         one.seconds, e.source);
    case Standing::unjudged:
      return fmt::format("{}{}{}: {}\n", head, style.bad("NO VERDICT"), on, one.names);
    case Standing::left_out:
      break;
  }
  return fmt::format("{}{}: {}\n", head, style.faint("left out"), one.names);
}

std::string standing_summary(const std::vector<StandingExhibit>& all) {
  const std::size_t green = count(all, Standing::green), back = count(all, Standing::back);
  const std::size_t open = count(all, Standing::open), gone = count(all, Standing::gone);
  std::vector<std::string> parts = {fmt::format("{} of {} mended bugs stay mended", green, green + back)};
  if (open + gone > 0) parts.push_back(fmt::format("{} of {} open bugs are still there", open, open + gone));
  if (const std::size_t failed = count(all, Standing::unjudged); failed > 0)
    parts.push_back(fmt::format("{} without a verdict", failed));
  if (const std::size_t left = count(all, Standing::left_out); left > 0)
    parts.push_back(fmt::format("{} left out for want of packages", left));
  return fmt::format("\n{}\n", fmt::join(parts, "; "));
}

ExitStatus installed_museum(const std::vector<Exhibit>& exhibits, const Versions& versions,
                            const AskInstalled& ask_installed, const Style& style) {
  std::vector<StandingExhibit> all;
  for (const Exhibit& exhibit : exhibits) {
    all.push_back(stand(exhibit, versions, ask_installed));
    put(standing_text(all.back(), style));
  }
  put(standing_summary(all));
  if (count(all, Standing::back) + count(all, Standing::unjudged) > 0) return ExitStatus::check_failed;
  return count(all, Standing::left_out) == all.size() ? ExitStatus::cannot_be_had : ExitStatus::as_expected;
}

}  // namespace seeksim::harness::releases
