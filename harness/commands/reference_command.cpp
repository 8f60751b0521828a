#include "harness/commands/reference_command.h"

#include <fmt/format.h>

#include <filesystem>

#include "harness/input/files.h"
#include "harness/report/terminal.h"

namespace seeksim::harness {
namespace {

constexpr std::uint64_t kPageBytesMax = 16 << 20;

// Every file that this command makes, by path.
std::vector<Page> all_files(const std::string& top, const Page& command_line) {
  std::vector<Page> files;
  for (Page& page :
       std::vector<Page>{keys_page(), faults_page(), checks_page(), quirks_page(), planted_bugs_page(), torch_page(),
                         studies_page(), calibration_page(), steps_picture(), memory_picture(), command_line})
    files.push_back({top + "/docs/reference/" + page.name, std::move(page.text)});
  const std::string readme = top + "/scenarios/README.md";
  const std::string text = read_file(readme, kPageBytesMax);
  files.push_back(
      {readme, with_part_replaced(text, "table of scenarios", scenarios_table(top + "/scenarios"), readme)});
  return files;
}

bool is_current(const Page& file) {
  return std::filesystem::exists(file.name) && read_file(file.name, kPageBytesMax) == file.text;
}

}  // namespace

ExitStatus reference_command(const ReferenceArguments& a, const Page& command_line) {
  const std::vector<Page> files = all_files(a.top, command_line);
  if (!a.check) make_folder(a.top + "/docs/reference", "reference");
  ExitStatus status = ExitStatus::as_expected;
  for (const Page& file : files) {
    if (is_current(file)) continue;
    if (a.check) {
      status = ExitStatus::check_failed;
      put(fmt::format("{} is out of date. `seeksim reference` writes it again.\n", file.name));
    } else {
      write_file(file.name, file.text);
      put(fmt::format("written: {}\n", file.name));
    }
  }
  return status;
}

}  // namespace seeksim::harness
