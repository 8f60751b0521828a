#include "tests/harness/docs/page_commands.h"

#include <regex>
#include <sstream>
#include <stdexcept>

namespace seeksim::docs {
namespace {

constexpr const char* kSample = "<!-- sample: ";
constexpr const char* kNotRun = "<!-- not run: ";
constexpr const char* kEnd = "<!-- end -->";

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

bool is_fence(const std::string& line) { return line.starts_with("```"); }

// The status that a text promises; -1: none.
int promised_status(const std::string& text) {
  static const std::regex kPromise("exit status (\\d)");
  std::smatch found;
  return std::regex_search(text, found, kPromise) ? found[1].str()[0] - '0' : -1;
}

// "./seeksim run x.json   # why" without the comment, which begins with two spaces or more.
std::string without_comment(const std::string& line) { return line.substr(0, line.find("  #")); }

bool builds(const std::string& line) {
  return line.starts_with("./seeksim build") || line.starts_with("./seeksim test") ||
         line.starts_with("./seeksim pack");
}

// The paragraph that begins behind `at`, as one line.
std::string paragraph_behind(const std::vector<std::string>& lines, std::size_t at) {
  while (at < lines.size() && lines[at].empty()) ++at;
  std::string text;
  for (; at < lines.size() && !lines[at].empty() && !is_fence(lines[at]); ++at) text += lines[at] + ' ';
  return text;
}

std::string masked(const std::string& text) {
  static const std::regex kWallTime("wall [0-9.]+ s|[0-9.]+ s done first");
  return std::regex_replace(text, kWallTime, "wall time");
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(masked(text));
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

}  // namespace

std::vector<PageCommand> commands_of(const std::string& page) {
  std::vector<PageCommand> commands;
  const std::vector<std::string> lines = lines_of(page);
  bool in_sample = false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].starts_with(kSample)) in_sample = true;
    if (lines[i] == kEnd) in_sample = false;
    if (!is_fence(lines[i])) continue;
    const bool is_run = !in_sample && !(i > 0 && lines[i - 1].starts_with(kNotRun));
    const std::size_t first = commands.size();
    for (++i; i < lines.size() && !is_fence(lines[i]); ++i) {
      std::string line = lines[i];
      const int number = int(i) + 1;
      while (line.ends_with('\\') && i + 1 < lines.size()) line = line.substr(0, line.size() - 1) + lines[++i];
      if (!is_run || !line.starts_with("./seeksim ") || builds(line)) continue;
      commands.push_back({number, without_comment(line), std::max(0, promised_status(line))});
    }
    const int below = promised_status(paragraph_behind(lines, i + 1));
    if (commands.size() > first && commands.back().status == 0 && below > 0) commands.back().status = below;
  }
  return commands;
}

std::vector<Sample> samples_of(const std::string& page) {
  std::vector<Sample> samples;
  const std::vector<std::string> lines = lines_of(page);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].starts_with(kSample)) continue;
    Sample sample;
    sample.line = int(i) + 1;
    sample.command = lines[i].substr(std::string(kSample).size());
    sample.command.erase(sample.command.rfind(" -->"));
    for (++i; i < lines.size() && lines[i] != kEnd; ++i) sample.shown += lines[i] + '\n';
    if (i == lines.size()) throw std::runtime_error("a sample without " + std::string(kEnd));
    samples.push_back(std::move(sample));
  }
  return samples;
}

std::string as_shown(const std::string& command, const std::string& output) {
  return "```text\n$ " + command + '\n' + output + (output.empty() || output.ends_with('\n') ? "" : "\n") + "```\n";
}

std::string with_samples(const std::string& page, const std::vector<std::string>& shown) {
  std::string text;
  std::size_t sample = 0;
  bool within = false;
  for (const std::string& line : lines_of(page)) {
    if (line == kEnd) within = false;
    if (!within) text += line + '\n';
    if (!line.starts_with(kSample)) continue;
    within = true;
    text += shown.at(sample++);
  }
  return text;
}

std::string first_difference(const std::string& shown, const std::string& output) {
  const std::vector<std::string> a = words_of(shown), b = words_of(output);
  std::string before;
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const std::string mine = i < a.size() ? a[i] : "(end)", theirs = i < b.size() ? b[i] : "(end)";
    if (mine != theirs) return "after \"" + before + "\" the page has \"" + mine + "\", the program \"" + theirs + '"';
    before = (before.size() > 60 ? before.substr(before.size() - 60) : before) + ' ' + mine;
  }
  return "";
}

}  // namespace seeksim::docs
