// Dumps that were written before, by seeksim or by PyTorch.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>
#include <set>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "harness/export/dtype_name.h"
#include "harness/export/flight_recorder.h"
#include "harness/input/problem.h"
#include "runtime/files/bounded_json.h"
#include "runtime/seams/bounded.h"

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

std::string shown(const Json& value) { return in_quotes(value.dump(-1, ' ', false, Json::error_handler_t::replace)); }

constexpr int kRanksMax = 1 << 20;
constexpr std::uint64_t kDumpBytesMax = std::uint64_t(256) << 20;

// Something in a dump that no program would have written.
struct WrongDump : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class Number>
Number whole(const Json& value, const char* what, Number least = std::numeric_limits<Number>::min(),
             Number most = std::numeric_limits<Number>::max()) {
  const auto number = runtime::whole_number<Number>(value, least, most);
  if (!number) throw WrongDump(fmt::format("{} is {}, no whole number from {} to {}", what, shown(value), least, most));
  return *number;
}
int rank_in(const Json& value, const char* what) { return whole<int>(value, what, 0, kRanksMax - 1); }

// The same of a key, where it is there.
template <class Number>
Number whole_at(const Json& object, const char* key, Number otherwise) {
  const auto found = object.find(key);
  return found == object.end() ? otherwise : whole<Number>(*found, key);
}

// A value of an enum that ends with count_.
template <class Enum>
Enum value_of(const Json& value, const char* what) {
  return Enum(whole<int>(value, what, 0, int(Enum::count_)));
}

class DumpReader {
 public:
  DumpReader(const std::string& file, ReadDumps& into) : file_(file), into_(into) {}

  FlightDump read(const Json& json) {
    FlightDump dump;
    const Json own = json.value("seeksim", Json::object());
    dump.rank = own.contains("rank") ? rank_in(own.at("rank"), "rank") : rank_of_name();
    dump.epoch = whole_at(own, "epoch", 0u);
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
    int rank = 0;
    const auto [stop, error] = std::from_chars(file_.data() + begin, file_.data() + end + 1, rank);
    if (error != std::errc() || rank >= kRanksMax)
      throw BadInput(file_, fmt::format("its name ends in a number that is no rank below {}", kRanksMax),
                     "End its name in the rank.");
    return rank;
  }

  void read_comm(const std::string& id, const Json& pg, const Json& own, FlightDump& dump) {
    CommHeader comm;
    comm.handle = std::uint32_t(dump.comms.size()) + 1;
    comm.id = std::strtoull(id.c_str(), nullptr, 10);
    const Json details = own.contains("comms") ? own.at("comms").value(id, Json::object()) : Json::object();
    comm.epoch = whole_at(details, "epoch", dump.epoch);
    comm.timeout_ns = whole_at(details, "timeout_ns", TimeNs(0));
    const std::string desc = pg.value("desc", "world");
    for (int axis = 0; axis < int(runtime::Axis::count_); ++axis) {
      if (name(runtime::Axis(axis)) == desc) comm.axis = runtime::Axis(axis);
    }
    const Json& ranks = pg.at("ranks");  // PyTorch writes the list as text
    const Json list = ranks.is_string() ? runtime::parse_bounded<Json>(ranks.get<std::string>(),
                                                                       {"a list of ranks", kDumpBytesMax, 1})
                                        : ranks;
    if (!list.is_array()) throw WrongDump(fmt::format("ranks are {}, no list", shown(ranks)));
    for (const Json& rank : list) comm.members.push_back(rank_in(rank, "a member's rank"));
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
    const char* const sequence = p2p ? "p2p_seq_id" : "collective_seq_id";
    r.op.sequence = whole<std::uint64_t>(entry.at(sequence), sequence);
    const std::string profiling = entry.at("profiling_name").get<std::string>();
    const std::string plain = profiling.substr(profiling.find(':') + 1, profiling.find(' ') - profiling.find(':') - 1);
    r.op.kind = runtime::op_kind(own.value("kind", plain));
    r.op.rank = dump.rank;
    r.op.peer = whole_at(own, "peer", -1);
    r.op.epoch = whole_at(own, "epoch", dump.epoch);
    r.op.step = whole_at(own, "step", std::int64_t(-1));
    r.op.micro_batch = whole_at(own, "micro_batch", -1);
    r.op.layer = whole_at(own, "layer", -1);
    r.op.phase = runtime::phase(own.value("phase", "init"));
    r.op.tensor = keep(own.value("tensor", ""));
    r.payload.type =
        dtype_of(entry.at("input_dtypes").empty() ? "" : entry.at("input_dtypes").at(0).get<std::string>());
    r.payload.count = count_of(entry.at("input_sizes"));
    r.op.bytes = whole_at(own, "bytes", there(runtime::product(r.payload.count, runtime::size_of(r.payload.type))));
    r.enqueued_ns = whole<TimeNs>(entry.at("time_created_ns"), "time_created_ns");
    r.started_ns = time_of(entry, "time_discovered_started_ns");
    r.ended_ns = own.contains("ended_ns") ? time_of(own, "ended_ns") : time_of(entry, "time_discovered_completed_ns");
    r.state = state_of(entry, own);
    r.result = whole_at(own, "result", r.result);
    r.rule = whole_at(own, "fault_rule", r.rule);
    return r;
  }

