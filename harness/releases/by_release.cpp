#include "harness/releases/by_release.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "harness/input/document.h"
#include "harness/input/files.h"
#include "harness/input/keys.h"
#include "harness/input/problem.h"
#include "harness/input/schema.h"
#include "harness/releases/environment.h"
#include "harness/torch/child.h"

namespace seeksim::harness::releases {
namespace {

namespace fs = std::filesystem;

constexpr double kTableLimit_s = 6 * 3600;  // of one release
constexpr std::uint64_t kFileMax = 1 << 20;

using namespace shapes;

Shape texts() { return list(text()).standard(Json::array()); }

const Keys<AskedPackage>& package_keys() {
  static const Keys<AskedPackage> keys = {
      {"package", at(&AskedPackage::package), text().length(1, 200).required(), kNoBit, "By its name on PyPI."},
      {"versions", at(&AskedPackage::versions), texts(), kNoBit, "Its releases, the oldest first."},
      {"last", at(&AskedPackage::last), integer(1, 50).unset(), kNoBit, "In place of them: the newest so many."},
      {"with", at(&AskedPackage::pins), texts(), kNoBit, "Other packages: name==version."},
      {"only", at(&AskedPackage::only), texts(), kNoBit, "What of the table is run: layout=zero1,zero2."},
  };
  return keys;
}

const Keys<ByRelease>& file_keys() {
  static const Keys<ByRelease> keys = {
      {"why", by_hand, text().standard(""), kNoBit, "For readers: what is asked, and when it was written."},
      {"table", at(&ByRelease::table), text().length(1, 1000).required(), kNoBit, "A table, beside this file."},
      {"only", at(&ByRelease::only), texts(), kNoBit, "What of the table is run, of every package."},
      {"packages", by_hand, list(package_keys().shape()).required(), kNoBit, "One row a package."},
  };
  return keys;
}

// What rows of keys cannot say by themselves.
void refuse_contradictions(const ByRelease& what, Findings& findings) {
  if (what.packages.empty())
    findings.add("/packages", "there are no packages", "Write [{\"package\": \"deepspeed\", \"last\": 8}].");
  std::set<std::string> seen;
  for (std::size_t i = 0; i < what.packages.size(); ++i) {
    const AskedPackage& asked = what.packages[i];
    const std::string pointer = fmt::format("/packages/{}", i);
    if (asked.versions.empty() == (asked.last == 0))
      findings.add(pointer, "which releases?", "Give either versions or last.");
    if (!seen.insert(asked.package).second)
      findings.add(pointer, fmt::format("{} has a row already", asked.package), "Its runs would lie in one folder.");
  }
}

// What the rows of a package's table are about: a cell without the axes on which all cells have one value.
class Rows {
 public:
  explicit Rows(const std::vector<ReleaseColumn>& columns) {
    std::map<std::string, std::vector<std::string>> values;
    for (const ReleaseColumn& column : columns) {
      if (column.table.is_null()) continue;
      for (const Json& cell : column.table.at("cells")) {
        if (std::find(cells_.begin(), cells_.end(), cell.at("cell")) == cells_.end()) cells_.push_back(cell.at("cell"));
        for (const auto& [axis, value] : cell.at("cell").items()) {
          std::vector<std::string>& known = values[axis];
          if (std::find(known.begin(), known.end(), value) == known.end()) known.push_back(value);
        }
      }
    }
    for (const auto& [axis, known] : values)
      if (known.size() > 1) axes_.push_back(axis);
  }
  const std::vector<Json>& cells() const { return cells_; }
  const std::vector<std::string>& axes() const { return axes_; }
  std::vector<std::string> words(const Json& cell) const {
    std::vector<std::string> all;
    for (const std::string& axis : axes_) all.push_back(cell.at(axis));
    return all;
  }
  std::string name(const Json& cell) const {
    std::vector<std::string> all;
    for (const std::string& axis : axes_) all.push_back(axis + ' ' + cell.at(axis).get<std::string>());
    return fmt::format("{}", fmt::join(all, ", "));
  }

