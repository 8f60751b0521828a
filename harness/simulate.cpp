#include "harness/simulate.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>

#include "harness/shapes.h"
#include "runtime/backend/posix_storage.h"
#include "runtime/train.h"
#include "sim/timeline.h"

namespace seeksim::harness {

using runtime::Ending;

struct Simulation::Impl {
  Impl(const Scenario& s, SimulationOptions o)
      : scenario(s),
        options(std::move(o)),
        world(plan_of(s, options)),
        faults(s.faults, s.world.seed, node_of(s.world)),
        collector(s.world.ranks(), options.gradients_of, options.digest_gradients, options.on_gradients) {
    if (!options.storage_folder.empty()) files.emplace(options.storage_folder);
  }

  static sim::WorldPlan plan_of(const Scenario& scenario, const SimulationOptions& options) {
    sim::WorldPlan plan = scenario.world;
    plan.wall_limit_s = options.wall_limit_s;
    plan.shapes = is_of_shapes(scenario);
    plan.timeline = options.timeline;
    return plan;
  }

  void connect();
  void train_rank(runtime::Rank& rank);
  void take(const sim::WorldResult& result);

  const Scenario& scenario;
  SimulationOptions options;
  sim::World world;
  faults::FaultPlan faults;
  Collector collector;
  std::optional<runtime::PosixStorage> files;
  static constexpr int kFiringsTold = 5;
  std::vector<int> told;  // firings in the story, by rule
};

Simulation::Simulation(const Scenario& scenario, SimulationOptions options)
    : impl_(std::make_unique<Impl>(scenario, std::move(options))) {}
Simulation::~Simulation() = default;

const runtime::Recorder& Simulation::recorder(int rank) const { return impl_->world.recorder(rank); }

const sim::Timeline* Simulation::timeline() const { return impl_->world.timeline(); }

void Simulation::Impl::connect() {
  std::vector<Event>& events = collector.record().events;
  world.decorate([this](int rank, runtime::Seams inner) {
    runtime::Storage& storage = files ? static_cast<runtime::Storage&>(*files) : inner.storage;
    return faults.decorate(rank, {inner.clock, inner.device, inner.transport, storage, inner.control});
  });
  sim::Timeline* const timeline = world.timeline();
  world.on_event([&events, timeline](TimeNs at, int rank, const std::string& text) {
    events.push_back({at, rank, text});
    if (timeline != nullptr) timeline->mark(at, rank, "world", text);
  });
  told.resize(scenario.faults.size());
  faults.on_fired([this, &events, timeline](std::size_t rule, TimeNs at, int rank, const runtime::Op* op) {
    // A rule without limit fires again and again; the first times say enough, the report has the count.
    const bool told_enough = told[rule]++ >= kFiringsTold;
    if (told_enough && timeline == nullptr) return;
    const std::string_view kind = name(scenario.faults[rule].kind);
    const std::string text = fmt::format("faults.{} fires: {}{}", rule, kind, op ? " in " + describe(*op) : "");
    if (!told_enough) events.push_back({at, rank, text});
    if (timeline != nullptr) timeline->mark(at, rank, "fault", text);
  });
  for (const faults::FaultPlan::TimedCrash& crash : faults.timed_crashes()) {
    world.kill_at(crash.rank, crash.at_ns, [this, crash] { faults.fired(crash.rule, crash.at_ns, crash.rank); });
  }
  if (options.progress) world.on_progress([this](TimeNs now) { options.progress(now, collector.steps()); });
}

void Simulation::Impl::train_rank(runtime::Rank& rank) {
  RunRecord& record = collector.record();
  auto* weights = options.keep_final_weights ? &record.final_weights : nullptr;
  runtime::TrainOutcome outcome = runtime::train(rank, scenario.train, collector, weights);
  RankRecord& mine = record.ranks[std::size_t(rank.id)];
  mine.how = outcome.ending == Ending::finished  ? RankRecord::How::finished
             : outcome.ending == Ending::evicted ? RankRecord::How::evicted
                                                 : RankRecord::How::stopped;
  mine.why = std::move(outcome.why);
  mine.steps_committed = outcome.steps_committed;
  mine.state = std::move(outcome.state);
}

void Simulation::Impl::take(const sim::WorldResult& result) {
  RunRecord& record = collector.record();
  record.end = result.end;
  record.has_values = !is_of_shapes(scenario);
  record.virtual_ns = result.virtual_ns;
  record.fingerprint = result.fingerprint;
  record.wait_for_graph = result.wait_for_graph;
  record.comm = result.comm;
  record.memory_peak = result.memory_peak;
  record.memory_at_peak = result.memory_at_peak;
  record.overlap = result.overlap;
  record.copies = result.copies;
  record.files = result.files;
  record.passes = result.passes;
  record.memory_peak_by_tag = result.memory_peak_by_tag;
  record.host_peak = result.host_peak;
  record.host_peak_by_tag = result.host_peak_by_tag;
  record.pinned_peak = result.pinned_peak;
  record.races_watched = scenario.world.race_detector;
  record.races = result.races;
  record.accesses = result.accesses;
  record.collectives_compared = result.collectives_compared;
  record.mismatches = result.mismatches;
  record.faults = faults.status();
  for (std::size_t i = 0; i < result.ranks.size() && i < record.ranks.size(); ++i) {
    using How = sim::RankEnd::How;
    RankRecord& rank = record.ranks[i];
    if (result.ranks[i].how == How::died) rank.how = RankRecord::How::died;
    if (result.ranks[i].how == How::threw) rank.how = RankRecord::How::threw;
    if (!result.ranks[i].what.empty()) rank.why = result.ranks[i].what;
  }
}

RunRecord Simulation::run() {
  const auto start = std::chrono::steady_clock::now();
  impl_->connect();
  impl_->take(impl_->world.run([this](runtime::Rank& rank) { impl_->train_rank(rank); }));
  RunRecord record = std::move(impl_->collector.record());
  record.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return record;
}

}  // namespace seeksim::harness
