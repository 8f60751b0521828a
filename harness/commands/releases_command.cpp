#include "harness/commands/releases_command.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "harness/input/problem.h"
#include "harness/report/terminal.h"

namespace seeksim::harness {
namespace {

void add_museum_of_releases(CLI::App& torch, releases::ReleaseMuseumArguments& a) {
  CLI::App* museum = torch.add_subcommand(
      "museum",
      "Real bugs of released packages: installs a release with the bug and one without it, and runs the same script "
      "on both under the ordinary judges. Exit status 5: packages cannot be had");
  museum->add_option("exhibit", a.names, "Files of examples/pytorch/museum/, without .json (default: all)");
  museum->add_option("--package", a.packages, "Only bugs of this package")->allow_extra_args(false);
  CLI::Option* const installed = museum->add_flag(
      "--installed", a.installed,
      "Run the scripts on what is installed, in place of releases: exit status 1 where a mended bug is back");
  museum->add_flag("--list", a.list, "Say what there is, and run nothing");
  museum->add_flag("--markdown", a.markdown, "Print the table of docs/real-museum.md")->excludes(installed);
  museum->add_option("--out", a.out, "Folder for the records of all runs (default: they are not kept)");
  museum->add_option("--python", a.python, "The Python to make environments with");
}

void add_bisect(CLI::App& torch, releases::BisectArguments& a) {
  CLI::App* bisect = torch.add_subcommand(
      "bisect",
      "Find the release that brought a bug: seeksim torch bisect --package deepspeed --good 0.17.5 --bad 0.18.2 "
      "[S.json] -- train.py ARGS. A release that does not install or fails by itself is skipped");
  bisect->add_option("scenario", a.scenario, "Scenario file (.json) with \"torch\", whose checks decide");
  bisect->add_option("--package", a.package, "The package, by its name on PyPI");
  bisect->add_option("--good", a.good, "A release without the bug");
  bisect->add_option("--bad", a.bad, "A later release with it");
  bisect->add_option("--with", a.pins, "Another package, name==version")->allow_extra_args(false);
  bisect->add_option("--np", a.ranks, "Number of ranks")->check(CLI::Range(1, kTorchRanksMax));
  bisect->add_option("--against", a.against,
                     "Arguments of a second run of the script that ought to train the same weights");
  bisect->add_option("--grade", a.grade, "How near the weights of the two runs have to be")
      ->check(CLI::IsMember({"bits", "reassociated", "rounding"}))
      ->capture_default_str();
  bisect->add_option("--exhibit", a.exhibit, "Take script, judge and releases from this exhibit of the museum");
  bisect->add_option("--python", a.python, "The Python to make environments with");
}

void add_by_release(CLI::App& torch, releases::ByReleaseArguments& a) {
  CLI::App* releases = torch.add_subcommand(
      "releases",
      "Which layouts have the bits of which others, by release: seeksim torch releases "
      "examples/pytorch/releases.json --out DIR. Installs each release and runs a table on it (docs/equivalence.md)");
  releases->add_option("releases", a.file, "Which releases, and what of which table (.json)")->required();
  releases->add_option("--out", a.out, "Folder of all runs and releases.txt; runs that are there are not repeated")
      ->required();
  releases->add_option("--python", a.python, "The Python to make environments with");
}

// The program that runs now, for the runs of scripts.
std::string own_path() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

}  // namespace

void add_releases(CLI::App& torch, ReleasesArguments& a) {
  add_museum_of_releases(torch, a.museum);
  add_bisect(torch, a.bisect);
  add_by_release(torch, a.by_release);
}

ExitStatus releases_command(const CLI::App& torch, ReleasesArguments a, const std::vector<std::string>& script,
                            bool& given) {
  given = true;
  if (torch.got_subcommand("bisect")) {
    a.bisect.command = script;
    return releases::bisect(a.bisect, own_path(), put);
  }
  const bool by_release = torch.got_subcommand("releases");
  given = by_release || torch.got_subcommand("museum");
  if (!given) return ExitStatus::as_expected;
  if (!script.empty()) throw BadInput("-- " + script.front(), "its file names the script", "Leave it out.");
  if (by_release) return releases::tables_by_release(a.by_release, own_path(), put);
  return releases::release_museum(a.museum, own_path(), style_of_stdout());
}

}  // namespace seeksim::harness
