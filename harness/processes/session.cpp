#include "harness/processes/session.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <span>
#include <thread>

#include <nlohmann/json.hpp>

#include "harness/loading/load.h"
#include "harness/processes/faults.h"
#include "harness/processes/placement.h"
#include "harness/processes/process_run.h"
#include "harness/processes/refusals.h"
#include "harness/processes/told.h"
#include "harness/processes/transports.h"
#include "harness/report/report.h"
#include "kernels/digest.h"
#include "runtime/backend/control/control_server.h"
#include "runtime/backend/control/heart.h"
#include "runtime/backend/gpu/nccl_api.h"
#include "runtime/backend/machine/posix_storage.h"
#include "runtime/backend/machine/wall_clock.h"
#include "runtime/backend/wire/mpi_world.h"
#include "runtime/backend/wire/rendezvous.h"
#include "runtime/backend/wire/tcp_world.h"
#include "runtime/checkpoint/checkpoint_files.h"

namespace seeksim::harness {

using runtime::ControlServer;
using runtime::MpiWorld;

namespace {

constexpr runtime::TimeNs kPatience = 60 * runtime::kSecond;

// The control plane of ranks without a supervisor, in a thread beside the leader's.
class OwnServer {
 public:
  OwnServer(const ControlServer::Options& options, std::vector<Event>& events)
      : server_(options, [this, &events](int rank, const std::string& text) {
          events.push_back({clock_.now(), rank, text});  // read when the thread has ended
        }) {
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) server_.step(50);
    });
  }
  std::uint16_t port() const { return server_.port(); }

 private:
  runtime::WallClock clock_;
  ControlServer server_;
  std::jthread thread_;
};

// Which rank this process will be, as its launcher says before MPI does.
std::optional<int> rank_to_be() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK"}) {
    if (const char* rank = std::getenv(name)) return std::atoi(rank);
  }
  return std::nullopt;
}

template <class T>
void take_largest(std::vector<T>& all, const std::vector<T>& more) {
  all.resize(std::max(all.size(), more.size()));
  for (std::size_t i = 0; i < more.size(); ++i) all[i] = std::max(all[i], more[i]);
}

void add_use(const RankReport& report, RunRecord& record) {
  record.traffic.comm.resize(std::max(record.traffic.comm.size(), report.comm.size()));
  for (std::size_t kind = 0; kind < report.comm.size(); ++kind) {
    sim::CommUse& use = record.traffic.comm[kind];
    use.calls += report.comm[kind].calls;
    use.bytes_sent_per_rank_max = std::max(use.bytes_sent_per_rank_max, report.comm[kind].bytes_sent_per_rank_max);
  }
  take_largest(record.memory.peak_by_tag, report.device.peak_by_tag);
  if (report.device.peak >= record.memory.peak) record.memory.at_peak = report.device.at_peak;
  record.memory.peak = std::max(record.memory.peak, report.device.peak);
  std::vector<std::size_t> host = report.host.peak_by_tag;
  host.resize(std::max(host.size(), report.pinned.peak_by_tag.size()));
  for (std::size_t tag = 0; tag < report.pinned.peak_by_tag.size(); ++tag) host[tag] += report.pinned.peak_by_tag[tag];
  take_largest(record.memory.host_peak_by_tag, host);
  record.memory.host_peak = std::max(record.memory.host_peak, report.host.peak + report.pinned.peak);
  record.memory.pinned_peak = std::max(record.memory.pinned_peak, report.pinned.peak);
  record.agreement.collectives_compared += report.compared;
  record.agreement.mismatches.insert(record.agreement.mismatches.end(), report.mismatches.begin(),
                                     report.mismatches.end());
  if (report.audit) {
    FastAudit& audit = record.numbers.audit ? *record.numbers.audit : record.numbers.audit.emplace();
    runtime::add(audit.report, report.audit->report);
    audit.products_through_host += report.audit->products_through_host;
  }
  record.virtual_ns = std::max(record.virtual_ns, report.ended_ns);
  record.fingerprint = kernels::combine(record.fingerprint, report.fingerprint);
}

