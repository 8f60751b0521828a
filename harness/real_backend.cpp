#include "harness/real_backend.h"

#include <fmt/format.h>

#include <array>

#include "harness/shapes.h"

namespace seeksim::harness {
namespace {

constexpr const char* kSimulate = "Use --backend sim.";

struct Impossible {
  const char* check;
  const char* why;
};
constexpr std::array<Impossible, 11> kImpossible = {{
    {"finishes_within_virtual_s", "it judges virtual time, and processes run in real time"},
    {"slowdown_at_least", "it judges virtual time, and processes run in real time"},
    {"overlap_at_least", "it judges virtual time, and processes run in real time"},
    {"bubble_formula", "it judges virtual time, and processes run in real time"},
    {"goodput_at_least", "it judges virtual time, and processes run in real time"},
    {"young_daly", "it judges virtual time, and processes run in real time"},
    {"straggler", "its scores are made of virtual time, and processes share the cores of a machine"},
    {"no_races", "the race detector watches simulated devices"},
    {"born", "the search for where a value came from is not told between processes yet"},
    {"conservation", "its tagged run is made on simulated ranks"},
    {"restarts", "a job of processes is started again by seeksim launch, not by a scenario"},
}};

}  // namespace

std::vector<Problem> problems_on_mpi(const Scenario& scenario) {
  std::vector<Problem> problems;
  const auto refuse = [&](std::string path, std::string what, std::string next) {
    problems.push_back({scenario.file, std::move(path), "--backend mpi: " + std::move(what), std::move(next)});
  };
  if (is_of_shapes(scenario)) refuse("numerics", "\"shapes\" has no values, and processes compute them", kSimulate);
  if (scenario.planned.any()) refuse("fault_plan", "processes make no faults", kSimulate);
  for (std::size_t i = 0; i < scenario.faults.size(); ++i) {
    refuse(fmt::format("faults.{}.kind", i), fmt::format("{}: processes make no faults", name(scenario.faults[i].kind)),
           "Use --backend sim, or run it with seeksim launch and stop or kill a process yourself.");
  }
  for (const CheckSpec& check : scenario.checks) {
    for (const Impossible& row : kImpossible) {
      if (check.name == row.check)
        refuse("checks", fmt::format("{}: {}", check.text(), row.why), "Remove it, or use --backend sim.");
    }
  }
  const runtime::RecoveryPlan& recovery = scenario.train.recovery;
  if (scenario.train.provenance.on || scenario.train.provenance.log_step >= 0)
    refuse("provenance", "what it finds is not told between processes yet", kSimulate);
  if (recovery.spares > 0) refuse("recovery.spares", "nobody joins a job of processes that runs", "Set it to 0.");
  if (recovery.grow) refuse("recovery.grow", "nobody joins a job of processes that runs", "Set it to false.");
  if (recovery.straggler.on)
    refuse("recovery.straggler", "its scores are made of virtual time, and processes share cores", "Remove it.");
  return problems;
}

void refuse_options_on_mpi(const RunOptions& options) {
  const auto refuse = [](bool asked, const char* option, const char* why) {
    if (asked) throw BadInput(option, std::string("--backend mpi: ") + why, "Leave it out, or use --backend sim.");
  };
  refuse(!options.trace.empty(), "--trace", "it draws virtual time");
  refuse(options.verify_determinism, "--verify-determinism", "processes meet in another order each time");
  refuse(!options.flight_recorder.empty(), "--flight-recorder",
         "the recorders of other processes are not gathered yet");
  refuse(!options.bundle.empty(), "--bundle", "the recorders of other processes are not gathered yet");
  refuse(options.wall_limit_s > 0, "--wall-limit", "nobody can end the other processes in order");
}

}  // namespace seeksim::harness
