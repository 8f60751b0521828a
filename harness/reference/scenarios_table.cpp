#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/scenario_files.h"
#include "harness/reference/markdown.h"
#include "harness/reference/pages.h"

namespace seeksim::harness {
namespace {

// What the scenarios of a folder have in common, in the order of the table.
struct FolderOfScenarios {
  const char* name;  // below scenarios/; "": on top
  const char* what;
};
constexpr FolderOfScenarios kFolders[] = {
    {"", "The first ones to try, one from each subject."},
    {"equivalence", "No fault: the layout, the schedule, the memory saved and the way of adding up change no bit."},
    {"network", "Messages and links: late, lost, corrupt, slow, cut."},
    {"deaths", "Ranks and nodes die, and the others go on; jobs start again."},
    {"numbers", "NaNs, overflows, flipped bits, low precision and divergence."},
    {"memory", "Too little device memory, offload to the host and to disks, and the formulas that predict memory."},
    {"pace", "Stragglers and pipelines: only time differs."},
    {"campaigns", "Hundreds of runs each: faults enumerated, drawn by chance, or over days of virtual time."},
    {"quirks", "Deviations of other frameworks, and what they change in the result."},
    {"faults", "At least one scenario for each kind of fault and each point at which it can strike."},
    {"negative",
     "One scenario for each check, in which that check turns red and no other does. They say so in "
     "`expect`, and so they pass; with `--set expect=pass` each is red."},
};

struct Row {
  std::string file;  // below scenarios/
  std::string why;
};

std::string folder_of(const Row& row) {
  const std::size_t slash = row.file.rfind('/');
  return slash == std::string::npos ? "" : row.file.substr(0, slash);
}

std::string heading(const std::string& folder, const char* what) {
  const std::string title = folder.empty() ? "On top" : folder + '/';
  return fmt::format("\n### {}\n\n{}\n", title, paragraph(what));
}

std::string table_of(const std::vector<Row>& rows, const std::string& folder) {
  std::string table = table_header({"scenario", "what it shows"});
  for (const Row& row : rows) {
    if (folder_of(row) != folder) continue;
    const std::string name = std::filesystem::path(row.file).stem();
    table += table_row({fmt::format("[{}]({})", name, row.file), plain(row.why, true)});
  }
  return table;
}

}  // namespace

std::string scenarios_table(const std::string& folder) {
  std::vector<Row> rows;
  for (const std::string& path : scenarios_below(folder)) {
    const Json json = parse_json(read_file(path, kJsonBytesMax), path).value;
    rows.push_back({path.substr(folder.size() + 1), json.value("why", "")});
  }
  std::vector<std::string> folders;
  std::string text;
  for (const FolderOfScenarios& known : kFolders) {
    folders.emplace_back(known.name);
    text += heading(known.name, known.what) + table_of(rows, known.name);
  }
  folders.emplace_back("museum");
  for (const Row& row : rows) {  // a folder that is new here still gets its table
    if (std::find(folders.begin(), folders.end(), folder_of(row)) != folders.end()) continue;
    folders.push_back(folder_of(row));
    text += heading(folders.back(), "") + table_of(rows, folders.back());
  }
  return text + '\n';
}

}  // namespace seeksim::harness