// A rule strikes in the process of one rank, which alone knows of it, or in any (a link, a sample).
faults::RuleStatus what_became_of(std::size_t number, const faults::Rule& rule, const std::vector<RankReport>& told) {
  faults::RuleStatus all;
  all.kind = rule.kind;
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    if (!in_any_process(rule) && rank != std::size_t(rule.when.rank.value_or(0))) continue;
    if (number >= told[rank].faults.size()) continue;  // it gave no report
    const faults::RuleStatus& seen = told[rank].faults[number];
    all.text = seen.text;
    if (all.met.empty()) all.met = seen.met;
    all.last_step = std::max(all.last_step, seen.last_step);
    all.matched += seen.matched;
    if (seen.fired == 0) continue;
    if (all.fired == 0 || seen.first_fired_ns < all.first_fired_ns) {
      all.first_fired_ns = seen.first_fired_ns;
      all.first_op = seen.first_op;
    }
    all.fired += seen.fired;
    all.fired_ns.insert(all.fired_ns.end(), seen.fired_ns.begin(), seen.fired_ns.end());
    all.ranks.insert(all.ranks.end(), seen.ranks.begin(), seen.ranks.end());
  }
  std::sort(all.fired_ns.begin(), all.fired_ns.end());
  if (all.fired_ns.size() > faults::kFiringsKept) all.fired_ns.resize(faults::kFiringsKept);
  std::sort(all.ranks.begin(), all.ranks.end());
  all.ranks.erase(std::unique(all.ranks.begin(), all.ranks.end()), all.ranks.end());
  return all;
}

// Where the processes do not meet, that is no bug of the program's: the port is taken, or a rank is missing.
std::unique_ptr<runtime::ProcessWorld> met_by_tcp(bool insecure) try {
  return std::make_unique<runtime::TcpWorld>(insecure);
} catch (const runtime::NoSecret& error) {
  throw BadInput("MASTER_ADDR", error.what(),
                 "Give all processes the same SEEKSIM_TOKEN, 16 characters or more (openssl rand -hex 16), or start "
                 "torchrun with --rdzv-id of that length. With --insecure anybody may join.");
} catch (const std::runtime_error& error) {
  throw BadInput("RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT", error.what(),
                 "All processes need the same MASTER_ADDR and a MASTER_PORT that is free there, and a RANK each.");
}

std::unique_ptr<runtime::ProcessWorld> met_in_ones_own_way(const std::string& name, const MakeTransport& make) try {
  return make();
} catch (const std::runtime_error& error) {
  throw BadInput("--backend " + name, error.what(), "Start all processes as this transport wants it.");
}

}  // namespace

struct MpiSession::Impl {
  std::optional<runtime::Heart> heart;  // beats before the world is built and until it is gone
  std::unique_ptr<runtime::ProcessWorld> world;
  bool nccl = false;
  std::string asked;              // as --backend says
  std::vector<std::string> gpus;  // the leader's: by rank, what tells a process's GPU from the others
  bool missing = false;           // a process did not answer
  bool told_over = false;

  void gather_gpus();
  RunRecord collect(const Scenario& scenario, const RunRequest& request, const std::string& folder, StepLog* step_log,
                    std::vector<std::vector<std::byte>> reports);
};

void MpiSession::Impl::gather_gpus() {
  const std::string mine = identity_of_own_gpu(world->rank());
  const auto bytes = std::as_bytes(std::span(mine));
  for (const std::vector<std::byte>& text : world->gather({bytes.begin(), bytes.end()}, world->size(), kPatience))
    gpus.emplace_back(reinterpret_cast<const char*>(text.data()), text.size());
}

MpiSession::MpiSession(const std::string& backend, bool insecure) {
  const bool nccl = backend == "nccl";
  const MakeTransport* const own = own_transport(backend);
  const bool alone = std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr && std::getenv("PMIX_RANK") == nullptr &&
                     std::getenv("PMI_SIZE") == nullptr;
  const bool over_tcp = alone && runtime::TcpWorld::asked_for();
  if (!over_tcp && own == nullptr) need_mpi("--backend " + backend);
  impl_ = std::make_unique<Impl>();
  const std::optional<Supervision> supervised = supervision();
  const std::optional<int> rank = rank_to_be();
  if (supervised && rank) {
    // No process of a job outlives the one that started it; the heart sees the supervisor's end, also from other hosts.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    impl_->heart.emplace(runtime::Heart::Options{supervised->endpoint, supervised->token, *rank,
                                                 supervised->heartbeat_ns, runtime::Heart::WhenLost::end_process});
  }
  impl_->nccl = nccl;
  impl_->asked = backend;
  if (own != nullptr)
    impl_->world = met_in_ones_own_way(backend, *own);
  else if (over_tcp)
    impl_->world = met_by_tcp(insecure);
  else
    impl_->world = std::make_unique<MpiWorld>();
  if (nccl) impl_->gather_gpus();
  if (impl_->heart) impl_->heart->ready();
}

MpiSession::~MpiSession() {
  if (!leads() || impl_->told_over) return;
  try {
    end(ExitStatus::bug);
  } catch (const std::exception&) {  // a process that is gone cannot be told
  }
}

