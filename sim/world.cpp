// World: puts the parts together, runs the hosts, says how it ended.
#include "sim/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "kernels/check.h"
#include "kernels/isa.h"
#include "sim/core.h"
#include "sim/graph.h"

namespace seeksim::sim {

namespace {

// What all recorders of a world may hold together; a large world keeps fewer records a rank.
constexpr std::size_t kRecordsMax = 128 * 1024;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t h = (a ^ b) * 0x9fb21c651e98df25ull;
  return h ^ h >> 35;
}

}  // namespace

// ---- SimRank, Core -----------------------------------------------------------------------------------------------

SimRank::SimRank(Core& core, int rank)
    : host(core.loop, rank),
      clock(core.loop, host),
      device(core.loop, host, core.network, core.plan.device, core.plan.storage, signals, core.plan.shapes,
             core.plan.device_memory, core.plan.arithmetic, core.plan.listener),
      transport(core, *this),
      control(core, *this),
      storage(*core.disks, core.plan.storage, core.network.node_of(rank), rank) {
  storage.told_to(core.loop);
  recorder.limit(kRecordsMax / core.plan.simulated());
  recorder.keep_log(core.plan.verify);
  device.draw_on(core.timeline.get());
  host.draw_on(core.timeline.get());
  if (core.plan.race_detector) races = std::make_unique<RaceDetector>(rank);
  if (core.plan.values.on) values = std::make_unique<ValueLog>(core.plan.values, rank, races.get(), clock);
  if (values) device.watch(values.get());
  if (races && !values) device.watch(races.get());
}

void SimRank::fetch_soon() const {
  const auto lines = [](const void* at, int count) {
    for (int line = 0; line < count; ++line) __builtin_prefetch(static_cast<const char*>(at) + line * 64, 1);
  };
  lines(this, 4);  // host, signals, clock, recorder
  lines(&device, 5);
  lines(&transport, 3);
  lines(&control, 1);
}

void SimRank::fetch_now() const {
  transport.fetch_ahead();
  device.fetch_ahead();
}

Core::Core(const WorldPlan& world, Loop::Client& client, std::shared_ptr<Disks> given, TimeNs start_ns)
    : plan(world),
      loop({world.seed, world.stack_bytes, world.wall_limit_s, world.simulated(), world.schedule, world.steering},
           client),
      network(world),
      transport(*this, world.seed),
      control(*this, world.seed, world.ranks(), world.members()),
      disks(given ? std::move(given) : std::make_shared<Disks>()) {
  loop.begin_at(start_ns);
  if (world.timeline) timeline = std::make_unique<Timeline>(world.ranks());
  ranks.reserve(std::size_t(world.ranks()));
  for (int i = 0; i < world.ranks(); ++i)
    ranks.push_back(simulated(i) ? std::make_unique<SimRank>(*this, i) : std::unique_ptr<SimRank>());
}

void Core::lay_to_rest(int id) {
  SimRank& dead = rank(id);
  dead.transport.withdraw_all();
  dead.device.abandon();
  control.ended(id);
  if (timeline != nullptr) timeline->cut(id, loop.now());
}

void Core::kill(int id, const std::string& why) {
  SimRank& dead = rank(id);
  loop.touch(object(ObjectKind::host, std::uint64_t(id)), Access::write);
  if (dead.host.ended() || dead.host.dying()) return;
  story(id, why);
  loop.kill(dead.host);
  lay_to_rest(id);
  crashed(id);
}

SimRank& Core::start_again(int id) {
  std::unique_ptr<SimRank>& place = ranks[std::size_t(id)];
  const int incarnation = place->incarnation + 1;
  earlier.push_back(std::move(place));
  place = std::make_unique<SimRank>(*this, id);
  place->incarnation = incarnation;
  --crashed_on_node[network.node_of(id)];
  control.started_again(id);
  story(id, "its process restarts");
  return *place;
}

