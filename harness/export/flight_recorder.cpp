#include "harness/export/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include <nlohmann/json.hpp>

#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"

namespace seeksim::harness {
namespace {

using runtime::CommHeader;
using runtime::ElementType;
using runtime::FlightDump;
using runtime::OpKind;
using runtime::Record;
using runtime::RecordState;

constexpr const char* kVersion = "2.10";  // of PyTorch's format

// ---- writing -------------------------------------------------------------------------------------------------------

// The names of PyTorch's c10::ScalarType.
const char* dtype_name(ElementType type) {
  switch (type) {
    case ElementType::f32:
      return "Float";
    case ElementType::f16:
      return "Half";
    case ElementType::bf16:
      return "BFloat16";
    case ElementType::i32:
      return "Int";
    case ElementType::i64:
      return "Long";
    default:
      return "Byte";
  }
}

ElementType dtype_of(const std::string& name) {
  for (const ElementType type :
       {ElementType::f32, ElementType::f16, ElementType::bf16, ElementType::i32, ElementType::i64}) {
    if (name == dtype_name(type)) return type;
  }
  return ElementType::bytes;
}

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

// ---- reading -------------------------------------------------------------------------------------------------------

class DumpReader {
 public:
  DumpReader(const std::string& file, ReadDumps& into) : file_(file), into_(into) {}

  FlightDump read(const Json& json) {
    FlightDump dump;
    const Json own = json.value("seeksim", Json::object());
    dump.rank = own.contains("rank") ? own.at("rank").get<int>() : rank_of_name();
    dump.epoch = own.value("epoch", 0u);
    dump.silent = own.value("silent", false);
    for (const auto& [id, pg] : json.at("pg_config").items()) read_comm(id, pg, own, dump);
    for (const Json& entry : json.at("entries")) dump.records.push_back(read_entry(entry, dump));
    if (own.contains("ballot") && !own.at("ballot").is_null()) dump.ballot = read_ballot(own.at("ballot"));
    return dump;
  }

 private:
  const char* keep(std::string text) {
    into_.strings.push_back(std::make_unique<std::string>(std::move(text)));
    return into_.strings.back()->c_str();
  }

  // PyTorch's files carry the rank in their name only: its last number.
  int rank_of_name() const {
    std::size_t end = file_.find_last_of("0123456789");
    if (end == std::string::npos) throw BadInput(file_, "does not say whose dump it is", "End its name in the rank.");
    std::size_t begin = end;
    while (begin > 0 && std::isdigit(static_cast<unsigned char>(file_[begin - 1])) != 0) --begin;
    return std::stoi(file_.substr(begin, end - begin + 1));
  }

  void read_comm(const std::string& id, const Json& pg, const Json& own, FlightDump& dump) {
    CommHeader comm;
    comm.handle = std::uint32_t(dump.comms.size()) + 1;
    comm.id = std::strtoull(id.c_str(), nullptr, 10);
    const Json details = own.contains("comms") ? own.at("comms").value(id, Json::object()) : Json::object();
    comm.epoch = details.value("epoch", dump.epoch);
    comm.timeout_ns = details.value("timeout_ns", TimeNs(0));
    const std::string desc = pg.value("desc", "world");
    for (int axis = 0; axis < int(runtime::Axis::count_); ++axis) {
      if (name(runtime::Axis(axis)) == desc) comm.axis = runtime::Axis(axis);
    }
    const Json& ranks = pg.at("ranks");  // PyTorch writes the list as text
    comm.members = (ranks.is_string() ? Json::parse(ranks.get<std::string>()) : ranks).get<std::vector<int>>();
    dump.comms.push_back(std::move(comm));
  }

  Record read_entry(const Json& entry, const FlightDump& dump) {
    Record r;
    const Json own = entry.value("seeksim", Json::object());
    const std::string group = entry.at("process_group").at(0).get<std::string>();
    for (const CommHeader& comm : dump.comms) {
      if (std::to_string(comm.id) == group) r.comm = comm.handle, r.op.axis = comm.axis;
    }
    const bool p2p = entry.value("is_p2p", false);
    r.op.sequence = entry.at(p2p ? "p2p_seq_id" : "collective_seq_id").get<std::uint64_t>();
    const std::string profiling = entry.at("profiling_name").get<std::string>();
    const std::string plain = profiling.substr(profiling.find(':') + 1, profiling.find(' ') - profiling.find(':') - 1);
    r.op.kind = runtime::op_kind(own.value("kind", plain));
    r.op.rank = dump.rank;
    r.op.peer = own.value("peer", -1);
    r.op.epoch = own.value("epoch", dump.epoch);
    r.op.step = own.value("step", std::int64_t(-1));
    r.op.micro_batch = own.value("micro_batch", -1);
    r.op.layer = own.value("layer", -1);
    r.op.phase = runtime::phase(own.value("phase", "init"));
    r.op.tensor = keep(own.value("tensor", ""));
    r.payload.type =
        dtype_of(entry.at("input_dtypes").empty() ? "" : entry.at("input_dtypes").at(0).get<std::string>());
    r.payload.count = count_of(entry.at("input_sizes"));
    r.op.bytes = own.value("bytes", r.payload.count * runtime::size_of(r.payload.type));
    r.enqueued_ns = entry.at("time_created_ns").get<TimeNs>();
    r.started_ns = time_of(entry, "time_discovered_started_ns");
    r.ended_ns = own.contains("ended_ns") ? time_of(own, "ended_ns") : time_of(entry, "time_discovered_completed_ns");
    r.state = state_of(entry, own);
    r.result = own.value("result", 0);
    r.rule = own.value("fault_rule", 0u);
    return r;
  }

