// Scenario: one idea as plain values. harness/loading/load.h reads it from JSON and writes it back.
#pragma once

#include <string>
#include <vector>

#include "faults/plan.h"
#include "harness/scenario/alarms.h"
#include "harness/scenario/fault_plan.h"
#include "harness/scenario/monitors.h"
#include "harness/scenario/sweep.h"
#include "runtime/plan/plan.h"
#include "sim/world.h"

namespace seeksim::harness {

// A check as a scenario names it: "golden:bitwise", {"recoveries": 1}. Canonical form: name, or name:argument.
struct CheckSpec {
  std::string name;      // "culprit"
  std::string argument;  // "5"; empty where there is none
  std::string text() const { return argument.empty() ? name : name + ':' + argument; }
  friend bool operator==(const CheckSpec&, const CheckSpec&) = default;
};

struct Expect {
  enum class What { pass, check_fails, stops } what = What::pass;
  std::string argument;                    // the checks, with spaces between, or words of the reason
  std::vector<std::string> names() const;  // of the checks
  friend bool operator==(const Expect&, const Expect&) = default;
};

// A fault that the program's user has added (harness/loading/extensions.h), as a scenario names it.
struct OwnFaultSpec {
  std::string name;
  std::string parameters = "{}";  // JSON
  friend bool operator==(const OwnFaultSpec&, const OwnFaultSpec&) = default;
};

// What the mistake that a scenario of the museum shows was like (harness/explain/museum.h).
struct Exhibit {
  std::string group;                 // museum_groups()
  std::string symptom;               // as a user saw it
  std::string fix;                   // in a sentence
  std::string source;                // where it was found: framework and number
  std::vector<std::string> without;  // options, as of --set, that take away what no bug, quirk or fault stands for
  friend bool operator==(const Exhibit&, const Exhibit&) = default;
};

// What the golden leaves out, and whose it is.
struct GoldenPlan {
  std::vector<std::int64_t> skip_steps;    // steps that it does not apply
  std::vector<std::int64_t> drop_batches;  // global batches that no step of it uses
  std::vector<std::int64_t> undo_changes;  // steps of changes of the configuration that it does not make
  bool shared = false;                     // all rows of a sweep are compared with the base's golden
  bool any() const { return shared || !skip_steps.empty() || !drop_batches.empty() || !undo_changes.empty(); }
};

// world.platform: a cluster as somebody measured it. What follows from it is in world.collective_times.
struct PlatformPlan {
  std::string gpu, network = "ib";        // as seeksim plan --platform names them; no gpu: there is none
  std::vector<std::string> nccl_tests;    // files, beside the scenario's
  std::vector<std::string> torch_traces;  // likewise
  bool any() const { return !gpu.empty(); }
};

// Files of the user's own. Their bytes are in train.definition.
struct GivenFiles {
  std::string init;               // --init or model.init; initial_weights holds its bytes
  std::string batches;            // data.batches; data.tokens holds its content
  runtime::Index batch_rows = 0;  // samples a step in that file; 0: no file
};

// What a reader wants to see of a run.
struct Watched {
  std::vector<std::string> show;  // figures of a sweep's table; empty: those that its checks are about
  Alarms alarms;
  Monitors monitors;  // deepspeed.tensorboard, deepspeed.csv_monitor
};

struct Scenario {
  std::string file;  // where it came from; "" when made in memory
  std::string name;
  std::string why;
  runtime::TrainPlan train;
  sim::WorldPlan world;  // world.seed is the scenario's seed
  PlatformPlan platform;
  std::vector<faults::Rule> faults;
  std::vector<OwnFaultSpec> own_faults;
  PlannedFaults planned;         // further faults, enumerated or drawn: this is many runs then, or one of drawn faults
  std::size_t drawn_faults = 0;  // so many of `faults`, the last ones, were drawn: one of them may never come to fire
  std::vector<CheckSpec> checks;
  Expect expect;
  Exhibit museum;  // no group: it is none
  GivenFiles given;
  Sweep sweep;                    // empty: this is one run
  std::string written;            // of a sweep: its base as JSON text, for that is what rows edit
  bool by_samples = false;        // train_batch_size is cut by samples, whatever the number of ranks
  bool strict_deepspeed = false;  // what DeepSpeed refuses is refused here too
  bool real_storage = false;
  GoldenPlan golden;
  Watched watched;
  int accumulation = 1;            // gradient_accumulation_steps, as DeepSpeed derives it
  std::uint32_t identity = 0;      // by which schedule strings know it; 0: made in memory
  std::vector<std::string> notes;  // said once: keys without effect, defaults that surprise
};

// launch rank -> node, as the world places them.
std::vector<int> node_of(const sim::WorldPlan& world);

}  // namespace seeksim::harness