void Core::crashed(int id) {
  transport.died(id);
  control.died(id, network.between().notice_crash_ns);
  control.falls_silent(id, runtime::kForever);
  const int node = network.node_of(id);
  if (++crashed_on_node[node] == plan.ranks_per_node) lose_power_of(disks->by_node[node]);
  if (++crashed_ranks == plan.ranks()) lose_power_of(disks->shared);
}

void Core::lose_power_of(Disk& disk) const {
  if (plan.storage.tears)
    disk.tear_what_is_not_synced(plan.seed + std::uint64_t(loop.now()));
  else
    disk.lose_what_is_not_synced();
}

// ---- World -------------------------------------------------------------------------------------------------------

struct World::Impl final : Loop::Client {
  Impl(const WorldPlan& world, std::shared_ptr<Disks> disks, TimeNs start_ns)
      : plan(checked(world)), core(plan, *this, std::move(disks), start_ns) {
    core.ended = [this](const std::string& why) { end_all(WorldEnd::failed, why); };
  }

  static const WorldPlan& checked(const WorldPlan& world) {
    SEEKSIM_CHECK(world.nodes > 0 && world.ranks_per_node > 0, "a world of %d nodes with %d ranks each", world.nodes,
                  world.ranks_per_node);
    SEEKSIM_CHECK(world.classes == nullptr || (world.steady && world.shapes && world.native_gathers),
                  "classes of ranks are of steady worlds of shapes");
    SEEKSIM_CHECK(world.spares >= 0 && world.members() > 0, "%d of %d ranks are spares", world.spares, world.ranks());
    return world;
  }

  // ---- Loop::Client
  void host_main(Host& host) override;
  void host_ended(Host& host) override;
  void before_watchdogs() override;
  void stuck() override;
  void livelocked() override;
  void interrupted() override;
  void out_of_wall_time() override;
  void progress(TimeNs now) override {
    if (tick) tick(now);
  }

  void fetch_soon(const Host& host) override { core.rank(host.rank()).fetch_soon(); }
  void fetch_now(const Host& host) override { core.rank(host.rank()).fetch_now(); }

  void end_all(WorldEnd how, const std::string& why);
  void revive(int id);
  bool end_hung_if_alone();
  WorldResult collect();

  WorldPlan plan;
  Core core;
  std::function<runtime::Seams(int, runtime::Seams)> wrap;
  std::function<void(TimeNs)> tick;
  const std::function<void(runtime::Rank&)>* body = nullptr;
  std::vector<RankEnd> ends;
  std::set<int> to_revive;  // as soon as they are gone
  WorldEnd end = WorldEnd::finished;
  TimeNs finished_ns = 0;
  std::string graph;
  bool only_hung = false;  // living ranks hang for ever, and are being ended
  bool ran = false;
  int starved = -1;  // the rank for which this machine had no memory
};

void World::Impl::host_main(Host& host) {
  RankEnd& how = ends[std::size_t(host.rank())];
  try {
    SEEKSIM_CHECK(kernels::float_environment_ok(), "rank %d starts with another floating-point environment",
                  host.rank());
    SimRank& own = core.rank(host.rank());
    const runtime::Seams seams = wrap ? wrap(host.rank(), own.seams()) : own.seams();
    own.device.set_outer(seams.device);
    runtime::Rank rank{host.rank(),     plan.ranks(),  seams.clock,   seams.device,
                       seams.transport, seams.storage, seams.control, own.recorder};
    rank.ranks_per_node = plan.ranks_per_node;
    rank.incarnation = own.incarnation;
    (*body)(rank);
  } catch (const runtime::RankDied&) {
    how.how = RankEnd::How::died;
  } catch (const std::bad_alloc&) {
    if (starved < 0) starved = host.rank();
  } catch (const std::exception& e) {
    how.how = RankEnd::How::threw;
    how.what = e.what();
  } catch (...) {
    how.how = RankEnd::How::threw;
    how.what = "something that is no std::exception";
  }
}

