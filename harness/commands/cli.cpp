#include "harness/commands/cli.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <new>

#include "harness/commands/checkpoint_command.h"
#include "harness/commands/cli_options.h"
#include "harness/commands/list_command.h"
#include "harness/commands/torch_command.h"
#include "harness/commands/watch.h"
#include "harness/commands/words/command_line_page.h"
#include "harness/commands/words/completion.h"
#include "harness/commands/words/man_page.h"
#include "harness/doctor/machine.h"
#include "harness/input/problem.h"
#include "harness/input/scenario_files.h"
#include "harness/report/terminal.h"
#include "harness/run/memory_reserve.h"
#include "runtime/backend/machine/interrupts.h"
#include "runtime/backend/wire/process_world.h"

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

constexpr const char* kStatuses =
    R"(Exit status: 0 as expected, 1 a check failed, 2 bad scenario or usage, 3 no progress, 4 a bug in seeksim,
5 packages for PyTorch scripts cannot be had.
Try: )";

// What to try of each command; of the others, and of all together, the first.
constexpr std::pair<const char*, const char*> kExamples[] = {
    {"run", "seeksim run scenarios/nccl_timeout.json"},
    {"launch", "seeksim launch scenarios/rank_crash.json"},
    {"torch", "seeksim torch run --np 2 -- examples/pytorch/ddp.py"},
    {"golden", "seeksim golden scenarios/baseline.json"},
    {"shrink", "seeksim shrink scenarios/negative/experts_by_micro_batch.json"},
    {"explore", "seeksim explore scenarios/rank_crash.json --budget 10s"},
    {"diff", "seeksim diff scenarios/baseline.json scenarios/rank_crash.json"},
    {"list", "seeksim list faults"},
    {"plan", "seeksim plan ds_config.json --model llama-3-8b --gpus 16 --memory 80GB"},
    {"study", "seeksim study scenarios/studies/megascale.json"},
    {"analyse", "seeksim analyse train.log"},
    {"doctor", "seeksim doctor --config ds_config.json"},
    {"museum", "seeksim museum"}};

// What all commands are asked for; CLI11 fills in those of the one that is given.
struct Arguments {
  RunArguments run;
  LaunchArguments launch;
  GoldenArguments golden;
  ShrinkArguments shrink;
  ExploreArguments explore;
  DiffArguments diff;
  ListArguments list;
  ScheduleArguments schedule;
  PlanArguments plan;
  StudyArguments study;
  CheckpointArguments checkpoint;
  AnalyseArguments analyse;
  RunsArguments runs;
  DoctorArguments doctor;
  MuseumArguments museum;
  ReferenceArguments reference;
  TorchArguments torch;
  std::string shell;
};

// In the order in which --help lists them.
void declare(CLI::App& app, Arguments& a) {
  app.footer(std::string(kStatuses) + kExamples[0].second);
  app.set_version_flag("--version", kBuildInfo);
  app.require_subcommand(1);
  add_run(app, a.run);
  add_launch(app, a.launch);
  add_torch(app, a.torch);
  add_golden(app, a.golden);
  add_shrink(app, a.shrink);
  add_explore(app, a.explore);
  add_diff(app, a.diff);
  add_list(app, a.list, a.schedule);
  add_plan(app, a.plan);
  add_study(app, a.study);
  add_checkpoint(app, a.checkpoint);
  add_analyse(app, a.analyse);
  add_runs(app, a.runs);
  add_doctor(app, a.doctor);
  add_museum(app, a.museum);
  add_reference(app, a.reference);
  app.add_subcommand("completion", "Print tab completion for a shell: source <(seeksim completion bash)")
      ->add_option("shell", a.shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  for (const auto& [name, example] : kExamples) app.get_subcommand(name)->footer(std::string(kStatuses) + example);
  app.add_subcommand("man", "Print the manual page: seeksim man | man -l -");
}

// A word that is no command: whatever follows it, --help too, was meant for another one.
void refuse_unknown_command(CLI::App& app, const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0].starts_with('-')) return;
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands({})) {
    if (verb->check_name(arguments[0])) return;
    verbs.push_back(verb->get_name());
  }
  throw BadInput(arguments[0], "there is no such command",
                 did_you_mean(arguments[0], verbs) + " seeksim --help lists the commands.");
}

// What to do about arguments that a command does not take.
std::string advice_on(const std::vector<std::string>& arguments) {
  const bool script = arguments.size() > 1 && arguments[0] == "torch" &&
                      std::any_of(arguments.begin(), arguments.end(), [](const auto& a) { return a.ends_with(".py"); });
  return script ? fmt::format("A script and its arguments go behind --: seeksim torch {} -- train.py ...", arguments[1])
                : "seeksim --help lists the commands.";
}

