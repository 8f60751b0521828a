// What each command takes: its options, as CLI11 parses them and --help prints them.
#pragma once

#include <string>

#include "harness/campaign/study_command.h"
#include "harness/commands/analyse_command.h"
#include "harness/commands/diff_command.h"
#include "harness/commands/explore_command.h"
#include "harness/commands/golden_command.h"
#include "harness/commands/launch_command.h"
#include "harness/commands/list_command.h"
#include "harness/commands/plan_command.h"
#include "harness/commands/reference_command.h"
#include "harness/commands/run_command.h"
#include "harness/commands/runs_command.h"
#include "harness/commands/schedule_command.h"
#include "harness/commands/shrink_command.h"
#include "harness/doctor/doctor.h"
#include "harness/explain/museum.h"

namespace CLI {
class App;
}

namespace seeksim::harness {

struct CheckpointArguments {
  std::string folder, out;
};

void add_run(CLI::App& app, RunArguments& a);
void add_launch(CLI::App& app, LaunchArguments& a);
void add_golden(CLI::App& app, GoldenArguments& a);
void add_list(CLI::App& app, ListArguments& a, ScheduleArguments& schedule);
void add_shrink(CLI::App& app, ShrinkArguments& a);
void add_explore(CLI::App& app, ExploreArguments& a);
void add_diff(CLI::App& app, DiffArguments& a);
void add_analyse(CLI::App& app, AnalyseArguments& a);
void add_runs(CLI::App& app, RunsArguments& a);
void add_plan(CLI::App& app, PlanArguments& a);
void add_study(CLI::App& app, StudyArguments& a);
void add_doctor(CLI::App& app, DoctorArguments& a);
void add_museum(CLI::App& app, MuseumArguments& a);
void add_checkpoint(CLI::App& app, CheckpointArguments& a);
void add_reference(CLI::App& app, ReferenceArguments& a);

}  // namespace seeksim::harness