void World::Impl::host_ended(Host& host) {
  const int id = host.rank();
  RankEnd& how = ends[std::size_t(id)];
  if (starved == id) end_all(WorldEnd::failed, "this machine is out of memory");
  if (host.dying() && how.how == RankEnd::How::returned) how.how = RankEnd::How::died;
  // A host that threw by itself (RankDied: a fault before an operation) is as gone as one that was killed.
  if (how.how != RankEnd::How::returned && !host.dying()) {
    core.story(id, how.how == RankEnd::How::died ? "died" : "threw: " + how.what);
    core.crashed(id);
  }
  if (how.how == RankEnd::How::died && core.rank(id).races) core.rank(id).races->rank_died();
  core.lay_to_rest(id);
  if (!only_hung) finished_ns = core.loop.now();
  if (to_revive.contains(id))
    core.loop.call_at(core.loop.now(), arrival(Arrival::fault, id, 1), [this, id] { revive(id); });
  end_hung_if_alone();
}

void World::Impl::revive(int id) {
  const Host& host = core.rank(id).host;
  if (end != WorldEnd::finished || only_hung || core.loop.living() == 0) return;
  if (!host.ended()) {
    to_revive.insert(id);
    return;
  }
  to_revive.erase(id);
  RankEnd& how = ends[std::size_t(id)];
  if (how.how != RankEnd::How::died) return;
  how = {};
  core.loop.add(core.start_again(id).host);
}

// A rank that a fault hangs for ever does not keep the world alive.
bool World::Impl::end_hung_if_alone() {
  if (core.loop.living() == 0 || core.loop.living() != core.loop.hanging()) return false;
  only_hung = true;
  for (const auto& rank : core.ranks)
    if (rank != nullptr) core.loop.kill(rank->host);
  return true;
}

void World::Impl::before_watchdogs() {
  if (!graph.empty()) return;
  graph = wait_for_graph(core);
  core.story(-1, "nothing can progress; only watchdogs are running:\n" + graph);
}

void World::Impl::stuck() {
  if (end_hung_if_alone() || core.control.send_home(core.loop.living(), core.loop.hanging())) return;
  graph = wait_for_graph(core);
  core.story(-1, "deadlock: nothing can run and no timer is left:\n" + graph);
  end_all(WorldEnd::deadlock, "deadlock");
}

void World::Impl::livelocked() {
  graph = wait_for_graph(core);
  core.story(-1, fmt::format("livelock: {} votes and agreements were decided without a step:\n{}",
                             core.control.decided_without_step(), graph));
  end_all(WorldEnd::deadlock, "livelock: ranks vote and agree without end, and no step follows");
}

void World::Impl::interrupted() {
  if (graph.empty()) graph = wait_for_graph(core);
  end_all(WorldEnd::out_of_wall_time, "interrupted");
}

void World::Impl::out_of_wall_time() {
  if (graph.empty()) graph = wait_for_graph(core);
  end_all(WorldEnd::out_of_wall_time, "out of wall time");
}

void World::Impl::end_all(WorldEnd how, const std::string& why) {
  end = how;
  for (const auto& rank : core.ranks) {
    if (rank == nullptr || rank->host.ended()) continue;
    ends[std::size_t(rank->host.rank())].what = why;
    core.loop.kill(rank->host);
  }
}

