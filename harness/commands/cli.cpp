#include "harness/commands/cli.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "harness/commands/checkpoint_command.h"
#include "harness/commands/cli_options.h"
#include "harness/commands/list_command.h"
#include "harness/doctor/machine.h"
#include "harness/export/flight_recorder.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "harness/report/terminal.h"

namespace seeksim::harness {

extern const char* const kBuildInfo;

namespace {

// The program that runs now, for processes that are to be the same.
std::string own_path() { return std::filesystem::read_symlink("/proc/self/exe"); }

ExitStatus checkpoint_command(const CLI::App& app, const CheckpointArguments& a) {
  const CLI::App& checkpoint = *app.get_subcommand("checkpoint");
  if (checkpoint.got_subcommand("inspect")) return inspect_checkpoints(a.folder, style_of_stdout());
  if (checkpoint.got_subcommand("verify")) return verify_checkpoints(a.folder, style_of_stdout());
  return convert_checkpoint(a.folder, a.out);
}

constexpr const char* kFooter =
    R"(Exit status: 0 as expected, 1 a check failed, 2 bad scenario or usage, 3 no progress, 4 a bug in seeksim.
Try: seeksim run scenarios/nccl_timeout.json)";

ExitStatus dispatch(const std::vector<std::string>& arguments) {
  CLI::App app("seeksim runs real distributed training against injected faults and checks every bit of the result.",
               "seeksim");
  app.footer(kFooter);
  app.set_version_flag("--version", kBuildInfo);
  app.require_subcommand(1);
  RunArguments run;
  LaunchArguments launch;
  GoldenArguments golden;
  ShrinkArguments shrink;
  PlanArguments plan;
  std::string list;
  add_run(app, run);
  add_launch(app, launch);
  add_golden(app, golden);
  add_shrink(app, shrink);
  ExploreArguments explore;
  add_explore(app, explore);
  DiffArguments diff;
  add_diff(app, diff);
  ScheduleArguments schedule;
  add_list(app, list, schedule);
  add_plan(app, plan);
  CheckpointArguments checkpoint;
  add_checkpoint(app, checkpoint);
  std::string dumps;
  app.add_subcommand("analyse", "Say what flight recorder dumps tell: who is to blame, who waits for whom")
      ->add_option("folder", dumps, "Folder with one dump a rank (seeksim run --flight-recorder, or PyTorch's)")
      ->required();
  DoctorArguments doctor;
  add_doctor(app, doctor);
  MuseumArguments museum;
  add_museum(app, museum);
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::Success& asked_for_help) {
    app.exit(asked_for_help);
    return ExitStatus::as_expected;
  } catch (const CLI::ParseError& error) {
    std::string next = "seeksim --help prints what there is.";
    std::vector<std::string> verbs;
    for (const CLI::App* verb : app.get_subcommands({})) verbs.push_back(verb->get_name());
    if (!arguments.empty() && arguments[0][0] != '-' && app.get_subcommands().empty()) {
      next = did_you_mean(arguments[0], verbs);
      throw BadInput(arguments[0], "there is no such command", next + " " + "seeksim --help prints what there is.");
    }
    throw BadInput("", error.what(), next);
  }
  if (app.got_subcommand("run")) return run_command(std::move(run));
  if (app.got_subcommand("launch")) return launch_command(launch, own_path(), style_of_stdout());
  if (app.got_subcommand("golden")) return golden_command(golden);
  if (app.got_subcommand("shrink")) {
    check_machine();
    return shrink_command(shrink);
  }
  if (app.got_subcommand("diff")) {
    check_machine();
    return diff_command(diff, style_of_stdout());
  }
  if (app.got_subcommand("explore")) {
    check_machine();
    return explore_command(explore, style_of_stdout());
  }
  if (app.got_subcommand("analyse")) {
    put(harness::dump(analyse_folder(dumps)));
    return ExitStatus::as_expected;
  }
  if (app.got_subcommand("plan")) return plan_command(plan);
  if (app.got_subcommand("checkpoint")) return checkpoint_command(app, checkpoint);
  if (app.got_subcommand("list")) {
    if (list == "schedule") return schedule_command(schedule, style_of_stdout());
    return list_command(list, style_of_stdout());
  }
  if (app.got_subcommand("museum")) {
    check_machine();
    return museum_command(museum, style_of_stdout());
  }
  return doctor_command(doctor, style_of_stdout());
}

}  // namespace

int main_of(const std::vector<std::string>& arguments) {
  try {
    const ExitStatus status = dispatch(arguments);
    // A full disk behind `> file` would otherwise go unnoticed.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw BadInput("standard output", "cannot be written", "Is its file system full?");
    return code(status);
  } catch (const BadInput& bad) {
    for (const Problem& problem : bad.problems()) complain(problem.text());
    return code(ExitStatus::bad_input);
  } catch (const std::exception& error) {
    std::string command = "seeksim";
    for (const std::string& argument : arguments) command += ' ' + argument;
    complain(fmt::format("this is a bug in seeksim: {}", error.what()));
    complain("please report it with the command: " + command);
    return code(ExitStatus::bug);
  }
}

}  // namespace seeksim::harness
