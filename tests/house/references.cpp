#include "tests/house/references.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <functional>

namespace seeksim::house {
namespace {

namespace fs = std::filesystem;

bool is_alnum(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_upper(char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; }

struct Line {
  int number = 0;
  std::string_view text;
};

std::vector<Line> lines_of(std::string_view text) {
  std::vector<Line> lines;
  int number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back({++number, text.substr(0, end)});
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// ---- Markdown -------------------------------------------------------------------------------------------------------

bool is_fence(std::string_view line) {
  const size_t at = line.find_first_not_of(' ');
  return at != std::string_view::npos && (line.substr(at).starts_with("```") || line.substr(at).starts_with("~~~"));
}

// Lines of prose, with `code` blanked out; lines within fences are left out.
std::vector<std::pair<int, std::string>> prose_of(std::string_view page) {
  std::vector<std::pair<int, std::string>> prose;
  bool fenced = false;
  for (const Line& line : lines_of(page)) {
    if (is_fence(line.text)) {
      fenced = !fenced;
      continue;
    }
    if (fenced) continue;
    std::string text(line.text);
    bool code = false;
    for (char& c : text) {
      if (c == '`') {
        code = !code;
      } else if (code) {
        c = ' ';
      }
    }
    prose.emplace_back(line.number, std::move(text));
  }
  return prose;
}

// The anchor of a heading: GitHub keeps each space, mkdocs joins what touches.
std::vector<std::string> slugs(std::string_view heading) {
  std::string github;
  for (const char c : heading) {
    if (is_alnum(c) || c == '_' || c == '-') github += char(std::tolower(static_cast<unsigned char>(c)));
    if (c == ' ') github += '-';
  }
  std::string mkdocs;
  for (const char c : github)
    if (c != '-' || (!mkdocs.empty() && mkdocs.back() != '-')) mkdocs += c;
  return {github, mkdocs};
}

std::set<std::string, std::less<>> anchors_of(std::string_view page) {
  std::set<std::string, std::less<>> anchors;
  bool fenced = false;
  for (const Line& line : lines_of(page)) {
    fenced ^= is_fence(line.text);
    const size_t words = line.text.find_first_not_of('#');
    if (!fenced && words != 0 && words != std::string_view::npos && line.text[words] == ' ')
      for (std::string& slug : slugs(line.text.substr(words + 1))) anchors.insert(std::move(slug));
    for (size_t at = line.text.find(" id=\""); at != std::string_view::npos; at = line.text.find(" id=\"", at + 1))
      anchors.insert(std::string(line.text.substr(at + 5, line.text.find('"', at + 5) - at - 5)));
  }
  return anchors;
}

// ---- what texts name ------------------------------------------------------------------------------------------------

// Comments of a source, line by line; a string that holds "//" is taken for one, which does no harm here. Nothing of
// other files.
std::vector<Line> comments_of(const File& file) {
  std::vector<Line> comments;
  bool within = false;
  if (!is_source(file.path)) return comments;
  for (const Line& line : lines_of(file.text)) {
    size_t from = within ? 0 : std::min(line.text.find("//"), line.text.find("/*"));
    if (from == std::string_view::npos) continue;
    comments.push_back({line.number, line.text.substr(from)});
    const size_t opens = line.text.rfind("/*");
    const size_t closes = line.text.rfind("*/");
    if (opens != std::string_view::npos && line.text.find("//") > opens) within = true;
    if (closes != std::string_view::npos && (opens == std::string_view::npos || closes > opens)) within = false;
  }
  return comments;
}

// All lines of a page or a source, messages included; only the comments of a test, whose strings name things that are
// not there.
std::vector<Line> read_by_people(const File& file) {
  if (is_markdown(file.path) || (is_source(file.path) && !file.path.starts_with("tests/"))) return lines_of(file.text);
  return comments_of(file);
}

// Files of other projects, which texts name without the project: Python below runtime/ is DeepSpeed's. And projects.
bool is_of_others(std::string_view path) {
  static const std::set<std::string, std::less<>> kNames = {"train_gpt2.cu", "pytorch/pytorch", "pytorch/torchtitan"};
  return kNames.count(path) > 0 || (path.starts_with("runtime/") && path.ends_with(".py")) ||
         path.starts_with("docs/source/");
}

bool is_path_character(char c) {
  return is_alnum(c) || std::string_view("_./*-<>{}$%").find(c) != std::string_view::npos;
}

// The words of a line that could be paths, without the dot that ends a sentence.
std::vector<std::string_view> path_words(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < line.size();) {
    size_t end = at;
    while (end < line.size() && is_path_character(line[end])) ++end;
    std::string_view word = line.substr(at, end - at);
    while (word.ends_with('.')) word.remove_suffix(1);
    while (word.starts_with("./")) word.remove_prefix(2);
    if (word.size() > 2) words.push_back(word);
    at = end + 1;
  }
  return words;
}

// What follows a word of `line` that ends in '#': "r7" of "docs/numerics.md#r7".
std::string_view anchor_after(std::string_view line, std::string_view word) {
  std::string_view rest = line.substr(std::size_t(word.data() - line.data()) + word.size());
  if (!rest.starts_with('#')) return {};
  rest.remove_prefix(1);
  return rest.substr(0, rest.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-"));
}

// "x.json", "NAME.json", "<folder>/a", "${x}": stands for something that a reader puts in.
bool is_placeholder(std::string_view path) {
  if (path.find_first_of("<>{}$%") != std::string_view::npos || path.find("..") != std::string_view::npos) return true;
  for (const fs::path& part : fs::path(path)) {
    const std::string stem = part.stem().string();
    const bool shouted =
        std::all_of(stem.begin(), stem.end(), [](char c) { return is_upper(c) || !std::isalpha(c); }) &&
        std::any_of(stem.begin(), stem.end(), is_upper) && part.extension() != ".md";
    if (stem.size() == 1 || shouted) return true;
  }
  return false;
}

bool matches(std::string_view pattern, std::string_view path) {
  if (pattern.empty()) return path.empty();
  if (pattern[0] != '*') return !path.empty() && path[0] == pattern[0] && matches(pattern.substr(1), path.substr(1));
  for (size_t taken = 0; taken <= path.size(); ++taken) {
    if (matches(pattern.substr(1), path.substr(taken))) return true;
    if (taken < path.size() && path[taken] == '/') break;
  }
  return false;
}

bool names_a_kind_of_file(std::string_view word) {
  static const std::set<std::string, std::less<>> kEnds = {".h", ".cpp", ".cu", ".cuh", ".inl", ".md", ".cmake"};
  return kEnds.count(fs::path(word).extension().string()) > 0;
}

// "R7, F3": letters with a number, apart by commas; `at` is moved behind them.
std::vector<std::string> rules_at(std::string_view line, size_t& at) {
  std::vector<std::string> rules;
  while (at + 1 < line.size() && (line[at] == 'R' || line[at] == 'F') && is_digit(line[at + 1])) {
    size_t end = at + 1;
    while (end < line.size() && is_digit(line[end])) ++end;
    rules.push_back(slugs(line.substr(at, end - at)).front());
    at = end;
    if (line.substr(at).starts_with(", ")) at += 2;
  }
  return rules;
}

// The anchors of docs/numerics.md that a line cites: "(R7)", "numerics.md, R7", and "numerics.md, " with a title in
// quotes.
std::vector<std::string> cited_in(std::string_view line) {
  constexpr std::string_view kPage = "numerics.md, ";
  std::vector<std::string> cited;
  for (size_t open = line.find('('); open != std::string_view::npos; open = line.find('(', open + 1)) {
    size_t at = open + 1;
    std::vector<std::string> rules = rules_at(line, at);
    if (at < line.size() && line[at] == ')') cited.insert(cited.end(), rules.begin(), rules.end());
  }
  if (size_t at = line.find(kPage); at != std::string_view::npos) {
    at += kPage.size();
    const size_t quote = at < line.size() && line[at] == '"' ? line.find('"', at + 1) : std::string_view::npos;
    if (quote != std::string_view::npos) cited.push_back(slugs(line.substr(at + 1, quote - at - 1)).front());
    for (std::string& rule : rules_at(line, at)) cited.push_back(std::move(rule));
  }
  return cited;
}

}  // namespace

Targets::Targets(const std::vector<File>& files) {
  for (const File& file : files) {
    paths_.insert(file.path);
    names_.insert(fs::path(file.path).filename().string());
    for (fs::path folder = fs::path(file.path).parent_path(); !folder.empty(); folder = folder.parent_path()) {
      paths_.insert(folder.string());
      if (!folder.has_parent_path()) tops_.insert(folder.string());
    }
    if (is_markdown(file.path)) anchors_[file.path] = anchors_of(file.text);
    if (!is_source(file.path)) continue;
    for (const Line& line : lines_of(file.text)) {
      const size_t open = line.text.find('<');
      if (!line.text.starts_with("#include <") || line.text.find('>') == std::string_view::npos) continue;
      const fs::path header(line.text.substr(open + 1, line.text.find('>') - open - 1));
      library_headers_.insert(header.filename().string());
    }
  }
}

bool Targets::has(std::string_view path) const {
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.find('*') == std::string_view::npos) return paths_.count(path) > 0;
  return std::any_of(paths_.begin(), paths_.end(), [&](const std::string& known) { return matches(path, known); });
}

bool Targets::has_name(std::string_view name) const {
  if (name.find('*') == std::string_view::npos) return names_.count(name) > 0;
  return std::any_of(names_.begin(), names_.end(), [&](const std::string& known) { return matches(name, known); });
}

bool Targets::has_anchor(std::string_view page, std::string_view anchor) const {
  const auto found = anchors_.find(page);
  return found != anchors_.end() && found->second.count(anchor) > 0;
}

std::vector<Violation> check_links(const File& file, const Targets& targets) {
  std::vector<Violation> found;
  if (!is_markdown(file.path)) return found;
  for (const auto& [number, text] : prose_of(file.text)) {
    for (size_t at = text.find("]("); at != std::string::npos; at = text.find("](", at + 1)) {
      const std::string target = text.substr(at + 2, text.find(')', at) - at - 2);
      if (target.find("://") != std::string::npos || target.starts_with("mailto:")) continue;
      const size_t hash = target.find('#');
      const fs::path folder = fs::path(file.path).parent_path();
      std::string page = (folder / target.substr(0, hash)).lexically_normal().generic_string();
      if (target.starts_with('#')) page = file.path;
      if (!targets.has(page)) {
        found.push_back({file.path, number, "a link to " + target + ", which is not there"});
      } else if (file.path.starts_with("docs/") && !page.starts_with("docs/")) {
        found.push_back({file.path, number, "a link to " + target + " leaves docs/, so the site cannot follow it"});
      } else if (hash != std::string::npos && !targets.has_anchor(page, target.substr(hash + 1))) {
        found.push_back({file.path, number, "a link to " + target + ": the page has no such anchor"});
      }
    }
  }
  return found;
}

std::vector<Violation> unlisted_pages(const std::vector<File>& files) {
  const auto site =
      std::find_if(files.begin(), files.end(), [](const File& file) { return file.path == "mkdocs.yml"; });
  std::vector<Violation> found;
  for (const File& file : files) {
    if (!file.path.starts_with("docs/") || !is_markdown(file.path)) continue;
    const std::string entry = ": " + file.path.substr(5) + "\n";
    if (site == files.end() || site->text.find(entry) == std::string::npos)
      found.push_back({file.path, 1, "mkdocs.yml does not list this page"});
  }
  return found;
}

std::vector<Violation> check_paths(const File& file, const Targets& targets) {
  std::vector<Violation> found;
  for (const Line& line : read_by_people(file)) {
    for (const std::string_view word : path_words(line.text)) {
      if (is_placeholder(word) || is_of_others(word)) continue;
      const size_t slash = word.find('/');
      if (slash == std::string_view::npos) {
        if (names_a_kind_of_file(word) && !targets.has_name(word) && !targets.is_of_a_library(word))
          found.push_back({file.path, line.number, "there is no file " + std::string(word)});
        continue;
      }
      if (!targets.is_top(word.substr(0, slash))) continue;
      // A path may leave out what follows the last dot: "scenarios/baseline", "runtime/seams/op".
      const fs::path beside = fs::path(file.path).parent_path() / word;  // a page may start at its own folder
      if (targets.has(beside.lexically_normal().generic_string())) continue;
      if (!targets.has(word) && !targets.has(std::string(word) + ".*")) {
        found.push_back({file.path, line.number, "there is no " + std::string(word)});
      } else if (const std::string_view anchor = anchor_after(line.text, word);
                 !anchor.empty() && !targets.has_anchor(word, anchor)) {
        found.push_back({file.path, line.number, std::string(word) + " has no anchor #" + std::string(anchor)});
      }
    }
  }
  return found;
}

std::vector<Violation> check_rules(const File& file, const Targets& targets) {
  std::vector<Violation> found;
  for (const Line& line : is_markdown(file.path) ? lines_of(file.text) : comments_of(file)) {
    for (std::string& anchor : cited_in(line.text)) {
      if (!targets.has_anchor("docs/numerics.md", anchor))
        found.push_back({file.path, line.number, "docs/numerics.md has nothing for #" + anchor});
    }
  }
  return found;
}

std::vector<Violation> check_exhibits(const File& file, const Targets& targets) {
  std::vector<Violation> found;
  if (!is_markdown(file.path)) return found;
  constexpr std::string_view kCommand = "seeksim museum ";
  for (const Line& line : lines_of(file.text)) {
    const size_t at = line.text.find(kCommand);
    if (at == std::string_view::npos) continue;
    std::string_view name = line.text.substr(at + kCommand.size());
    name = name.substr(0, name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789"));
    if (name.size() > 1 && !targets.has("scenarios/museum/" + std::string(name) + ".json"))
      found.push_back({file.path, line.number, "there is no exhibit " + std::string(name)});
  }
  return found;
}

std::vector<Violation> check_schema(const File& file, const Targets& targets) {
  constexpr std::string_view kFirst = "{ \"$schema\": \"";
  const bool is_schema = file.path.ends_with("schema.json");
  if (!file.path.starts_with("scenarios/") || !file.path.ends_with(".json") || is_schema) return {};
  if (!file.text.starts_with(kFirst)) return {{file.path, 1, "does not begin with \"$schema\""}};
  const std::string named = file.text.substr(kFirst.size(), file.text.find('"', kFirst.size()) - kFirst.size());
  const std::string path = (std::filesystem::path(file.path).parent_path() / named).lexically_normal().string();
  if (targets.has(path)) return {};
  return {{file.path, 1, "names the schema " + named + ", which is not there"}};
}

std::vector<Violation> check_size(const File& file) {
  constexpr int kReadmeLines = 120;
  constexpr int kPageLines = 200;
  constexpr std::ptrdiff_t kColumns = 100;
  std::vector<Violation> found;
  if (!is_markdown(file.path)) return found;
  const std::vector<Line> lines = lines_of(file.text);
  const bool is_page = file.path.starts_with("docs/") && !is_generated(file.path);
  const int most = file.path == "README.md" ? kReadmeLines : is_page ? kPageLines : int(lines.size());
  if (int(lines.size()) > most)
    found.push_back({file.path, int(lines.size()), "the page may have " + std::to_string(most) + " lines"});
  bool generated = false;
  for (const Line& line : lines) {
    if (line.text.starts_with("<!-- sample: ")) generated = true;
    if (line.text == "<!-- end -->") generated = false;
    const bool is_row = line.text.substr(std::min(line.text.find_first_not_of(' '), line.text.size())).starts_with('|');
    const auto columns = std::count_if(line.text.begin(), line.text.end(),
                                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
    if (columns > kColumns && !is_row && !generated)
      found.push_back({file.path, line.number, "a line of " + std::to_string(columns) + " columns"});
  }
  return found;
}

}  // namespace seeksim::house
