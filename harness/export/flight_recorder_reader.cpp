// Dumps that were written before, by seeksim or by PyTorch.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <set>

#include <nlohmann/json.hpp>

#include "harness/export/dtype_name.h"
#include "harness/export/flight_recorder.h"
#include "harness/input/files.h"
#include "harness/input/problem.h"

namespace seeksim::harness {
namespace {

using runtime::CommHeader;
using runtime::ElementType;
using runtime::FlightDump;
using runtime::OpKind;
using runtime::Record;
using runtime::RecordState;

ElementType dtype_of(const std::string& name) {
  for (const ElementType type :
       {ElementType::f32, ElementType::f16, ElementType::bf16, ElementType::i32, ElementType::i64}) {
    if (name == dtype_name(type)) return type;
  }
  return ElementType::bytes;
}

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