bool MpiSession::leads() const { return impl_->world->rank() == 0; }
const char* MpiSession::backend() const { return impl_->nccl ? "nccl" : impl_->world->name(); }
bool MpiSession::supervised() const { return supervision().has_value(); }
int MpiSession::processes() const { return impl_->world->size(); }

// A process that cannot do its part takes the others with it: they would wait for it for ever.
void MpiSession::serve() {
  ExitStatus status = ExitStatus::bug;
  std::string why;
  try {
    return serve_until_over();
  } catch (const BadInput& error) {
    status = ExitStatus::bad_input;
    why = error.what();
  } catch (const std::runtime_error& error) {  // a peer or a connection that is gone; no check of the program's own
    status = ExitStatus::no_progress;
    why = error.what();
  } catch (const std::exception& error) {
    why = error.what();
  }
  fmt::print(stderr, "seeksim: process {} cannot take part: {}\n", impl_->world->rank(), why);
  std::fflush(stderr);
  impl_->world->abort(code(status));
}

void MpiSession::serve_until_over() {
  const int me = impl_->world->rank();
  std::optional<RunFolder> folder;
  for (;;) {
    const RunRequest request = request_from(impl_->world->broadcast({}));
    folder.reset();  // all have ended the run before
    if (request.over) return;
    const int ranks = load_scenario_text(request.scenario, request.file).world.ranks();
    if (me >= ranks) continue;
    folder.emplace(request);
    impl_->world->gather(to_bytes(train_here(request, folder->path(), impl_->world->wire(), me)), ranks, 0);
  }
}

void MpiSession::end(ExitStatus status) {
  impl_->told_over = true;
  RunRequest over;
  over.over = true;
  // Where the run failed, too, those that are left do not end as if it had not: torchrun starts all of them again.
  const bool good = status == ExitStatus::as_expected && impl_->world->reaches_who_is_left();
  if (!impl_->missing || good) impl_->world->broadcast(text_of(over));
  if (impl_->missing) impl_->world->abort(code(status));
}

std::vector<Problem> MpiSession::problems_of(const Scenario& scenario) const {
  std::vector<Problem> problems = problems_on_mpi(scenario, impl_->asked);
  for (std::size_t i = 0; i < scenario.faults.size() && !supervised(); ++i) {
    if (!ends_a_process(scenario.faults[i])) continue;
    problems.push_back({scenario.file, fmt::format("faults.{}.kind", i),
                        fmt::format("--backend {}: {} ends a process, and the job with it", impl_->asked,
                                    name(scenario.faults[i].kind)),
                        "Start it with seeksim launch, which goes on from a checkpoint."});
  }
  return problems;
}

std::string MpiSession::why_not(const Scenario& scenario) const {
  Scenario unjudged = scenario;
  unjudged.checks.clear();  // those that cannot be made are skipped, or refused when it runs
  const std::vector<Problem> problems = problems_of(unjudged);
  return problems.empty() ? "" : problems.front().what;
}

