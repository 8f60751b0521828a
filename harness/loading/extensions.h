// What a user adds in C++, beside everything that is built in: checks, faults, families of models, pipeline schedules,
// placements, recovery policies. Added once, before scenarios are loaded; from then on scenario files name them, and
// run, sweep, shrink, explore and reports treat them as the built-in ones. A test program of one's own does that in its
// main (or a test environment), and may hand its command line to main_of (harness/commands/cli.h) to be a whole
// `seeksim` with these in it.
//
// Not thread-safe: add first, run then. To remove one there is no way, since scenarios may name it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/input/json.h"
#include "harness/oracles/finding.h"
#include "harness/verdict/checks.h"
#include "runtime/comm/gather_rule.h"
#include "runtime/decide/recovery_rule.h"
#include "runtime/layout/family.h"
#include "runtime/layout/placement_rule.h"
#include "runtime/model/model.h"
#include "runtime/plan/pipeline_schedule.h"
#include "runtime/seams/seams.h"

namespace seeksim::harness {

// Throws std::invalid_argument where a name is not letters, digits and _, or is taken. what: of what, in the message.
void refuse_name(const char* what, const std::string& name, bool taken);

// ---- checks --------------------------------------------------------------------------------------------------------

// What a check of one's own says of a run: good(...), bad(...), or blind(...) where there was nothing to look at, which
// makes the run red too. `argument`: what the scenario wrote after the colon.
using Look = std::function<Finding(const Evidence& evidence, const std::string& argument)>;
// What is wrong with an argument, as the end of a sentence that begins with the check's name; empty: nothing. ranks: of
// the world, 0 when unknown.
using WrongArgument = std::function<std::string(const std::string& argument, int ranks)>;

struct OwnCheck {
  std::string name;      // letters, digits and _; not that of another check
  std::string argument;  // an example of what comes after the colon; empty: it takes none
  std::string summary;   // for `seeksim list checks`
  Look look;
  WrongArgument wrong = {};   // empty: any argument where it takes one, none where it does not
  bool needs_golden = false;  // Evidence::golden is there
  bool of_shapes = false;     // it needs no values, and so can judge a run of shapes
  bool under_faults = true;   // it holds whatever breaks, so that `seeksim explore` may judge by it
};
// Throws std::invalid_argument where the name is taken or no name, or there is nothing to look with.
void add_check(OwnCheck check);
// Null: there is none of that name.
const OwnCheck* own_check(const std::string& name);

// ---- faults --------------------------------------------------------------------------------------------------------

// A fault of one's own wraps the seams of each rank, over those of the scenario's other faults (faults/forwarding.h has
// wrappers that change nothing). One object serves a run; what decorate() hands out lives as long as it does. To be
// deterministic it draws from the seed that it was made with and reads the seams' clock. On real processes
// (--backend mpi) each process makes an object of its own for its rank; firings of living processes are added up.
class OwnFault {
 public:
  virtual ~OwnFault() = default;
  // Called once a rank and attempt of the job; again for a rank whose process was started again.
  virtual runtime::Seams decorate(int rank, runtime::Seams inner) = 0;
  // How often it changed something. A fault that never fired makes the run red.
  virtual std::uint64_t fired() const = 0;
};
// parameters: the scenario's object, without its name. seed: the world's, mixed with the fault's place in the list.
// Throws std::invalid_argument with what is wrong with the parameters.
using MakeFault = std::function<std::unique_ptr<OwnFault>(const Json& parameters, std::uint64_t seed)>;
// A scenario asks for it by "own_faults": [{"name": NAME, ...}]. Throws std::invalid_argument as add_check.
void add_fault(const std::string& name, MakeFault make);

// Throws std::invalid_argument: no such fault, or what is wrong with the parameters.
std::unique_ptr<OwnFault> make_own_fault(const OwnFaultSpec& spec, std::uint64_t seed);
std::vector<std::string> own_fault_names();

// All of a scenario's own faults, in their order; each wraps what the ones before have wrapped. What they have fired is
// that of this object's ranks: all of a simulated world, one in a process of its own.
class OwnFaults {
 public:
  // Throws std::invalid_argument as make_own_fault.
  explicit OwnFaults(const Scenario& scenario);
  runtime::Seams decorate(int rank, const runtime::Seams& inner);
  std::vector<std::uint64_t> fired() const;  // by fault

 private:
  std::vector<std::unique_ptr<OwnFault>> made_;
};

// ---- models --------------------------------------------------------------------------------------------------------

// A scenario asks for it by "model": {"family": NAME, ...}. Throws std::invalid_argument as add_check.
void add_family(const std::string& name, std::shared_ptr<const runtime::ModelFamily> family);
// null: there is none of that name.
std::shared_ptr<const runtime::ModelFamily> own_family(const std::string& name);
std::vector<std::string> own_family_names();

// ---- rules of a run ------------------------------------------------------------------------------------------------
// None of them may change a bit: every judge of the built-in ones looks at these too. Each throws std::invalid_argument
// as add_check does.

// "world": {"schedule": NAME}. A rule whose lists cannot be run is refused when the scenario is loaded.
void add_schedule(const std::string& name, std::shared_ptr<const runtime::ScheduleRule> rule);
std::shared_ptr<const runtime::ScheduleRule> own_schedule(const std::string& name);  // null: there is none
std::vector<std::string> schedule_names();                                           // the built-in ones first

// "world": {"all_gather": NAME}: in which rounds gathers of shards travel, of parameters and of all else.
void add_collective(const std::string& name, std::shared_ptr<const runtime::GatherRule> rule);
std::shared_ptr<const runtime::GatherRule> own_gather(const std::string& name);
std::vector<std::string> own_gather_names();

// "world": {"placement": NAME}: where the shards of ZeRO 1 to 3 end.
void add_placement(const std::string& name, std::shared_ptr<const runtime::PlacementRule> rule);
std::shared_ptr<const runtime::PlacementRule> own_placement(const std::string& name);
std::vector<std::string> own_placement_names();

// "recovery": {"policy": NAME}.
void add_recovery_policy(const std::string& name, std::shared_ptr<const runtime::RecoveryRule> rule);
std::shared_ptr<const runtime::RecoveryRule> own_recovery_policy(const std::string& name);
std::vector<std::string> own_recovery_policy_names();

}  // namespace seeksim::harness
