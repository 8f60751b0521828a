#include "harness/processes/process_run.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "harness/input/json_text.h"
#include "harness/loading/extensions.h"
#include "harness/loading/load.h"
#include "harness/processes/faults.h"
#include "harness/processes/placement.h"
#include "harness/report/report.h"
#include "harness/scenario/variants.h"
#include "harness/simulate/arithmetic.h"
#include "runtime/backend/control/control_server.h"
#include "runtime/backend/nccl_rank.h"
#include "runtime/backend/real_rank.h"
#include "runtime/seams/bounded.h"

namespace seeksim::harness {

using runtime::ControlClient;
using runtime::RealRank;

namespace {

Json way_json(const std::optional<kernels::FastWay>& way) {
  if (!way) return nullptr;
  return {{"tf32", way->tf32}, {"slip", int(way->slip)}};
}
std::optional<kernels::FastWay> way_from(const Json& json) {
  if (json.is_null()) return std::nullopt;
  const int slip = json.at("slip");
  if (slip < 0 || slip > int(kernels::FastSlip::ring_in_bf16))
    throw BadInput("rank 0", fmt::format("it asks for an arithmetic of kind {}", slip), "");
  return kernels::FastWay{json.at("tf32"), kernels::FastSlip(slip)};
}

}  // namespace

std::string text_of(const RunRequest& r) {
  const Json json = {{"over", r.over},
                     {"scenario", r.scenario},
                     {"file", r.file},
                     {"folder", r.folder},
                     {"temporary", r.temporary},
                     {"endpoint", r.endpoint},
                     {"token", r.token},
                     {"gradients_of", r.gradients_of},
                     {"digest_gradients", r.digest_gradients},
                     {"keep_final_weights", r.keep_final_weights},
                     {"nccl", r.nccl},
                     {"audit", way_json(r.audit)}};
  return json.dump();
}

RunRequest request_from(const std::string& text) try {
  const Json json = Json::parse(text);
  RunRequest r;
  r.over = json.at("over");
  r.scenario = json.at("scenario");
  r.file = json.at("file");
  r.folder = json.at("folder");
  r.temporary = json.at("temporary");
  r.endpoint = json.at("endpoint");
  r.token = json.at("token");
  r.gradients_of = json.at("gradients_of");
  r.digest_gradients = json.at("digest_gradients");
  r.keep_final_weights = json.at("keep_final_weights");
  r.nccl = json.at("nccl");
  r.audit = way_from(json.at("audit"));
  return r;
} catch (const nlohmann::json::exception& bad) {
  throw BadInput("rank 0", fmt::format("it asks for a run in words that cannot be read: {}", bad.what()),
                 "Start the same seeksim on all hosts.");
}

std::string RunFolder::new_name() { return "seeksim-" + runtime::new_token(); }

RunFolder::RunFolder(const RunRequest& request) : path_(request.folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!request.temporary) {
    fs::create_directories(path_, error);
    if (error) throw BadInput(path_, error.message(), "The run's files go there: name a folder that can be written.");
    return;
  }
  const std::string_view stem = "seeksim-";
  const std::string_view name = request.folder;
  const bool named = name.starts_with(stem) && name.size() == stem.size() + runtime::kTokenBytes &&
                     name.substr(stem.size()).find_first_not_of("0123456789abcdef") == std::string_view::npos;
  if (!named) throw BadInput("rank 0", fmt::format("{} is not the name of a temporary folder", in_quotes(name)), "");
  path_ = fs::temp_directory_path() / name;
  if (::mkdir(path_.c_str(), 0700) == 0) {
    made_.emplace(path_);
    return;
  }
  // Another rank of this host was first.
  struct stat there {};
  const int why = errno;
  const bool ours = ::lstat(path_.c_str(), &there) == 0 && S_ISDIR(there.st_mode) && there.st_uid == ::geteuid();
  if (why != EEXIST || !ours)
    throw BadInput(path_, why == EEXIST ? "another process made it" : std::strerror(why),
                   "Set TMPDIR to a folder of yours.");
}

RunFolder::~RunFolder() {
  std::error_code ignored;
  if (made_) std::filesystem::remove_all(path_, ignored);
}

std::string to_travel(const Scenario& scenario) {
  Scenario bare = scenario;
  bare.checks.clear();
  bare.expect = {};
  bare.golden.shared = false;
  bare.museum = {};
  return dump(to_json(bare));
}

std::optional<Supervision> supervision() {
  const char* endpoint = std::getenv("SEEKSIM_CONTROL");
  const char* token = std::getenv("SEEKSIM_TOKEN");
  const char* heartbeat = std::getenv("SEEKSIM_HEARTBEAT_S");
  if (endpoint == nullptr || token == nullptr || heartbeat == nullptr) return std::nullopt;
  return Supervision{endpoint, token, runtime::to_time_ns(std::strtod(heartbeat, nullptr) * 1e9)};
}