namespace {

void collect_memory(const SimDevice& device, WorldResult& out) {
  using runtime::MemoryTag, runtime::Space;
  for (std::size_t i = 0; i < out.memory_peak_by_tag.size(); ++i) {
    const auto peak = [&](Space space) { return device.use(MemoryTag(i), space).peak; };
    out.memory_peak_by_tag[i] = std::max(out.memory_peak_by_tag[i], peak(Space::device));
    out.host_peak_by_tag[i] = std::max(out.host_peak_by_tag[i], peak(Space::host) + peak(Space::pinned));
  }
  const std::size_t pinned = device.use_total(Space::pinned).peak;
  if (const std::size_t peak = device.use_total(Space::device).peak; peak > out.memory_peak) {
    out.memory_peak = peak;
    const BytesByTag& tags = device.at_peak(Space::device);
    out.memory_at_peak.assign(tags.begin(), tags.end());
  }
  out.host_peak = std::max(out.host_peak, device.use_total(Space::host).peak + pinned);
  out.pinned_peak = std::max(out.pinned_peak, pinned);
}

}  // namespace

WorldResult World::Impl::collect() {
  WorldResult out;
  out.end = end;
  for (const RankEnd& rank : ends)
    if (rank.how == RankEnd::How::threw) out.end = WorldEnd::failed;
  out.virtual_ns = finished_ns;
  out.wait_for_graph = graph;
  out.ranks = ends;
  out.comm.resize(std::size_t(runtime::OpKind::count_));
  out.memory_peak_by_tag.resize(std::size_t(runtime::MemoryTag::count_));
  out.host_peak_by_tag.resize(std::size_t(runtime::MemoryTag::count_));
  out.fingerprint = core.loop.fingerprint();
  std::vector<SimRank*> all;  // incarnations
  for (const auto& rank : core.ranks)
    if (rank != nullptr) all.push_back(rank.get());
  for (const auto& rank : core.earlier) all.push_back(rank.get());
  for (SimRank* rank : all) {
    const auto weight = std::uint64_t(core.weight(rank->host.rank()));
    out.fingerprint = mix(out.fingerprint, rank->recorder.fingerprint());
    for (std::size_t kind = 0; kind < out.comm.size(); ++kind) {
      const SimTransport::Use& use = rank->transport.use()[kind];
      out.comm[kind].calls += use.calls * weight;
      out.comm[kind].bytes_sent_per_rank_max = std::max(out.comm[kind].bytes_sent_per_rank_max, use.bytes);
    }
    collect_memory(rank->device, out);
    const TrainingMeter& training = std::as_const(rank->device).training();
    if (training.resting()) out.trained_ns = std::max(out.trained_ns, training.until());
    out.overlap += rank->device.overlap().total().times(std::int64_t(weight));
    out.copies += rank->device.copies().total().times(std::int64_t(weight));
    out.files += rank->device.files();
    const std::vector<StepPasses>& passes = rank->device.passes().steps();
    out.passes.resize(std::max(out.passes.size(), passes.size()));
    for (std::size_t step = 0; step < passes.size(); ++step)
      out.passes[step] += passes[step].times(std::int64_t(weight));
  }
  if (plan.steady) collect_courses(core, out);
  for (SimRank* rank : all) {
    if (!rank->races) continue;
    const std::vector<Race> races = rank->races->races();
    out.races.insert(out.races.end(), races.begin(), races.end());
    out.accesses += rank->races->accesses();
    const std::vector<UnwrittenRead> unwritten = rank->races->unwritten().found();
    out.unwritten.insert(out.unwritten.end(), unwritten.begin(), unwritten.end());
    out.reads += rank->races->unwritten().reads();
  }
  out.collectives_compared = core.transport.compared;
  out.mismatches = core.transport.mismatches;
  out.switches = core.loop.switches();
  if (const Chooser* chooser = core.loop.chooser()) {
    out.decisions = chooser->decisions();
    out.choices = chooser->taken();
  }
  return out;
}

World::World(const WorldPlan& plan, std::shared_ptr<Disks> disks, TimeNs start_ns)
    : impl_(std::make_unique<Impl>(plan, std::move(disks), start_ns)) {}
World::~World() = default;

void World::decorate(std::function<runtime::Seams(int rank, runtime::Seams inner)> wrap) {
  impl_->wrap = std::move(wrap);
}

