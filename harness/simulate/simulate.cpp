#include "harness/simulate/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "harness/input/files.h"
#include "harness/input/problem.h"
#include "harness/loading/estimate.h"
#include "harness/loading/extensions.h"
#include "harness/loading/features/fast.h"
#include "harness/scenario/variants.h"
#include "harness/simulate/arithmetic.h"
#include "harness/simulate/device.h"
#include "harness/simulate/stand_ins.h"
#include "harness/simulate/value_watch.h"
#include "kernels/digest.h"
#include "runtime/backend/machine/interrupts.h"
#include "runtime/backend/machine/posix_storage.h"
#include "runtime/checkpoint/checkpoint_files.h"
#include "runtime/recovery/train.h"
#include "runtime/rules/bugs.h"
#include "sim/device.h"
#include "sim/loop.h"
#include "sim/timeline.h"

namespace seeksim::harness {

using runtime::Ending;

struct Simulation::Impl {
  Impl(const Scenario& s, SimulationOptions o, AlikeRanks a)
      : scenario(s),
        alike(std::move(a)),
        options(std::move(o)),
        disks(options.disks ? options.disks : std::make_shared<sim::Disks>()),
        device(is_of_shapes(s) ? nullptr : make_device(options.device)),
        arithmetic(s, options.audit),
        faults(s.faults, s.world.seed, node_of(s.world)),
        own_faults(s),
        collector(s, alike.classes, options.gradients_of, options.digest_gradients, options.on_gradients) {
    collector.hand_states_to(options.on_state);
    collector.look_at(options.looks_at);
    if (options.step_log != nullptr) {
      options.step_log->begin([this](int rank) { return memory_of(rank); });
      collector.log_steps(*options.step_log);
    }
    if (!options.storage_folder.empty()) files.emplace(options.storage_folder);
  }

  sim::WorldPlan plan_of() {
    sim::WorldPlan plan = scenario.world;
    plan.wall_limit_s = options.wall_limit_s;
    plan.shapes = is_of_shapes(scenario);
    plan.native_gathers = gathers_whole(scenario);
    plan.classes = alike.classes;
    plan.timeline = options.timeline;
    plan.values = options.values;
    plan.race_detector = plan.race_detector && options.sink == nullptr;
    plan.steering = options.steering;
    plan.arithmetic = arithmetic.get();
    plan.listener = arithmetic.listener();
    const runtime::CheckpointPlan& checkpoint = scenario.train.checkpoint;
    if (checkpoint.on() && !checkpoint.node_local) plan.storage.shared_path = checkpoint.path;
    plan.heartbeats = {scenario.train.recovery.heartbeat_ns, scenario.train.recovery.heartbeat_timeout_ns};
    plan.spares = scenario.train.recovery.spares;
    plan.stale_messages_taken = scenario.train.bug.is(runtime::Bug::stale_messages_taken);
    return plan;
  }

  StepLog::Memory memory_of(int rank) const {
    const runtime::MemoryUse use = devices.at(std::size_t(rank))->use_total(runtime::Space::device);
    return {use.now, use.peak};
  }

  RunRecord run();
  void start_job(TimeNs now);
  bool starts_again(const sim::WorldResult& result);
  bool is_on_all_nodes(const runtime::Manifest& manifest, const std::string& folder);
  void look_at_checkpoints();
  void connect();
  void train_rank(runtime::Rank& rank);
  void take(const sim::WorldResult& result);
  void add_use(const sim::WorldResult& result);
  void take_dumps(const sim::WorldResult& result);