  static TimeNs time_of(const Json& from, const char* key) {
    return from.contains(key) && from.at(key).is_number() ? from.at(key).get<TimeNs>() : -1;
  }

  static std::uint64_t count_of(const Json& sizes) {
    std::uint64_t count = 0;
    for (const Json& tensor : sizes) {
      std::uint64_t n = 1;
      for (const Json& extent : tensor) n *= extent.get<std::uint64_t>();
      count += n;
    }
    return count;
  }

  static RecordState state_of(const Json& entry, const Json& own) {
    const std::string word = own.value("state", "");
    for (const RecordState state : {RecordState::enqueued, RecordState::started, RecordState::completed,
                                    RecordState::aborted, RecordState::failed, RecordState::timed_out}) {
      if (word == name(state)) return state;
    }
    const std::string theirs = entry.at("state").get<std::string>();
    if (theirs == "completed") return RecordState::completed;
    if (entry.value("retired", false)) return RecordState::timed_out;
    return theirs == "started" ? RecordState::started : RecordState::enqueued;
  }

  static runtime::Ballot read_ballot(const Json& json) {
    runtime::Ballot b;
    b.ok = json.at("ok").get<bool>();
    b.error = runtime::ErrorKind(json.at("error").get<int>());
    b.last_committed = json.at("last_committed").get<std::int64_t>();
    b.last_joined = json.at("last_joined").get<std::uint64_t>();
    b.stuck_in = json.at("stuck_in").get<std::uint64_t>();
    b.stuck_sequence = json.at("stuck_sequence").get<std::uint64_t>();
    b.stuck_kind = OpKind(json.at("stuck_kind").get<int>());
    b.stuck_meaning = json.at("stuck_meaning").get<std::int64_t>();
    b.missing_peer = json.at("missing_peer").get<int>();
    b.missing_is_sender = json.at("missing_is_sender").get<bool>();
    b.joined_ns = json.at("joined_ns").get<TimeNs>();
    b.detected_ns = json.at("detected_ns").get<TimeNs>();
    b.words = json.value("words", b.words);
    std::size_t n = 0;
    for (const Json& p : json.at("progress")) {
      if (n < b.progress.size()) b.progress[n++] = {p.at(0).get<std::uint64_t>(), p.at(1).get<std::uint64_t>()};
    }
    return b;
  }

  const std::string& file_;
  ReadDumps& into_;
};

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

void read_dump(const Json& json, const std::string& file, ReadDumps& into) {
  try {
    into.dumps.push_back(DumpReader(file, into).read(json));
  } catch (const Json::exception& error) {
    throw BadInput(file, fmt::format("is no flight recorder dump: {}", error.what()),
                   "Dumps are JSON with the keys of PyTorch's flight recorder.");
  }
}

void add_missing_ranks(ReadDumps& dumps) {
  std::set<int> here, named;
  std::uint32_t epoch = 0;
  for (const FlightDump& dump : dumps.dumps) {
    here.insert(dump.rank);
    epoch = std::max(epoch, dump.epoch);
    for (const CommHeader& comm : dump.comms) {
      if (comm.epoch == dump.epoch) named.insert(comm.members.begin(), comm.members.end());
    }
  }
  for (const int rank : named) {
    if (here.contains(rank)) continue;
    FlightDump gone;
    gone.rank = rank;
    gone.gone = true;
    gone.epoch = epoch;
    dumps.dumps.push_back(std::move(gone));
  }
}

void write_dumps(const std::string& folder, const Scenario& scenario, const RunRecord& run) {
  make_folder(folder, "--flight-recorder");
  const int per_node = scenario.world.ranks_per_node;
  for (const FlightDump& dump : run.detection.dumps) {
    if (dump.gone) continue;
    FlightHeader header;
    header.run = scenario.name;
    header.host = fmt::format("node{}", dump.rank / per_node);
    header.device = fmt::format("sim-{}-{}", dump.rank / per_node, dump.rank % per_node);
    write_file(fmt::format("{}/nccl_trace_rank_{}.json", folder, dump.rank), harness::dump(to_json(dump, header)));
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

Json analyse_folder(const std::string& folder) {
  ReadDumps dumps;
  for (const std::string& entry : list_folder(folder)) {
    if (entry.find("rank") == std::string::npos) continue;
    const std::string file = folder + '/' + entry;
    const Json json = Json::parse(read_file(file, std::uint64_t(1) << 30), nullptr, false);
    if (json.is_discarded()) throw BadInput(file, "is not JSON", "");
    read_dump(json, file, dumps);
  }
  if (dumps.dumps.empty()) {
    throw BadInput(folder, "holds no dump of a flight recorder",
                   "They are named nccl_trace_rank_0.json and so on; `seeksim run --flight-recorder DIR` writes them.");
  }
  add_missing_ranks(dumps);
  return analysis_json(runtime::analyse(dumps.dumps));
}

}  // namespace seeksim::harness