namespace {

RankRecord::How how_of(runtime::Ending ending) {
  switch (ending) {
    case runtime::Ending::finished:
      return RankRecord::How::finished;
    case runtime::Ending::evicted:
      return RankRecord::How::evicted;
    case runtime::Ending::spare:
      return RankRecord::How::spare;
    default:
      return RankRecord::How::stopped;
  }
}

template <class AnyDevice>
RankReport::Memory memory_of(const AnyDevice& device, runtime::Space space) {
  RankReport::Memory memory;
  for (std::size_t tag = 0; tag < std::size_t(runtime::MemoryTag::count_); ++tag)
    memory.peak_by_tag.push_back(device.use(runtime::MemoryTag(tag), space).peak);
  const runtime::BytesByTag& at_peak = device.at_peak(space);
  memory.at_peak.assign(at_peak.begin(), at_peak.end());
  memory.peak = device.use_total(space).peak;
  return memory;
}

// One rank's part of a run, on a RealRank or an NcclRank.
template <class AnyRank>
void train_on(AnyRank& real, RealFaults& faults, const Scenario& scenario, const RunRequest& request,
              RankReport& report) {
  NoteTaker notes(scenario.world.ranks() > 1, request.gradients_of, request.digest_gradients);
  OwnFaults own_faults(scenario);  // over the others
  try {
    runtime::Seams seams = own_faults.decorate(real.id, faults.decorate(real.seams()));
    runtime::Rank rank = real.rank(seams, scenario.world.ranks_per_node);
    auto* weights = request.keep_final_weights ? &report.final_weights : nullptr;
    runtime::TrainOutcome outcome = runtime::train(rank, scenario.train, notes, weights);
    report.record.how = how_of(outcome.ending);
    report.record.why = std::move(outcome.why);
    report.record.steps_committed = outcome.steps_committed;
    report.record.state = std::move(outcome.state);
  } catch (const std::exception& error) {
    report.record.how = RankRecord::How::threw;
    report.record.why = error.what();
  }
  const bool finished = report.record.how == RankRecord::How::finished && notes.trained_ns() >= 0;
  report.ended_ns = finished ? notes.trained_ns() : real.wall.now();
  report.fingerprint = real.recorder.fingerprint();
  for (const runtime::MessageTransport::Use& use : real.transport.use()) report.comm.push_back({use.calls, use.bytes});
  report.device = memory_of(real.device, runtime::Space::device);
  report.host = memory_of(real.device, runtime::Space::host);
  report.pinned = memory_of(real.device, runtime::Space::pinned);
  report.faults = faults.status();
  report.own_faults_fired = own_faults.fired();
  report.events = faults.take_events();
  for (const auto& [at, text] : real.transport.complaints()) report.events.push_back({at, real.id, text});
  report.notes = notes.take();
}

}  // namespace

RankReport train_here(const RunRequest& request, const std::string& folder, runtime::Wire& wire, int id) {
  const Scenario scenario = load_scenario_text(request.scenario, request.file);
  const sim::DeviceModel& model = scenario.world.device;
  const runtime::HostMemory::Capacities capacities{model.capacity_bytes, model.host_capacity_bytes,
                                                   model.pinned_capacity_bytes};
  // Under a supervisor, this process has a heart already.
  const runtime::TimeNs heartbeat_ns = supervision() ? 0 : scenario.train.recovery.heartbeat_ns;
  const ControlClient::Options to_control{request.endpoint, request.token, id, scenario.world.ranks(), heartbeat_ns};
  RealFaults faults(scenario, id, folder);
  RankReport report;
  const RunArithmetic arithmetic(scenario, request.audit);
#ifdef SEEKSIM_NCCL
  if (request.nccl) {
    try {
      runtime::NcclRank real(wire, capacities, to_control, folder, runtime::visible_gpu(gpu_of_process(id)));
      real.device.compute_by(arithmetic.get(), arithmetic.listener());
      real.transport.sum_by_nccl(arithmetic.library_sums());
      train_on(real, faults, scenario, request, report);
    } catch (const std::exception& error) {  // the GPU cannot be used, or NCCL cannot be loaded here
      report.record.how = RankRecord::How::threw;
      report.record.why = error.what();
    }
    report.audit = arithmetic.audited();
    return report;
  }
#endif
  RealRank real(wire, capacities, to_control, folder);
  real.device.compute_by(arithmetic.get(), arithmetic.listener());
  train_on(real, faults, scenario, request, report);
  report.compared = real.transport.compared();
  report.mismatches = real.transport.mismatches();
  report.audit = arithmetic.audited();
  return report;
}

}  // namespace seeksim::harness