  const Scenario& scenario;
  AlikeRanks alike;
  std::string told_apart;  // of a world of classes that came to nothing
  SimulationOptions options;
  std::shared_ptr<sim::Disks> disks;
  std::unique_ptr<runtime::DeviceMemory> device;  // outlives every world
  RunArithmetic arithmetic;                       // likewise
  TimeNs began_ns = 0;
  std::vector<std::unique_ptr<ValueWatch>> watches;  // outlive every world, too
  std::unique_ptr<sim::World> world;                 // of the attempt that runs, or ran last
  std::optional<runtime::TrainPlan> again;           // the plan of all attempts but the first
  faults::FaultPlan faults;
  OwnFaults own_faults;  // over those
  StandInCollector collector;
  std::vector<const runtime::Device*> devices;  // by rank: of the newest world and incarnation
  std::optional<runtime::PosixStorage> files;
  static constexpr int kFiringsTold = 5;
  std::vector<int> told;  // firings in the story, by rule
};

namespace {
AlikeRanks who_is_alike(const SimulationOptions& options, const Scenario& scenario) {
  if (options.rank_by_rank) return {nullptr, "--rank-by-rank"};
  return options.alike ? options.alike(scenario) : alike_ranks(scenario);
}

// Ranks turned out not to be alike: is there room for all of them?
void refuse_rank_by_rank(const Scenario& scenario, const std::string& why) {
  const double need = estimate_rank_by_rank(scenario).bytes, free = double(host_memory_free());
  if (free == 0 || need <= 0.9 * free) return;
  throw BadInput("/world",
                 fmt::format("{} ranks cannot stand for each other ({}), and to simulate each of them takes about {}, "
                             "of which {} are free",
                             scenario.world.ranks(), why, bytes_text(need), bytes_text(free)),
                 "Use fewer world.nodes, or leave out what tells the ranks apart.");
}
}  // namespace

Simulation::Simulation(const Scenario& scenario, SimulationOptions options) {
  if (options.rank_by_rank && is_of_shapes(scenario)) refuse_rank_by_rank(scenario, "--rank-by-rank");
  AlikeRanks alike = who_is_alike(options, scenario);
  impl_ = std::make_unique<Impl>(scenario, std::move(options), std::move(alike));
}
Simulation::~Simulation() = default;

const runtime::Recorder& Simulation::recorder(int rank) const { return impl_->world->recorder(rank); }

const sim::ValueLog* Simulation::values(int rank) const { return impl_->world->values(rank); }

const sim::Timeline* Simulation::timeline() const { return impl_->world->timeline(); }

// The processes of all ranks, on the disks as they are now.
void Simulation::Impl::start_job(TimeNs now) {
  const std::size_t attempt = collector.record().training.attempts.size();
  began_ns = now;
  collector.begin_attempt(now);
  sim::WorldPlan plan = plan_of();
  plan.device_memory = device.get();
  plan.seed += 1'000'003 * attempt;  // other noise
  plan.schedule.first_decision = collector.record().schedule.decisions;
  std::optional<sim::Timeline> drawn;  // so far; what the old world still draws as it goes is no part of it
  if (world && world->timeline() != nullptr)
    drawn = std::exchange(*world->timeline(), sim::Timeline(scenario.world.ranks()));
  world = std::make_unique<sim::World>(plan, disks, now);
  if (drawn) world->timeline()->go_on(std::move(*drawn), now);
  if (attempt > 0) {
    if (!again) again = scenario.train;
    again->checkpoint.resume = true;
    collector.record().events.push_back({now, -1, fmt::format("the job restarts (restart {})", attempt)});
  }
  connect();
}

// What a supervisor sees: no process is left, and not one of them came to the end.
bool Simulation::Impl::starts_again(const sim::WorldResult& result) {
  const RunRecord& record = collector.record();
  if (int(record.training.attempts.size()) > scenario.train.recovery.restarts_max) return false;
  if (result.end != sim::WorldEnd::finished) return false;
  for (const RankRecord& rank : record.ranks) {
    using How = RankRecord::How;
    if (rank.how == How::finished || rank.how == How::threw || rank.how == How::running) return false;
  }
  return true;
}

// Where each node has files of its own, a checkpoint is complete once each node of its ranks has a manifest. A node
// whose last rank died before that leaves others with one.
bool Simulation::Impl::is_on_all_nodes(const runtime::Manifest& manifest, const std::string& folder) {
  if (!scenario.train.checkpoint.node_local) return true;
  const std::vector<int> nodes = node_of(scenario.world);
  return std::all_of(manifest.ranks.begin(), manifest.ranks.end(), [&](int rank) {
    return std::size_t(rank) >= nodes.size() ||
           disks->by_node[nodes[std::size_t(rank)]].names.contains(folder + '/' + runtime::kManifest);
  });
}

void Simulation::Impl::look_at_checkpoints() {
  const std::string& path = scenario.train.checkpoint.path;
  if (!scenario.train.checkpoint.on() || is_of_shapes(scenario)) return;
  const sim::WorldPlan plan = plan_of();
  sim::Disks seen;  // as if all nodes' files lay together
  seen.shared = disks->shared;
  for (auto& [node, disk] : disks->by_node) seen.by_node[0].names.insert(disk.names.begin(), disk.names.end());
  sim::SimStorage simulated(seen, plan.storage, 0, 0);
  runtime::Storage& storage = files ? static_cast<runtime::Storage&>(*files) : simulated;
  for (const std::int64_t step : runtime::checkpoints_in(storage, path)) {
    const std::string folder = runtime::step_folder(path, step);
    const runtime::Verified verified = runtime::verify_checkpoint(storage, folder);
    if (!files && !is_on_all_nodes(verified.manifest, folder)) continue;
    collector.record().training.found_checkpoints.push_back({step, verified.problem});
  }
}

void Simulation::Impl::connect() {
  std::vector<Event>& events = collector.record().events;
  if (options.watch) faults.watch(options.watch);
  devices.resize(std::size_t(scenario.world.ranks()));
  world->decorate([this](int rank, runtime::Seams inner) {
    devices[std::size_t(rank)] = &inner.device;
    if (options.sink != nullptr) {
      watches.push_back(std::make_unique<ValueWatch>(*options.sink, rank, inner.clock));
      dynamic_cast<sim::SimDevice&>(inner.device).watch(watches.back().get());
    }
    runtime::Storage& storage = files ? static_cast<runtime::Storage&>(*files) : inner.storage;
    return own_faults.decorate(
        rank, faults.decorate(rank, {inner.clock, inner.device, inner.transport, storage, inner.control}));
  });
  sim::Timeline* const timeline = world->timeline();
  world->on_event([&events, timeline](TimeNs at, int rank, const std::string& text) {
    events.push_back({at, rank, text});
    if (timeline != nullptr) timeline->mark(at, rank, "world", text);
  });
  told.resize(scenario.faults.size());
  const std::vector<faults::RuleStatus> so_far = faults.status();
  faults.on_fired([this, &events, timeline](std::size_t rule, TimeNs at, int rank, const runtime::Op* op) {
    std::vector<FaultDecision>& decisions = collector.record().fault_decisions;
    if (decisions.size() < FaultDecision::kKept) {
      decisions.push_back({rule, at, rank, op != nullptr ? describe(*op) : "",
                           op != nullptr ? op->kind : runtime::OpKind::count_,
                           op != nullptr ? op->phase : runtime::Phase::count_});
    }
    if (const TimeNs after = scenario.faults[rule].returns_ns; after > 0) world->revive_at(rank, at + after);
    // A rule without limit fires again and again; the first times say enough, the report has the count.
    const bool told_enough = told[rule]++ >= kFiringsTold;
    if (told_enough && timeline == nullptr) return;
    const std::string_view kind = name(scenario.faults[rule].kind);
    const std::string text = fmt::format("faults.{} fires: {}{}", rule, kind, op ? " in " + describe(*op) : "");
    if (!told_enough) events.push_back({at, rank, text});
    if (timeline != nullptr) timeline->mark(at, rank, "fault", text);
  });
  for (const faults::FaultPlan::TimedCrash& crash : faults.timed_crashes()) {
    if (crash.at_ns < began_ns || so_far[crash.rule].fired > 0) continue;  // of an earlier attempt
    world->kill_at(crash.rank, crash.at_ns, [this, crash] {
      faults.fired(crash.rule, crash.at_ns, crash.rank);
      if (crash.lose_files) world->lose_files(crash.rank);
    });
  }
  collector.hear_of_the_end([this](int rank, std::int64_t steps) {
    steps < 0 ? world->training_goes_on(rank) : world->training_is_over(rank, steps);
  });
  collector.reach_recorders([this](int rank) { return world->alive(rank) ? &world->recorder(rank) : nullptr; },
                            options.flight_recorder ? runtime::Recorder::kRingMax : Collector::kRecordsOfAFailure);
  for (const faults::FaultPlan::ControlOutage& out : faults.control_outages()) {
    if (out.until_ns <= began_ns) continue;
    const int rank = out.ranks.empty() ? -1 : out.ranks.front();
    world->control_outage({out.ranks, out.from_ns, out.until_ns, out.all, out.others},
                          [this, out, rank] { faults.fired(out.rule, out.from_ns, rank); });
  }
  faults.kills_through([this](int rank, bool lose_files) {
    world->kill_at(rank, world->now(), {});
    if (lose_files) world->lose_files(rank);
  });
  sim::stop_worlds_when([] { return runtime::interrupted() != 0; });
  if (options.progress) world->on_progress([this](TimeNs now) { options.progress(now, collector.steps()); });
}

void Simulation::Impl::train_rank(runtime::Rank& rank) {
  RunRecord& record = collector.record();
  auto* weights = options.keep_final_weights ? &record.training.final_weights : nullptr;
  runtime::TrainOutcome outcome = runtime::train(rank, again ? *again : scenario.train, collector, weights);
  RankRecord& mine = record.ranks[std::size_t(rank.id)];
  mine.how = outcome.ending == Ending::finished  ? RankRecord::How::finished
             : outcome.ending == Ending::evicted ? RankRecord::How::evicted
             : outcome.ending == Ending::spare   ? RankRecord::How::spare
                                                 : RankRecord::How::stopped;
  mine.why = std::move(outcome.why);
  mine.steps_committed = outcome.steps_committed;
  mine.state = std::move(outcome.state);
}

void Simulation::Impl::take(const sim::WorldResult& result) {
  RunRecord& record = collector.record();
  record.end = result.end;
  if (scenario.world.steady && is_of_shapes(scenario))
    record.alike = {alike.classes ? alike.classes->count : 0, plan_of().simulated(), alike.why_not, result.courses};
  collector.spread_endings();
  record.has_values = !is_of_shapes(scenario);
  const bool trained = result.end == sim::WorldEnd::finished && result.trained_ns >= 0;
  record.virtual_ns = trained ? result.trained_ns : result.virtual_ns;
  record.ended_ns = result.virtual_ns;
  record.fingerprint = record.training.attempts.size() > 1 ? kernels::combine(record.fingerprint, result.fingerprint)
                                                           : result.fingerprint;
  record.wait_for_graph = result.wait_for_graph;
  record.schedule.decisions = result.decisions;
  record.schedule.choices.insert(record.schedule.choices.end(), result.choices.begin(), result.choices.end());
  record.races.watched = scenario.world.race_detector;
  add_use(result);
  record.faults = faults.status();
  record.own_faults.clear();
  for (std::size_t i = 0; i < scenario.own_faults.size(); ++i)
    record.own_faults.push_back({scenario.own_faults[i].name, own_faults.fired()[i]});
  record.training.history = collector.history();
  for (std::size_t i = 0; i < result.ranks.size() && i < record.ranks.size(); ++i) {
    using How = sim::RankEnd::How;
    RankRecord& rank = record.ranks[i];
    if (result.ranks[i].how == How::died) rank.how = RankRecord::How::died;
    if (result.ranks[i].how == How::threw) rank.how = RankRecord::How::threw;
    if (!result.ranks[i].what.empty()) rank.why = result.ranks[i].what;
  }
  record.numbers.audit = arithmetic.audited();
  take_dumps(result);
}

// Where the ranks came to no agreement by themselves: everybody's flight recorder as it is at the end.
void Simulation::Impl::take_dumps(const sim::WorldResult& result) {
  RunRecord& record = collector.record();
  const bool finished = result.end == sim::WorldEnd::finished;
  if (finished && !record.detection.recoveries.empty()) return;
  if (finished && !options.flight_recorder) return;
  std::uint32_t epoch = 0;
  for (std::size_t i = 0; i < result.ranks.size(); ++i) {
    for (const runtime::CommHeader& comm : world->recorder(int(i)).communicators()) epoch = std::max(epoch, comm.epoch);
  }
  record.detection.dumps.clear();
  for (std::size_t i = 0; i < result.ranks.size(); ++i) {
    if (!world->simulated(int(i))) continue;
    // A rank that was alive when all were ended says so in `what`.
    const bool gone = result.ranks[i].how == sim::RankEnd::How::died && result.ranks[i].what.empty();
    record.detection.dumps.push_back(dump_of(int(i), epoch, world->recorder(int(i)), runtime::Recorder::kRingMax));
    if (gone) record.detection.dumps.back().records.clear();
    record.detection.dumps.back().gone = gone;
  }
  record.detection.at_the_end = runtime::analyse(record.detection.dumps);
}

namespace {
template <class T>
void take_largest(std::vector<T>& all, const std::vector<T>& more) {
  all.resize(std::max(all.size(), more.size()));
  for (std::size_t i = 0; i < more.size(); ++i) all[i] = std::max(all[i], more[i]);
}
}  // namespace

// Over all attempts: sums of what was done, the most of what was in use.
void Simulation::Impl::add_use(const sim::WorldResult& result) {
  RunRecord& record = collector.record();
  record.traffic.comm.resize(result.comm.size());
  for (std::size_t kind = 0; kind < result.comm.size(); ++kind) {
    sim::CommUse& use = record.traffic.comm[kind];
    use.calls += result.comm[kind].calls;
    use.bytes_sent_per_rank_max = std::max(use.bytes_sent_per_rank_max, result.comm[kind].bytes_sent_per_rank_max);
  }
  if (result.memory_peak >= record.memory.peak) record.memory.at_peak = result.memory_at_peak;
  record.memory.peak = std::max(record.memory.peak, result.memory_peak);
  record.memory.host_peak = std::max(record.memory.host_peak, result.host_peak);
  record.memory.pinned_peak = std::max(record.memory.pinned_peak, result.pinned_peak);
  take_largest(record.memory.peak_by_tag, result.memory_peak_by_tag);
  take_largest(record.memory.host_peak_by_tag, result.host_peak_by_tag);
  record.traffic.overlap += result.overlap;
  record.traffic.copies += result.copies;
  record.traffic.files += result.files;
  if (record.traffic.passes.empty()) record.traffic.passes = result.passes;
  record.races.found.insert(record.races.found.end(), result.races.begin(), result.races.end());
  record.races.accesses += result.accesses;
  record.numbers.unwritten.insert(record.numbers.unwritten.end(), result.unwritten.begin(), result.unwritten.end());
  record.numbers.reads += result.reads;
  record.agreement.collectives_compared += result.collectives_compared;
  record.agreement.mismatches.insert(record.agreement.mismatches.end(), result.mismatches.begin(),
                                     result.mismatches.end());
}

// A world of classes that came to nothing is made again with all of its ranks.
RunRecord Simulation::run() {
  RunRecord record = impl_->run();
  const std::string why = impl_->told_apart;
  if (why.empty()) return record;
  refuse_rank_by_rank(impl_->scenario, why);
  impl_ = std::make_unique<Impl>(impl_->scenario, impl_->options, AlikeRanks{nullptr, why});
  return impl_->run();
}

RunRecord Simulation::Impl::run() {
  const auto start = std::chrono::steady_clock::now();
  TimeNs now = 0;
  for (;;) {
    start_job(now);
    const sim::WorldResult result = world->run([this](runtime::Rank& rank) { train_rank(rank); });
    told_apart = result.told_apart;
    if (!told_apart.empty()) return {};
    take(result);
    Attempt& attempt = collector.record().training.attempts.back();
    attempt.ended_ns = collector.record().virtual_ns;
    if (!starts_again(result)) break;
    for (const RankRecord& rank : collector.record().ranks) {
      if (attempt.why.empty() || rank.how == RankRecord::How::stopped)
        attempt.why = rank.why.empty() ? name(rank.how) : rank.why;
    }
    now = runtime::later(result.virtual_ns, scenario.train.recovery.restart_ns);
  }
  look_at_checkpoints();
  RunRecord record = std::move(collector.record());
  record.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return record;
}

}  // namespace seeksim::harness