  static TimeNs time_of(const Json& from, const char* key) {
    return from.contains(key) && from.at(key).is_number() ? whole<TimeNs>(from.at(key), key) : -1;
  }

  static std::uint64_t there(std::optional<std::uint64_t> size) {
    if (!size) throw WrongDump("a tensor has more elements than memory has bytes");
    return *size;
  }

  static std::uint64_t count_of(const Json& sizes) {
    std::uint64_t count = 0;
    for (const Json& tensor : sizes) {
      std::uint64_t n = 1;
      for (const Json& extent : tensor) n = there(runtime::product(n, whole<std::uint64_t>(extent, "a size")));
      count = there(runtime::sum(count, n));
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
    const auto fill = [&](const char* key, auto& into) {
      into = whole<std::decay_t<decltype(into)>>(json.at(key), key);
    };
    b.error = value_of<runtime::ErrorKind>(json.at("error"), "error");
    fill("last_committed", b.last_committed);
    fill("last_joined", b.last_joined);
    fill("stuck_in", b.stuck_in);
    fill("stuck_sequence", b.stuck_sequence);
    b.stuck_kind = value_of<OpKind>(json.at("stuck_kind"), "stuck_kind");
    fill("stuck_meaning", b.stuck_meaning);
    fill("missing_peer", b.missing_peer);
    b.missing_is_sender = json.at("missing_is_sender").get<bool>();
    fill("joined_ns", b.joined_ns);
    fill("detected_ns", b.detected_ns);
    if (const auto words = json.find("words"); words != json.end()) {
      for (std::size_t i = 0; i < b.words.size(); ++i) b.words[i] = whole<std::int64_t>(words->at(i), "a word");
    }
    std::size_t n = 0;
    for (const Json& p : json.at("progress")) {
      if (n < b.progress.size())
        b.progress[n++] = {whole<std::uint64_t>(p.at(0), "progress"), whole<std::uint64_t>(p.at(1), "progress")};
    }
    return b;
  }

  const std::string& file_;
  ReadDumps& into_;
};

}  // namespace

void read_dump(const Json& json, const std::string& file, ReadDumps& into) {
  const auto refuse = [&](const char* why) {
    throw BadInput(file, fmt::format("is no flight recorder dump: {}", why),
                   "Dumps are JSON with the keys of PyTorch's flight recorder.");
  };
  try {
    into.dumps.push_back(DumpReader(file, into).read(json));
  } catch (const BadInput&) {
    throw;
  } catch (const Json::exception& error) {
    refuse(error.what());
  } catch (const std::runtime_error& wrong) {
    refuse(wrong.what());
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

}  // namespace seeksim::harness
