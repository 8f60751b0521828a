// A campaign as plain values: a job of thousands of nodes over thousands of hours, what fails in it and how often, what
// is saved where, and what is done after a failure. study_file.h reads it from JSON. Durations are distributions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/campaign/distribution.h"
#include "harness/campaign/incident.h"
#include "harness/scenario/sweep.h"

namespace seeksim::harness::campaign {

// What fails at once. job: one node of the job, whichever; its rate is that of the whole job.
enum class Unit : std::uint8_t { gpu, node, rack, switch_, power, job, count_ };
const char* name(Unit unit);

// How times between two failures of one unit are distributed. A repaired unit is as good as new.
enum class Process : std::uint8_t { poisson, weibull, log_normal, bathtub, count_ };
const char* name(Process process);

// In which unit a rate is given.
enum class Rate : std::uint8_t { mtbf_hours, per_unit_day, per_gpu_hour, per_node_day };

struct Arrivals {
  Process process = Process::poisson;
  Rate rate_of = Rate::mtbf_hours;
  double rate = 0;   // in that unit
  double shape = 1;  // of weibull
  double sigma = 1;  // of log_normal: of the logarithm
  // bathtub: the hazards of three causes added. Each is a Weibull process of its own: infant failures fade, chance does
  // not, wear grows. The means are of one unit.
  double infant_mtbf_hours = 0, infant_shape = 0.5, wear_mtbf_hours = 0, wear_shape = 4;
  friend bool operator==(const Arrivals&, const Arrivals&) = default;
};

// A straggler: the job goes on, slower.
struct Slow {
  double factor = 1;   // times the step; 1: this cause stops the job instead
  Distribution hours;  // until it is over, or noticed
  bool evict = false;  // then the node is replaced, in order
  friend bool operator==(const Slow&, const Slow&) = default;
};

struct Cause {
  std::string name;
  Unit unit = Unit::node;
  Arrivals arrivals;
  std::optional<Distribution> detect_s;      // else as recovery says
  std::optional<Distribution> repair_hours;  // none: the nodes are fine, and go on after a restart
  bool announced = false;                    // a planned stop: the job saves first, and nothing is redone
  Slow slow;
  friend bool operator==(const Cause&, const Cause&) = default;
};

// Nodes are numbered from 0, spares after the job's. A rack holds nodes that follow each other. 0: there are none.
struct Cluster {
  std::int64_t nodes = 1;
  std::int64_t gpus_per_node = 8;
  std::int64_t nodes_per_replica = 1;  // a job that shrinks gives up whole replicas
  std::int64_t nodes_per_rack = 0, nodes_per_switch = 0, nodes_per_power_domain = 0;
  friend bool operator==(const Cluster&, const Cluster&) = default;
};

// Hot spares run: they fail as other nodes do, and step in fast. Cold ones are off until they are needed.
struct Spares {
  std::int64_t hot = 0, cold = 0;
  double swap_hot_s = 30, swap_cold_s = 600;
  friend bool operator==(const Spares&, const Spares&) = default;
};

enum class SavedTo : std::uint8_t { memory, neighbours, storage, count_ };
const char* name(SavedTo to);

// Checkpoints of one kind. memory: on the node itself, lost with any node of the job. neighbours: also on `copies`
// other nodes, lost when a node and all its keepers are. storage: lasts.
struct Tier {
  SavedTo to = SavedTo::storage;
  double every_s = 0;             // of steps, rounded to whole ones, at least one
  std::int64_t every_steps = 0;   // instead
  double blocks_s = 0;            // training waits
  std::optional<double> write_s;  // from its begin until it can be used, if that is later; none: as it blocks
  double read_s = 0;
  std::int64_t copies = 1;
  std::int64_t stride = 0;  // nodes between copies; 0: the next rack, or the next node where there are no racks
  friend bool operator==(const Tier&, const Tier&) = default;
};

enum class Policy : std::uint8_t { restart, rebuild, count_ };
const char* name(Policy policy);
enum class WhenShort : std::uint8_t { wait, shrink, count_ };
const char* name(WhenShort when);

// restart: the job ends, and begins again from its newest usable checkpoint. rebuild: the survivors go on with the
// step that failed, from copies of each shard on `copies` other nodes; without them they restart.
struct Recovery {
  Policy policy = Policy::restart;
  WhenShort when_short = WhenShort::wait;
  std::int64_t nodes_min = 1;            // shrink: with fewer it waits
  std::int64_t copies = 1;               // rebuild
  std::optional<Distribution> detect_s;  // none: 0
  std::optional<Distribution> agree_s;   // from the notice until all know, and the job has ended; none: 0
  std::optional<Distribution> rebuild_s;
  Distribution restart_s = Distribution::of(60);
  friend bool operator==(const Recovery&, const Recovery&) = default;
};

// A figure that somebody published. What is predicted has to lie within it.
struct Published {
  std::string what;  // a metric (metrics.h)
  double least = 0, most = 0;
  std::string source;
  friend bool operator==(const Published&, const Published&) = default;
};

struct Study {
  std::string file;
  std::string name;
  std::string why;
  std::vector<std::string> sources;  // of the inputs
  std::uint64_t seed = 1;
  std::int64_t seeds = 10;  // campaigns a policy
  double hours = 1000;
  double step_s = 0;   // of a step on all nodes
  double start_s = 0;  // from the job's processes to its first step
  Cluster cluster;
  Spares spares;
  std::vector<Cause> causes;
  std::vector<Incident> incidents;  // of the user's log
  std::string incidents_file;
  std::vector<Tier> tiers;
  Recovery recovery;
  bool best_interval = false;  // look for the best time between checkpoints of the last tier
  std::vector<Published> published;
  double young_daly = 0;  // how far the loss may be from the formula's, in percent of it; 0: it is not compared
  Sweep sweep;
};

}  // namespace seeksim::harness::campaign