// False: help was asked for, and printed. Throws BadInput.
bool parse(CLI::App& app, const std::vector<std::string>& arguments) try {
  refuse_unknown_command(app, arguments);
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  app.parse(reversed);
  return true;
} catch (const CLI::Success& asked_for_help) {
  app.exit(asked_for_help);
  return false;
} catch (const CLI::ParseError& error) {
  throw BadInput("", error.what(), advice_on(arguments));
}

ExitStatus list_of(const Arguments& a) {
  return a.list.what == "schedule" ? schedule_command(a.schedule, style_of_stdout())
                                   : list_command(a.list, style_of_stdout());
}

// What runs scenarios looks at the machine first.
struct Command {
  const char* name;
  bool checks_machine;
  ExitStatus (*run)(const CLI::App& app, Arguments& a);
};
constexpr Command kCommands[] = {
    {"run", false, [](const CLI::App&, Arguments& a) { return run_command(std::move(a.run)); }},
    {"launch", false,
     [](const CLI::App&, Arguments& a) { return launch_command(a.launch, own_path(), style_of_stdout()); }},
    {"torch", false, [](const CLI::App& app, Arguments& a) { return torch_command(app, a.torch); }},
    {"golden", false, [](const CLI::App&, Arguments& a) { return golden_command(a.golden); }},
    {"shrink", true, [](const CLI::App&, Arguments& a) { return shrink_command(a.shrink); }},
    {"diff", true, [](const CLI::App&, Arguments& a) { return diff_command(a.diff, style_of_stdout()); }},
    {"explore", true, [](const CLI::App&, Arguments& a) { return explore_command(a.explore, style_of_stdout()); }},
    {"analyse", false, [](const CLI::App&, Arguments& a) { return analyse_command(a.analyse); }},
    {"runs", false, [](const CLI::App&, Arguments& a) { return runs_command(a.runs, style_of_stdout()); }},
    {"plan", false, [](const CLI::App&, Arguments& a) { return plan_command(a.plan); }},
    {"study", false, [](const CLI::App&, Arguments& a) { return study_command(a.study, style_of_stdout()); }},
    {"checkpoint", false, [](const CLI::App& app, Arguments& a) { return checkpoint_command(app, a.checkpoint); }},
    {"list", false, [](const CLI::App&, Arguments& a) { return list_of(a); }},
    {"reference", false,
     [](const CLI::App& app, Arguments& a) { return reference_command(a.reference, command_line_page(app)); }},
    {"completion", false,
     [](const CLI::App& app, Arguments& a) {
       put_data(completion_script(a.shell, command_words(app)));
       return ExitStatus::as_expected;
     }},
    {"man", false,
     [](const CLI::App& app, Arguments&) {
       const std::string built = kBuildInfo;
       put_data(man_page(command_words(app), built.substr(0, built.find(','))));
       return ExitStatus::as_expected;
     }},
    {"museum", true, [](const CLI::App&, Arguments& a) { return museum_command(a.museum, style_of_stdout()); }},
    {"doctor", false, [](const CLI::App&, Arguments& a) { return doctor_command(a.doctor, style_of_stdout()); }}};

ExitStatus dispatch(std::vector<std::string> arguments) {
  CLI::App app("seeksim runs real distributed training against injected faults and checks every bit of the result.",
               "seeksim");
  Arguments a;
  declare(app, a);
  a.torch.script = take_script(arguments);
  if (!parse(app, arguments)) return ExitStatus::as_expected;
  for (std::string* file : {&a.launch.file, &a.shrink.file, &a.explore.file, &a.diff.a, &a.diff.b, &a.plan.file})
    *file = scenario_named(*file);
  const auto given = std::find_if(std::begin(kCommands), std::end(kCommands),
                                  [&](const Command& command) { return app.got_subcommand(command.name); });
  if (a.run.watch) {
    std::erase(arguments, "--watch");
    return watch(own_path(), arguments, a.run.files);
  }
  if (given->checks_machine) check_machine();
  return given->run(app, a);
}

}  // namespace

namespace {

// As a shell says it of who was ended by a signal.
int status_of(ExitStatus status) { return runtime::interrupted() == 0 ? code(status) : 128 + runtime::interrupted(); }

}  // namespace

int main_of(const std::vector<std::string>& arguments) {
  runtime::forget_interrupt();
  keep_memory_reserve();
  try {
    const ExitStatus status = dispatch(arguments);
    // A full disk behind `> file` would otherwise go unnoticed.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw BadInput("standard output", "cannot be written", "Is its file system full?");
    return status_of(status);
  } catch (const BadInput& bad) {
    for (const Problem& problem : bad.problems()) complain(problem.text());
    return status_of(ExitStatus::bad_input);
  } catch (const runtime::PeerGone& gone) {
    complain(gone.what());
    return code(ExitStatus::no_progress);
  } catch (const std::bad_alloc&) {  // by itself: building a text might need more
    memory_has_run_out();
    std::fputs("seeksim: out of memory: the machine or its limits (ulimit -v) give no more\n", stderr);
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