void World::kill_at(int rank, TimeNs when, std::function<void()> done) {
  SEEKSIM_CHECK(rank >= 0 && rank < impl_->plan.ranks(), "no rank %d", rank);
  Core& core = impl_->core;
  core.loop.call_at(when, arrival(Arrival::fault, rank, 2), [&core, rank, done = std::move(done)] {
    const Host& host = core.rank(rank).host;
    core.loop.touch(object(ObjectKind::host, std::uint64_t(rank)), Access::write);
    if (host.ended() || host.dying()) return;
    core.kill(rank, "killed");
    if (done) done();
  });
}

void World::revive_at(int rank, TimeNs when) {
  SEEKSIM_CHECK(rank >= 0 && rank < impl_->plan.ranks(), "no rank %d", rank);
  impl_->core.loop.call_at(when, arrival(Arrival::fault, rank, 3), [impl = impl_.get(), rank] { impl->revive(rank); });
}

void World::control_outage(const ControlOutage& outage, std::function<void()> begun) {
  Core& core = impl_->core;
  if (outage.others.empty()) core.control.outage(outage);
  core.loop.call_at(outage.from, arrival(Arrival::fault, -1, 4), [&core, outage, begun = std::move(begun)] {
    if (core.loop.living() == 0) return;
    if (!outage.others.empty()) core.control.split(outage);
    core.story(-1, outage.all ? "the control plane is down" : "some ranks do not reach the control plane");
    if (begun) begun();
  });
}

void World::lose_files(int rank) {
  Core& core = impl_->core;
  core.loop.call_at(core.loop.now(), arrival(Arrival::fault, rank, 5), [&core, node = core.network.node_of(rank)] {
    core.disks->by_node[node] = Disk();
    core.story(-1, fmt::format("the contents of node {}'s disk are lost", node));
  });
}

void World::on_event(std::function<void(TimeNs, int rank, const std::string& text)> listener) {
  impl_->core.listener = std::move(listener);
}

void World::on_progress(std::function<void(TimeNs)> tick) { impl_->tick = std::move(tick); }

WorldResult World::run(const std::function<void(runtime::Rank&)>& body) {
  SEEKSIM_CHECK(!impl_->ran, "a world runs once");
  impl_->ran = true;
  impl_->body = &body;
  impl_->ends.resize(std::size_t(impl_->plan.ranks()));
  std::vector<Host*> hosts;
  for (const auto& rank : impl_->core.ranks)
    if (rank != nullptr) hosts.push_back(&rank->host);
  impl_->core.loop.run(hosts);
  if (impl_->starved >= 0) throw OutOfMachineMemory(impl_->starved, impl_->plan.ranks());
  return impl_->collect();
}

void World::training_is_over(int rank, std::int64_t step) {
  impl_->core.rank(rank).device.training().rests(step, now());
  if (impl_->core.timeline != nullptr) impl_->core.timeline->draw_waits(rank, false);
}

void World::training_goes_on(int rank) {
  impl_->core.rank(rank).device.training().goes_on();
  if (impl_->core.timeline != nullptr) impl_->core.timeline->draw_waits(rank, true);
}

TimeNs World::now() const { return impl_->core.loop.now(); }
const ValueLog* World::values(int rank) const { return impl_->core.rank(rank).values.get(); }
bool World::simulated(int rank) const { return impl_->core.simulated(rank); }
const runtime::Recorder& World::recorder(int rank) const {
  return impl_->core.ranks.at(std::size_t(impl_->core.stand_in(rank)))->recorder;
}
Timeline* World::timeline() { return impl_->core.timeline.get(); }
bool World::alive(int rank) const {
  const Host& host = impl_->core.ranks.at(std::size_t(impl_->core.stand_in(rank)))->host;
  return !host.ended() && !host.dying();
}
int World::node_of(int rank) const { return impl_->core.network.node_of(rank); }

}  // namespace seeksim::sim