 private:
  std::vector<Json> cells_;
  std::vector<std::string> axes_;
};

const Json* find_cell(const ReleaseColumn& column, const Json& cell) {
  if (column.table.is_null()) return nullptr;
  for (const Json& one : column.table.at("cells"))
    if (one.at("cell") == cell) return &one;
  return nullptr;
}

bool is_red(const Json& cell) { return cell.at("state") == "red"; }

// "bits", the part of what is allowed (0.31), or how far away; bold where it is red.
std::string found_in(const Json* cell) {
  if (cell == nullptr) return "";
  if (cell->at("state") == "left_out") return "-";
  std::string text = "failed";
  if (cell->contains("grade")) {
    const Json part = cell->value("of_allowed", Json(nullptr));
    if (cell->at("grade") == "bits")
      text = "bits";
    else if (part.is_number())
      text = fmt::format("{:.2f}", part.get<double>());
    else
      text =
          fmt::format("{:.1e} away", std::max(cell->value("weight_distance", 0.0), cell->value("loss_distance", 0.0)));
  }
  return is_red(*cell) ? "**" + text + "**" : text;
}

// Releases next to each other whose cells are all the same stand in one column.
struct Alike {
  std::size_t first = 0, last = 0;
  std::vector<std::string> words;
};
std::vector<Alike> alike_in(const Rows& rows, const std::vector<ReleaseColumn>& columns) {
  std::vector<Alike> all;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    std::vector<std::string> words;
    for (const Json& cell : rows.cells())
      words.push_back(columns[i].table.is_null() ? "not had" : found_in(find_cell(columns[i], cell)));
    if (!all.empty() && all.back().words == words)
      all.back().last = i;
    else
      all.push_back({i, i, std::move(words)});
  }
  return all;
}

std::string span_of(const std::vector<ReleaseColumn>& columns, std::size_t first, std::size_t last) {
  return first == last ? columns[first].version : columns[first].version + " to " + columns[last].version;
}

// The reason why a cell need not have the bits, where it has not in some release.
std::string why_of(const std::vector<ReleaseColumn>& columns, const Json& cell) {
  for (const ReleaseColumn& column : columns) {
    const Json* const found = find_cell(column, cell);
    if (found != nullptr && found_in(found) != "bits") return found->value("why", "");
  }
  return "";
}

std::string line_of(const std::vector<std::string>& words) { return fmt::format("| {} |\n", fmt::join(words, " | ")); }

// Reasons in the order in which rows need them; a row has the number of its own.
class Reasons {
 public:
  std::string number_of(const std::string& why) {
    if (why.empty()) return "";
    const auto found = std::find(all_.begin(), all_.end(), why);
    if (found != all_.end()) return std::to_string(found - all_.begin() + 1);
    all_.push_back(why);
    return std::to_string(all_.size());
  }
  std::string text() const {
    std::string text;
    for (std::size_t i = 0; i < all_.size(); ++i) text += fmt::format("{}. {}\n", i + 1, all_[i]);
    return text;
  }

 private:
  std::vector<std::string> all_;
};

// What is wrong in red cells, each once with the releases that have it.
std::string red_text(const Rows& rows, const std::vector<ReleaseColumn>& columns) {
  std::string text;
  for (const Json& cell : rows.cells()) {
    std::map<std::string, std::vector<std::size_t>> releases;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const Json* const found = find_cell(columns[i], cell);
      if (found == nullptr || !is_red(*found)) continue;
      const std::string problem = found->value("problem", "");
      releases[problem.empty() ? found->value("first", "") : problem].push_back(i);
    }
    for (const auto& [what, at] : releases) {
      std::vector<std::string> spans;
      for (std::size_t i = 0, end = 0; i < at.size(); i = end + 1) {
        for (end = i; end + 1 < at.size() && at[end + 1] == at[end] + 1;) ++end;
        spans.push_back(span_of(columns, at[i], at[end]));
      }
      const std::string name = rows.name(cell);
      text += fmt::format("- {}red in {}: {}\n", name.empty() ? "" : name + ", ", fmt::join(spans, ", "), what);
    }
  }
  return text;
}

class Asking {
 public:
  Asking(const ByReleaseArguments& arguments, const std::string& program, const Print& print)
      : arguments_(arguments), program_(program), print_(print) {}

  ReleaseColumn ask(const ByRelease& what, const AskedPackage& asked, const std::string& version) {
    ReleaseColumn column{version, nullptr, ""};
    const std::string out = fmt::format("{}/{}-{}", arguments_.out, asked.package, version);
    try {
      run(what, asked, version, out);
      column.table = Document::load(out + "/table.json").json();
    } catch (const CannotBeHad& why) {
      missing_ = true;
      column.problem = why.what();
    } catch (const BadInput& why) {
      red_ = true;
      column.problem = why.problems().front().what;
    }
    if (!column.table.is_null())
      for (const Json& cell : column.table.at("cells")) red_ |= is_red(cell);
    print_(fmt::format("  {} {:<10} {}\n", asked.package, version,
                       column.table.is_null() ? column.problem : column.table.value("sentence", "")));
    return column;
  }
  ExitStatus status() const {
    return red_ ? ExitStatus::check_failed : missing_ ? ExitStatus::cannot_be_had : ExitStatus::as_expected;
  }

