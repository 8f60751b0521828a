// World: N simulated ranks as fibers on one thread, one seed, a virtual clock, links, devices, a control plane. It
// implements the five seams; what runs on a rank cannot tell it from a real machine except by being reproducible.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/host/device_memory.h"
#include "runtime/host/stepped_queue.h"
#include "runtime/seams/rank.h"
#include "sim/alike.h"
#include "sim/meters.h"
#include "sim/schedule.h"
#include "sim/value_log.h"

namespace seeksim::sim {

using runtime::TimeNs;
class CollectiveTimes;
class Steering;
class Timeline;

// The links of a world, by preset: nvlink, pcie, ib, tcp (between nodes; inside a node nvlink, or pcie when the preset
// is pcie or tcp). Which ranks learn of a failure, and when, is in the profile (sim/README.md has the table).
struct LinkModel {
  TimeNs latency_ns = 2'000;
  double bytes_per_ns = 50;        // bandwidth
  TimeNs retransmit_hides_ns = 0;  // shorter cuts are invisible above the transport
  TimeNs notice_crash_ns = -1;     // neighbours of a dead process get remote_error after this; -1: never
  TimeNs notice_cut_ns = -1;       // users of a cut link get remote_error after this; -1: never
};
// Throws std::invalid_argument naming the known presets.
LinkModel link_preset(const std::string& name);

struct DeviceModel {
  double flops_per_ns = 50'000;  // 50 TFLOP/s
  double bytes_per_ns = 1'500;
  TimeNs launch_ns = 4'000;  // host-visible overhead of one launch, part of its duration
  std::size_t capacity_bytes = std::size_t(80) << 30;
  // The host beside it, a rank's share of its node.
  std::size_t host_capacity_bytes = std::size_t(256) << 30;
  std::size_t pinned_capacity_bytes = std::size_t(128) << 30;  // at most so much of it can be locked
  double copy_bytes_per_ns = 25;                               // between host and device, one direction
  double host_flops_per_ns = 500;
  double host_bytes_per_ns = 50;
};

struct Disks;

// A node's local disk, as one of its ranks sees it.
struct StorageModel {
  TimeNs latency_ns = 80'000;  // of one request
  double read_bytes_per_ns = 3;
  double write_bytes_per_ns = 1.5;
  std::uint64_t capacity_bytes = std::uint64_t(1) << 40;  // of the node
  std::string shared_path;  // what lies there is on one disk for all nodes, as large and as fast; empty: nothing is
  bool tears = false;       // what is not synced when power fails lasts in parts; else none of it does
};

// Worlds in which ranks that are alike stay alike.
struct AlikePlan {
  bool steady = false;         // nothing is drawn: no noise, and messages of the control plane take their mean time
  bool native_gathers = true;  // in a steady world of shapes, gathers are one event too
  // In a steady world of shapes: which rank stands for which. Null: every rank is simulated.
  std::shared_ptr<const RankClasses> classes;
};

struct Heartbeats {
  TimeNs every_ns = 0;    // between two of a process; 0: none are sent
  TimeNs timeout_ns = 0;  // a rank that is silent for so long is declared dead
};

struct WorldPlan : AlikePlan {
  int nodes = 1;
  int ranks_per_node = 1;
  std::string network = "ib";
  std::shared_ptr<const CollectiveTimes> collective_times;  // in place of what the links say (links.h)
  DeviceModel device;
  StorageModel storage;
  std::uint64_t seed = 1;
  Schedule schedule;             // which fiber or queue runs next among those that can
  Steering* steering = nullptr;  // decides instead, where the schedule is `untimed`; null: the schedule does
  int spares = 0;                // the last ranks, which are no members at first
  bool shapes = false;           // no values: launches take their time and do nothing, large memory is counted
  // Where ranks compute and keep their tensors, one after the other; null: the host.
  runtime::DeviceMemory* device_memory = nullptr;
  kernels::Arithmetic* arithmetic = nullptr;    // of products and sums over ranks; null: by the contract
  runtime::LaunchListener* listener = nullptr;  // hears what each launch is
  bool verify = false;                          // recorders keep the whole fingerprint log
  bool native_collectives = true;               // sum as one event where nothing can touch a single message
  bool timeline = false;                        // keep what queues and hosts did, for a picture (timeline.h)
  ValueLogPlan values;                          // digests of what each operation read and wrote (value_log.h)
  bool race_detector = false;                   // watch every declared access to device memory (race_detector.h)
  Heartbeats heartbeats;
  bool strict_collectives = true;       // who brings what does not fit is told; false: it hangs, as on NCCL
  bool stale_messages_taken = false;    // a planted bug: a message that arrives twice is taken for the next one
  double noise = 0.02;                  // relative spread of durations, drawn from the seed
  double wall_limit_s = 0;              // 0: none; past it the run ends as out_of_wall_time
  std::size_t stack_bytes = 256 << 10;  // of a host fiber; only what is touched is resident
  int ranks() const { return nodes * ranks_per_node; }
  int members() const { return ranks() - spares; }  // of epoch 0
  std::size_t simulated() const { return classes ? classes->simulated.size() : std::size_t(ranks()); }
};

enum class WorldEnd : std::uint8_t { finished, deadlock, out_of_wall_time, failed };

struct RankEnd {
  enum class How : std::uint8_t { returned, died, threw } how = How::returned;
  std::string what;  // of the exception, when threw
};

struct CommUse {  // by OpKind, over all ranks
  std::uint64_t calls = 0;
  std::uint64_t bytes_sent_per_rank_max = 0;
};

// What came of the declared accesses, where the plan asks for the race detector.
struct WatchedAccesses {
  std::vector<Race> races;               // by rank
  std::uint64_t accesses = 0;            // how many were checked for races
  std::vector<UnwrittenRead> unwritten;  // by rank
  std::uint64_t reads = 0;               // how many were held against what was written
};

struct WorldResult : WatchedAccesses {
  WorldEnd end = WorldEnd::finished;
  TimeNs virtual_ns = 0;
  TimeNs trained_ns = -1;         // until when ranks trained whose training came to its end; -1: there are none
  std::uint64_t fingerprint = 0;  // over all ranks' recorders and the schedule
  std::string wait_for_graph;     // at a deadlock, or when the first watchdog fired: one line an edge
  std::vector<RankEnd> ranks;
  std::vector<CommUse> comm;                    // indexed by OpKind
  std::vector<std::size_t> memory_peak_by_tag;  // max over ranks, indexed by MemoryTag
  std::size_t memory_peak = 0;
  std::vector<std::size_t> memory_at_peak;    // by tag, on the rank that needed most, when it did
  std::vector<std::size_t> host_peak_by_tag;  // pageable and pinned together
  std::size_t host_peak = 0;
  std::size_t pinned_peak = 0;
  CommOverlap overlap;                     // over all ranks
  CommOverlap copies;                      // the same of copies between host and device, under either's kernels
  FileUse files;                           // over all ranks
  std::vector<StepPasses> passes;          // of the first steps, over all ranks
  std::uint64_t collectives_compared = 0;  // what a member brought was held against what another one had brought
  std::vector<std::string> mismatches;     // ... and was something else: the first few
  std::uint64_t switches = 0;              // fiber switches, for benches
  std::uint64_t decisions = 0;             // of the schedule, so far, unless it is `seeded`
  std::vector<Deviation> choices;          //   what was decided, as deviations from `first`
  std::vector<std::uint64_t> courses;      // by rank, of a steady world: what it did when, its peaks and its traffic
  std::string told_apart;  // of a world of classes: why ranks of one class are not alike any more; it ended there
};

// Between these times these ranks and the control plane do not hear of each other.
struct ControlOutage {
  std::vector<int> ranks;
  TimeNs from = 0;
  TimeNs until = runtime::kForever;
  bool all = false;  // the control plane itself is down, and its own clocks with it
  // Not empty: the control plane is split as the world is. The side with a quorum of the newest epoch's members goes on
  // to be answered: more than half of them, or half and the lowest. The other one is not.
  std::vector<int> others;
};

class World {
 public:
  // disks: with which it begins, and that it leaves behind; null: empty ones. start_ns: where its time begins.
  explicit World(const WorldPlan& plan, std::shared_ptr<Disks> disks = nullptr, TimeNs start_ns = 0);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Wraps the seams of a rank before it starts (fault decorators). Default: none.
  void decorate(std::function<runtime::Seams(int rank, runtime::Seams inner)> wrap);
  // Kills a rank at a virtual time; calls back when it did.
  void kill_at(int rank, TimeNs when, std::function<void()> done);
  // Starts the process of a rank again, as a new incarnation on an empty device, at `when` or as soon after that as the
  // rank has died; it comes in by ControlPlane::join(). A rank that ended in order, and a world that is over by then,
  // stay as they are.
  void revive_at(int rank, TimeNs when);
  // The same for the control plane; calls back when it begins, if anybody still lives then.
  void control_outage(const ControlOutage& outage, std::function<void()> begun);
  // What the own disk of a rank's machine holds is gone, durable or not: now, or as soon as the loop gets to it.
  void lose_files(int rank);
  // A message for the story ("12.000 s  rank 5 ..."): called in virtual-time order.
  void on_event(std::function<void(TimeNs, int rank, const std::string& text)> listener);
  // The rank has made its last step: what it does in `step` or a later one from here on, until it goes on training, is
  // neither drawn nor a part of trained_ns.
  void training_is_over(int rank, std::int64_t step);
  void training_goes_on(int rank);
  // Called now and then with the virtual time, for a progress bar; never influences the run.
  void on_progress(std::function<void(TimeNs)> tick);

  // Runs `body` on every rank until all have ended. Call once.
  WorldResult run(const std::function<void(runtime::Rank&)>& body);

  TimeNs now() const;
  bool simulated(int rank) const;                     // false: another rank stands for it
  const runtime::Recorder& recorder(int rank) const;  // of whoever stands for it
  const ValueLog* values(int rank) const;             // of its last incarnation; null unless the plan asks for one
  Timeline* timeline();                               // null unless the plan asks for one
  int node_of(int rank) const;
  bool alive(int rank) const;  // its process is there, though it may hang

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace seeksim::sim