RunRecord MpiSession::run(const Scenario& scenario, const SimulationOptions& options, bool smaller) {
  const std::optional<Supervision> supervised = supervision();
  std::vector<Problem> problems = problems_of(scenario);
  if (!problems.empty()) throw BadInput(std::move(problems));
  const int ranks = scenario.world.ranks(), there = processes();
  if (ranks > there || (ranks < there && !smaller)) {
    throw BadInput(scenario.file,
                   fmt::format("the world has {} ranks, and there {} {} process{}", ranks, there == 1 ? "is" : "are",
                               there, there == 1 ? "" : "es"),
                   fmt::format("Start it with mpirun -np {}, or change the world: --set world.nodes=1 --set "
                               "world.ranks_per_node={}.",
                               ranks, there));
  }
  if (impl_->nccl) {
    problems =
        problems_of_sharing(impl_->gpus, ranks, runtime::nccl_version(), std::getenv(runtime::kGpuSharingVariable));
    if (!problems.empty()) throw BadInput(std::move(problems));
  }
  const auto start = std::chrono::steady_clock::now();
  RunRequest request;
  request.scenario = to_travel(scenario);
  request.file = scenario.file;
  request.temporary = options.storage_folder.empty();
  request.folder =
      request.temporary ? RunFolder::new_name() : std::filesystem::absolute(options.storage_folder).string();
  const RunFolder folder(request);  // before the others: on this host it is this process's to remove
  request.gradients_of = options.gradients_of;
  request.digest_gradients = options.digest_gradients;
  request.keep_final_weights = options.keep_final_weights;
  request.nccl = impl_->nccl;
  request.audit = options.audit;
  std::vector<Event> events;
  std::optional<OwnServer> own;
  if (!supervised) RealFaults::forget(folder.path());
  if (supervised) {
    request.endpoint = supervised->endpoint;
    request.token = supervised->token;
  } else {
    ControlServer::Options serving;
    serving.ranks = ranks;
    serving.token = request.token = runtime::new_token();
    serving.heartbeat_timeout_ns =
        scenario.train.recovery.heartbeat_ns > 0 ? scenario.train.recovery.heartbeat_timeout_ns : 0;
    const bool one_host = impl_->world->hosts() == 1;
    if (!one_host) serving.address = "";  // all of this host's
    own.emplace(serving, events);
    request.endpoint = fmt::format("{}:{}", one_host ? "127.0.0.1" : impl_->world->host(), own->port());
  }
  load_scenario_text(request.scenario, request.file);  // throws here and now, before anybody waits for anybody
  impl_->world->broadcast(text_of(request));
  std::vector<std::byte> mine = to_bytes(train_here(request, folder.path(), impl_->world->wire(), 0));
  RunRecord record =
      impl_->collect(scenario, request, folder.path(), options.step_log,
                     impl_->world->gather(std::move(mine), ranks, kPatience + scenario.train.recovery.agree_ns));
  own.reset();
  record.events.insert(record.events.end(), events.begin(), events.end());
  std::stable_sort(record.events.begin(), record.events.end(),
                   [](const Event& a, const Event& b) { return a.at_ns < b.at_ns; });
  record.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return record;
}

RunRecord MpiSession::Impl::collect(const Scenario& scenario, const RunRequest& request, const std::string& folder,
                                    StepLog* step_log, std::vector<std::vector<std::byte>> reports) {
  Collector collector(scenario.world.ranks(), request.gradients_of, request.digest_gradients);
  if (step_log != nullptr) step_log->begin({});
  collector.log_steps_to(step_log);
  collector.begin_attempt(0);
  std::vector<RankReport> told;
  std::vector<std::vector<Note>> notes;
  try {
    for (const std::vector<std::byte>& bytes : reports) {
      told.push_back(bytes.empty() ? RankReport{} : report_from(bytes));
      notes.push_back(std::move(told.back().notes));
      if (!bytes.empty()) continue;
      missing = true;
      told.back().record.how = RankRecord::How::died;
      told.back().record.why = "its process gave no report";
    }
    replay(notes, scenario.train.definition.steps, scenario.train.definition.global_batch, collector);
  } catch (const runtime::Malformed& bad) {
    missing = true;  // what that process does next is unknown
    const bool in_report = notes.size() < reports.size();
    throw BadInput(scenario.file,
                   in_report ? fmt::format("the report of rank {} {}", notes.size(), bad.what()) : bad.what(),
                   "Its process runs another program, or bytes were changed on their way.");
  }
  RunRecord record = std::move(collector.record());
  record.training.history = collector.history();
  record.compares_collectives = !nccl;
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    told[rank].record.layout = record.ranks[rank].layout;
    record.ranks[rank] = told[rank].record;
    add_use(told[rank], record);
    if (!told[rank].final_weights.empty()) record.training.final_weights = std::move(told[rank].final_weights);
    if (told[rank].record.how == RankRecord::How::threw) record.end = sim::WorldEnd::failed;
    record.events.insert(record.events.end(), told[rank].events.begin(), told[rank].events.end());
  }
  for (std::size_t rule = 0; rule < scenario.faults.size(); ++rule)
    record.faults.push_back(what_became_of(rule, scenario.faults[rule], told));
  for (std::size_t i = 0; i < scenario.own_faults.size(); ++i) {
    record.own_faults.push_back({scenario.own_faults[i].name, 0});
    for (const RankReport& rank : told) {
      if (i < rank.own_faults_fired.size()) record.own_faults.back().fired += rank.own_faults_fired[i];
    }
  }
  record.ended_ns = record.virtual_ns;
  record.training.attempts.back().ended_ns = record.virtual_ns;
  const runtime::CheckpointPlan& plan = scenario.train.checkpoint;
  if (!plan.on()) return record;
  runtime::PosixStorage storage(folder);
  for (const std::int64_t step : runtime::checkpoints_in(storage, plan.path)) {
    const runtime::Verified verified = runtime::verify_checkpoint(storage, runtime::step_folder(plan.path, step));
    record.training.found_checkpoints.push_back({step, verified.problem});
  }
  return record;
}

}  // namespace seeksim::harness
