#include "harness/export/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "harness/export/dtype_name.h"
#include "harness/export/pickle_writer.h"
#include "harness/export/torch_dump.h"
#include "harness/input/files.h"
#include "harness/input/json_text.h"

namespace seeksim::harness {
namespace {

using runtime::CommHeader;
using runtime::ElementType;
using runtime::FlightDump;
using runtime::OpKind;
using runtime::Record;
using runtime::RecordState;

constexpr const char* kVersion = "2.10";  // of PyTorch's format

// Two ranks move it between them, though here every operation of a communicator has a number.
bool is_p2p(const runtime::Op& op) {
  return op.kind == OpKind::send || op.kind == OpKind::recv || op.kind == OpKind::send_activation ||
         op.kind == OpKind::send_gradient || op.kind == OpKind::tied_gradient;
}

std::string profiling_name(const runtime::Op& op) {
  if (op.kind == OpKind::send || (op.kind == OpKind::send_activation && op.peer >= 0))
    return fmt::format("nccl:send {}->{}", op.rank, op.peer);
  if (op.kind == OpKind::recv) return fmt::format("nccl:recv {}<-{}", op.rank, op.peer);
  return fmt::format("nccl:{}", name(op.kind));
}

const char* pytorch_state(const Record& record) {
  if (record.state == RecordState::completed) return "completed";
  return record.started_ns >= 0 ? "started" : "scheduled";
}

Json time_or_null(TimeNs ns) { return ns < 0 ? Json(nullptr) : Json(ns); }

// "file:line", as call sites are written.
Json frames_of(const runtime::Op& op) {
  const std::string site = op.site;
  const std::size_t colon = site.rfind(':');
  if (colon == std::string::npos) return Json::array();
  return Json::array(
      {{{"name", name(op.kind)}, {"filename", site.substr(0, colon)}, {"line", std::atoi(site.c_str() + colon + 1)}}});
}

Json entry_json(const Record& r, const CommHeader* comm, std::size_t record_id, std::size_t pg_id) {
  const bool p2p = is_p2p(r.op), over = r.state == RecordState::completed;
  Json entry;
  entry["record_id"] = record_id;
  entry["pg_id"] = pg_id;
  entry["process_group"] = {comm != nullptr ? std::to_string(comm->id) : "0",
                            std::string(comm != nullptr ? name(comm->axis) : "world")};
  entry["collective_seq_id"] = p2p ? 0 : r.op.sequence;
  entry["p2p_seq_id"] = p2p ? r.op.sequence : 0;
  entry["op_id"] = r.op.sequence;
  entry["profiling_name"] = profiling_name(r.op);
  entry["time_created_ns"] = r.enqueued_ns;
  entry["time_discovered_started_ns"] = time_or_null(r.started_ns);
  entry["time_discovered_completed_ns"] = over ? Json(r.ended_ns) : Json(nullptr);
  if (over && r.started_ns >= 0) entry["duration_ms"] = double(r.ended_ns - r.started_ns) / 1e6;
  entry["timeout_ms"] = comm != nullptr ? comm->timeout_ns / 1'000'000 : 0;
  entry["input_sizes"] = Json::array({Json::array({r.payload.count})});
  entry["input_dtypes"] = {dtype_name(r.payload.type)};
  entry["output_sizes"] = entry["input_sizes"];
  entry["output_dtypes"] = entry["input_dtypes"];
  entry["state"] = pytorch_state(r);
  entry["is_p2p"] = p2p;
  entry["retired"] = r.ended_ns >= 0 || r.state == RecordState::timed_out;
  entry["frames"] = frames_of(r.op);
  entry["seeksim"] = {{"kind", name(r.op.kind)},
                      {"phase", name(r.op.phase)},
                      {"axis", name(r.op.axis)},
                      {"epoch", r.op.epoch},
                      {"peer", r.op.peer},
                      {"step", r.op.step},
                      {"micro_batch", r.op.micro_batch},
                      {"layer", r.op.layer},
                      {"tensor", r.op.tensor},
                      {"bytes", r.op.bytes},
                      {"in", {r.payload.from, r.payload.from_offset}},
                      {"out", {r.payload.to, r.payload.to_offset}},
                      {"state", name(r.state)},
                      {"ended_ns", time_or_null(r.ended_ns)},
                      {"result", r.result},
                      {"fault_rule", r.rule}};
  return entry;
}

Json ballot_json(const runtime::Ballot& b) {
  Json progress = Json::array();
  for (const runtime::CommProgress& p : b.progress) {
    if (p.id != 0) progress.push_back({p.id, p.last_joined});
  }
  return {{"ok", b.ok},
          {"error", int(b.error)},
          {"last_committed", b.last_committed},
          {"last_joined", b.last_joined},
          {"stuck_in", b.stuck_in},
          {"stuck_sequence", b.stuck_sequence},
          {"stuck_kind", int(b.stuck_kind)},
          {"stuck_meaning", b.stuck_meaning},
          {"missing_peer", b.missing_peer},
          {"missing_is_sender", b.missing_is_sender},
          {"joined_ns", b.joined_ns},
          {"detected_ns", b.detected_ns},
          {"words", b.words},
          {"progress", progress}};
}

// What a group has done: the last operation enqueued, started, completed.
Json status_of(const FlightDump& dump, const CommHeader& comm) {
  std::uint64_t enqueued = 0, started = 0, completed = 0;
  for (const Record& r : dump.records) {
    if (r.comm != comm.handle) continue;
    enqueued = std::max(enqueued, r.op.sequence);
    if (r.started_ns >= 0) started = std::max(started, r.op.sequence);
    if (r.state == RecordState::completed) completed = std::max(completed, r.op.sequence);
  }
  return {{"last_enqueued_collective", enqueued},
          {"last_started_collective", started},
          {"last_completed_collective", completed}};
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = "[";
  for (const int rank : ranks) text += (text.size() > 1 ? ", " : "") + std::to_string(rank);
  return text + "]";
}

}  // namespace

Json to_json(const FlightDump& dump, const FlightHeader& header) {
  Json json;
  json["version"] = kVersion;
  json["pg_config"] = Json::object();
  json["pg_status"] = Json::object();
  Json comms = Json::object();
  for (std::size_t i = 0; i < dump.comms.size(); ++i) {
    const CommHeader& comm = dump.comms[i];
    const std::string id = std::to_string(comm.id);
    json["pg_config"][id] = {{"name", id}, {"desc", name(comm.axis)}, {"ranks", ranks_text(comm.members)}};
    json["pg_status"][std::to_string(i)] = status_of(dump, comm);
    comms[id] = {{"epoch", comm.epoch}, {"created_ns", comm.created_ns}, {"timeout_ns", comm.timeout_ns}};
  }
  json["entries"] = Json::array();
  for (std::size_t i = 0; i < dump.records.size(); ++i) {
    const Record& record = dump.records[i];
    std::size_t pg = dump.comms.size();
    for (std::size_t c = 0; c < dump.comms.size(); ++c) {
      if (dump.comms[c].handle == record.comm) pg = c;
    }
    const CommHeader* comm = pg < dump.comms.size() ? &dump.comms[pg] : nullptr;
    json["entries"].push_back(entry_json(record, comm, i, pg));
  }
  json["nccl_comm_state"] = Json::object();
  json["seeksim"] = {{"run", header.run},
                     {"attempt", header.attempt},
                     {"rank", dump.rank},
                     {"incarnation", header.incarnation},
                     {"host", header.host},
                     {"device_uuid", header.device},
                     {"clock_offset_ns", 0},
                     {"epoch", dump.epoch},
                     {"silent", dump.silent},
                     {"comms", comms},
                     {"ballot", dump.ballot ? ballot_json(*dump.ballot) : Json(nullptr)}};
  return json;
}

void write_dumps(const std::string& folder, const Scenario& scenario, const RunRecord& run) {
  make_folder(folder, "--flight-recorder");
  make_folder(folder + "/torch", "--flight-recorder");
  const int per_node = scenario.world.ranks_per_node;
  for (const FlightDump& dump : run.detection.dumps) {
    if (dump.gone) continue;
    FlightHeader header;
    header.run = scenario.name;
    header.host = fmt::format("node{}", dump.rank / per_node);
    header.device = fmt::format("sim-{}-{}", dump.rank / per_node, dump.rank % per_node);
    const Json json = to_json(dump, header);
    write_file(fmt::format("{}/nccl_trace_rank_{}.json", folder, dump.rank), harness::dump(json));
    write_file(fmt::format("{}/torch/nccl_trace_rank_{}", folder, dump.rank), pickled(torch_form(dump, json)));
  }
}

Json analysis_json(const runtime::Analysis& a) {
  Json chain = Json::array();
  for (const runtime::WaitEdge& edge : a.wait_for_chain) {
    chain.push_back({{"rank", edge.rank},
                     {"comm", edge.comm},
                     {"axis", name(edge.axis)},
                     {"comm_seq", edge.sequence},
                     {"op", name(edge.op)},
                     {"waits_for", edge.waits_for}});
  }
  Json links = Json::array();
  for (const auto& [from, to] : a.diagnosis.links) links.push_back(fmt::format("{}->{}", from, to));
  Json divergent = nullptr;
  if (a.first_divergent) {
    divergent = {
        {"tensor", a.first_divergent->tensor}, {"rank", a.first_divergent->rank}, {"step", a.first_divergent->step}};
  }
  return {{"verdict", name(a.diagnosis.verdict)},
          {"text", a.diagnosis.text},
          {"epoch", a.epoch},
          {"comm", a.comm == 0 ? Json(nullptr) : Json(a.comm)},
          {"axis", name(a.axis)},
          {"comm_seq", a.comm_seq},
          {"culprit_ranks", a.diagnosis.culprits},
          {"links", links},
          {"victims", a.victims},
          {"missing", a.missing},
          {"match", name(a.match)},
          {"first_divergent", divergent},
          {"wait_for_chain", chain},
          {"chain", a.chain}};
}

}  // namespace seeksim::harness