 private:
  void run(const ByRelease& what, const AskedPackage& asked, const std::string& version, const std::string& out) {
    std::vector<std::string> pins = asked.pins;
    pins.push_back(asked.package + "==" + version);
    const ReleaseEnvironment environment = make_environment(pins, arguments_.python);
    std::vector<std::string> command = {program_, "torch", "table",    what.table,
                                        "--out",  out,     "--python", environment.python};
    for (const std::vector<std::string>& only : {what.only, asked.only})
      for (const std::string& one : only) command.insert(command.end(), {"--only", one});
    const torch::Captured said = torch::capture(command, variables_of(environment), kTableLimit_s);
    const bool ended = said.ending.good() || (said.ending.over && said.ending.status == code(ExitStatus::check_failed));
    if (said.out_of_time || !ended)
      throw BadInput(out, said.out_of_time ? "the table took too long" : said.last_words(), "");
  }

  const ByReleaseArguments& arguments_;
  const std::string& program_;
  const Print& print_;
  bool red_ = false, missing_ = false;
};

}  // namespace

ByRelease read_by_release(const std::string& text, const std::string& file) {
  const Document document = Document::from_text(text, file);
  Findings findings(document);
  for (const SchemaProblem& problem : explain(file_keys().shape().schema(), document.json()))
    findings.add(problem.pointer, problem.what, problem.next);
  if (!findings.empty()) throw BadInput(findings.take());
  ByRelease what;
  file_keys().read(Reader(document.json(), "", findings), what);
  const Json& packages = document.json().at("packages");
  for (std::size_t i = 0; i < packages.size(); ++i)
    package_keys().read(Reader(packages[i], fmt::format("/packages/{}", i), findings), what.packages.emplace_back());
  refuse_contradictions(what, findings);
  if (!findings.empty()) throw BadInput(findings.take());
  what.table = (fs::path(file).parent_path() / what.table).string();
  return what;
}

std::string by_release_text(const std::string& package, const std::vector<ReleaseColumn>& columns) {
  const Rows rows(columns);
  Reasons reasons;
  std::vector<std::string> head = rows.axes();
  std::vector<std::vector<std::string>> lines;
  for (const Json& cell : rows.cells()) lines.push_back(rows.words(cell));
  for (const Alike& alike : alike_in(rows, columns)) {
    head.push_back(package + ' ' + span_of(columns, alike.first, alike.last));
    for (std::size_t i = 0; i < lines.size(); ++i) lines[i].push_back(alike.words[i]);
  }
  head.emplace_back("why");
  std::string text = line_of(head) + line_of(std::vector<std::string>(head.size(), "---"));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    lines[i].push_back(reasons.number_of(why_of(columns, rows.cells()[i])));
    text += line_of(lines[i]);
  }
  const std::string why = reasons.text(), red = red_text(rows, columns);
  if (!why.empty()) text += '\n' + why;
  if (!red.empty()) text += '\n' + red;
  for (const ReleaseColumn& column : columns)
    if (column.table.is_null()) text += fmt::format("\n{} {}: {}\n", package, column.version, column.problem);
  return text;
}

ExitStatus tables_by_release(const ByReleaseArguments& arguments, const std::string& program, const Print& print) try {
  const std::string file = resolve(arguments.file, "", "torch releases");
  const ByRelease what = read_by_release(read_file(file, kFileMax), file);
  make_folder(arguments.out, "--out");
  Asking asking(arguments, program, print);
  std::string text;
  for (const AskedPackage& asked : what.packages) {
    std::vector<std::string> versions = asked.versions;
    if (asked.last > 0) {
      versions = releases_of(asked.package, arguments.python);
      versions.erase(versions.begin(), versions.end() - std::min<std::ptrdiff_t>(asked.last, std::ssize(versions)));
    }
    std::vector<ReleaseColumn> columns;
    for (const std::string& version : versions) columns.push_back(asking.ask(what, asked, version));
    text += (text.empty() ? "" : "\n") + by_release_text(asked.package, columns);
    write_file(arguments.out + "/releases.txt", text);  // what is known is kept, whatever ends this command
  }
  print('\n' + text);
  return asking.status();
} catch (const CannotBeHad& why) {
  print(fmt::format("seeksim: {}\n", why.what()));
  return ExitStatus::cannot_be_had;
}

}  // namespace seeksim::harness::releases
