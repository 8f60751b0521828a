#include "harness/processes/refusals.h"

#include <fmt/format.h>

#include <array>
#include <functional>

#include "faults/trigger.h"
#include "harness/processes/faults.h"
#include "harness/scenario/variants.h"
#include "runtime/backend/wire/mpi_world.h"
#include "runtime/rules/bugs.h"

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
    {"born", "provenance is not exchanged between processes yet"},
    {"conservation", "its tagged run is made on simulated ranks"},
    {"restarts", "seeksim launch restarts a job of processes; a scenario cannot"},
}};

std::string why_not_over_nccl(const faults::Rule& given) {
  const faults::Rule rule = faults::with_defaults(given);
  if (faults::is_message(rule) || faults::is_link(rule.kind))
    return "NCCL's messages cannot be disturbed one by one; use --backend mpi";
  if (rule.kind == faults::FaultKind::collective_mismatch)
    return "NCCL compares nothing: what differs between ranks hangs or writes where it should not";
  return {};
}

using Refuse = std::function<void(std::string path, std::string what, std::string next)>;

void refuse_checks(const Scenario& scenario, bool nccl, const Refuse& refuse) {
  for (const CheckSpec& check : scenario.checks) {
    if (const char* why = why_not_judged(check.name, nccl))
      refuse("checks", fmt::format("{}: {}", check.text(), why), "Leave --no-skip out, or use --backend sim.");
  }
  for (const std::string& name : scenario.expect.names()) {
    const char* why = scenario.expect.what == Expect::What::check_fails ? why_not_judged(name, nccl) : nullptr;
    if (why != nullptr) refuse("expect.check_fails", fmt::format("{}: {}", name, why), kSimulate);
  }
}

// A planted bug that nothing here would tell of has to be refused, or a green run would mean nothing.
void refuse_bug(const runtime::PlantedBug& bug, bool nccl, const Refuse& refuse) {
  if (bug.is(runtime::Bug::stale_messages_taken))
    return refuse("bug", "stale_messages_taken is a mistake of the simulated network", kSimulate);
  for (const runtime::BugInfo& info : runtime::bug_catalogue()) {
    const char* why = bug.is(info.bug) ? why_not_judged(info.caught, nccl) : nullptr;
    if (why != nullptr) refuse("bug", fmt::format("{} is caught by {}: {}", info.name, info.caught, why), kSimulate);
  }
}

void refuse_world(const sim::WorldPlan& world, const Refuse& refuse) {
  if (!world.strict_collectives)
    refuse("world.collectives", "\"nccl\": each message between processes says what it is, and its receiver looks",
           "Use \"strict\", or --backend sim.");
  if (!(world.schedule == sim::Schedule{}))
    refuse("schedule", "the machine decides which of several processes runs next", kSimulate);
  if (world.storage.capacity_bytes != sim::StorageModel{}.capacity_bytes)
    refuse("world.storage.capacity_gib", "the size of a real file system cannot be set", "Use a disk_full fault.");
}

}  // namespace

const char* why_not_judged(std::string_view check, bool nccl) {
  for (const Impossible& row : kImpossible) {
    if (check == row.check) return row.why;
  }
  if (nccl && check == "collectives_match")
    return "NCCL's messages say nothing of their operation that could be compared";
  return nullptr;
}

std::vector<Problem> problems_on_mpi(const Scenario& scenario, const std::string& backend) {
  const bool nccl = backend == "nccl";
  std::vector<Problem> problems;
  const auto refuse = [&](std::string path, const std::string& what, std::string next) {
    problems.push_back({scenario.file, std::move(path), "--backend " + backend + ": " + what, std::move(next)});
  };
  if (is_of_shapes(scenario)) refuse("numerics", "\"shapes\" has no values, and processes compute them", kSimulate);
  if (scenario.planned.any())
    refuse("fault_plan", "a plan of its own is for simulated ranks; processes make faults by name", kSimulate);
  for (std::size_t i = 0; i < scenario.faults.size(); ++i) {
    const faults::Rule& rule = scenario.faults[i];
    std::string why = why_not_on_processes(rule);
    if (why.empty() && nccl) why = why_not_over_nccl(rule);
    if (!why.empty()) refuse(fmt::format("faults.{}.kind", i), fmt::format("{}: {}", name(rule.kind), why), kSimulate);
  }
  refuse_world(scenario.world, refuse);
  refuse_bug(scenario.train.bug, nccl, refuse);
  refuse_checks(scenario, nccl, refuse);
  const runtime::RecoveryPlan& recovery = scenario.train.recovery;
  if (scenario.train.provenance.on || scenario.train.provenance.log_step >= 0)
    refuse("provenance", "its findings are not exchanged between processes yet", kSimulate);
  if (recovery.spares > 0) refuse("recovery.spares", "no process can join a job that is running", "Set it to 0.");
  if (recovery.grow) refuse("recovery.grow", "no process can join a job that is running", "Set it to false.");
  if (recovery.straggler.on)
    refuse("recovery.straggler", "its scores come from virtual time, and processes share cores", "Remove it.");
  return problems;
}

void refuse_options_on_mpi(const RunOptions& options, const std::string& backend) {
  const auto refuse = [&](bool asked, const char* option, const char* why) {
    if (asked) throw BadInput(option, "--backend " + backend + ": " + why, "Leave it out, or use --backend sim.");
  };
  refuse(!options.files.trace.empty(), "--trace", "it draws virtual time");
  refuse(options.verify_determinism, "--verify-determinism", "real processes meet in a different order each time");
  refuse(!options.files.flight_recorder.empty(), "--flight-recorder",
         "the recorders of other processes are not gathered yet");
  refuse(!options.files.bundle.empty(), "--bundle", "the recorders of other processes are not gathered yet");
  refuse(options.many.retries > 0, "--retries", "processes that are gone do not come back; launch starts a job again");
  refuse(options.wall_limit_s > 0, "--wall-limit", "no process can shut the others down in order");
}

void need_mpi(const std::string& where) {
  const std::string problem = runtime::MpiWorld::problem();
  if (problem.empty()) return;
  throw BadInput(
      where, problem,
      "Install Open MPI (openmpi-bin; to build with it libopenmpi-dev), or do without: launch --no-mpi, torchrun.");
}

}  // namespace seeksim::harness
