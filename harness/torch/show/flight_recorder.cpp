#include "harness/torch/show/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include <nlohmann/json.hpp>

#include "harness/export/pickle_writer.h"
#include "harness/input/files.h"

namespace seeksim::harness::torch {
namespace {

using pytorch::CallEntry;
using pytorch::CallState;
using pytorch::DType;
using pytorch::OpName;
using pytorch::RankRecord;

constexpr const char* kVersion = "2.10";  // of PyTorch's format

// PyTorch's names; all_gather and reduce_scatter as the operations of whole tensors, which is how frameworks call them.
std::string_view torch_name(OpName op) {
  switch (op) {
    case OpName::all_gather:
      return "_all_gather_base";
    case OpName::reduce_scatter:
      return "_reduce_scatter_base";
    default:
      return name(op);
  }
}

std::string_view torch_type(DType type) {
  switch (type) {
    case DType::fp32:
      return "Float";
    case DType::fp64:
      return "Double";
    case DType::fp16:
      return "Half";
    case DType::bf16:
      return "BFloat16";
    case DType::fp8_e4m3:
      return "Float8_e4m3fn";
    case DType::fp8_e5m2:
      return "Float8_e5m2";
    case DType::int8:
      return "Char";
    case DType::int16:
      return "Short";
    case DType::int32:
      return "Int";
    case DType::int64:
      return "Long";
    case DType::uint8:
      return "Byte";
    case DType::boolean:
      return "Bool";
    case DType::complex64:
      return "ComplexFloat";
    case DType::complex128:
      return "ComplexDouble";
    default:
      return "Undefined";
  }
}

// "[4,2] [3]" as [[4, 2], [3]].
Json sizes_of(const std::string& shapes) {
  Json all = Json::array();
  for (std::size_t at = shapes.find('['); at != std::string::npos; at = shapes.find('[', at + 1)) {
    Json one = Json::array();
    const char* from = shapes.data() + at + 1;
    const char* const end = shapes.data() + shapes.size();
    for (std::int64_t n = 0;;) {
      const auto [stop, error] = std::from_chars(from, end, n);
      if (error != std::errc()) break;
      one.push_back(n);
      if (stop == end || *stop != ',') break;
      from = stop + 1;
    }
    all.push_back(std::move(one));
  }
  return all;
}

// What a rank gets, where it gave tensors of these sizes: only those are recorded. Flat where a gather or a scatter
// makes them larger or smaller.
Json output_sizes_of(OpName op, const Json& given, std::size_t members) {
  if (op != OpName::all_gather && op != OpName::reduce_scatter) return given;
  Json all = Json::array();
  for (const Json& sizes : given) {
    std::int64_t numel = 1;
    for (const Json& n : sizes)
      if (__builtin_mul_overflow(numel, n.get<std::int64_t>(), &numel)) return given;
    const auto size = std::int64_t(std::max<std::size_t>(members, 1));
    if (op == OpName::all_gather && __builtin_mul_overflow(numel, size, &numel)) return given;
    all.push_back({op == OpName::all_gather ? numel : numel / size});
  }
  return all;
}

// "file:line function" lines, the innermost first, as PyTorch lists them.
Json frames_of(const std::string& stack) {
  Json frames = Json::array();
  for (std::size_t begin = 0; begin < stack.size();) {
    const std::size_t end = std::min(stack.find('\n', begin), stack.size());
    const std::string line = stack.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t space = line.find(' '), colon = line.rfind(':', space);
    if (colon == std::string::npos || line.find("/seeksim_torch/") < space) continue;  // our hooks are not the script's
    int number = 0;
    std::from_chars(line.data() + colon + 1, line.data() + line.size(), number);
    frames.push_back({{"name", space == std::string::npos ? "" : line.substr(space + 1)},
                      {"filename", line.substr(0, colon)},
                      {"line", number}});
  }
  return frames;
}

Json time_or_null(std::int64_t ns) { return ns > 0 ? Json(ns) : Json(nullptr); }

std::string operation_of(const CallEntry& call, const GroupId& group, int rank) {
  const auto place = [&](int launch_rank) {
    return std::find(group.ranks.begin(), group.ranks.end(), launch_rank) - group.ranks.begin();
  };
  if (call.op == OpName::send) return fmt::format("nccl:send {}->{}", place(rank), place(call.peer));
  if (call.op == OpName::recv) return fmt::format("nccl:recv {}<-{}", place(rank), place(call.peer));
  return fmt::format("nccl:{}", torch_name(call.op));
}

Json entry_of(const RankRecord& record, const CallEntry& call, std::size_t index) {
  const GroupId group = call.group < 0 ? GroupId{} : group_of(record, call.group);
  const bool p2p = call.seq == 0, over = call.state == CallState::finished;
  const Json sizes = sizes_of(record.text(call.shape));
  Json types = Json::array();
  for (std::size_t i = 0; i < sizes.size(); ++i) types.push_back(torch_type(call.dtype));
  Json entry;
  entry["record_id"] = index;
  entry["pg_id"] = std::max(call.group, 0);
  entry["process_group"] = {group.name, ""};
  entry["collective_seq_id"] = call.seq;
  entry["p2p_seq_id"] = 0;
  entry["op_id"] = index + 1;
  entry["profiling_name"] = operation_of(call, group, record.now.rank);
  entry["time_created_ns"] = call.created_ns;
  entry["time_discovered_started_ns"] = time_or_null(call.started_ns);
  entry["time_discovered_completed_ns"] = over ? time_or_null(call.finished_ns) : Json(nullptr);
  if (over && call.started_ns > 0) entry["duration_ms"] = double(call.finished_ns - call.started_ns) * 1e-6;
  entry["timeout_ms"] = 0;
  entry["input_sizes"] = sizes;
  entry["input_dtypes"] = types;
  entry["output_sizes"] = output_sizes_of(call.op, sizes, group.ranks.size());
  entry["output_dtypes"] = types;
  entry["state"] = over ? "completed" : call.state == CallState::created ? "scheduled" : "started";
  entry["is_p2p"] = p2p;
  entry["retired"] = over || call.state == CallState::failed;
  entry["frames"] = frames_of(record.text(call.stack));
  return entry;
}

// Whether the rank has brought the call to its group: it started, or it stands behind one that has not ended. A rank
// that a fault holds on its way has written its call down, and has not.
bool has_come(const RankRecord& record, std::size_t index) {
  const CallEntry& call = record.calls[index];
  if (call.state != CallState::created) return true;
  return std::any_of(record.calls.begin(), record.calls.begin() + std::ptrdiff_t(index), [&](const CallEntry& before) {
    return before.group == call.group && before.state == CallState::started;
  });
}

Json status_of(const RankRecord& record, std::int32_t group) {
  std::uint64_t enqueued = 0, started = 0, completed = 0;
  for (std::size_t i = 0; i < record.calls.size(); ++i) {
    const CallEntry& call = record.calls[i];
    if (call.group != group || !has_come(record, i)) continue;
    enqueued = std::max(enqueued, call.seq);
    if (call.state != CallState::created) started = std::max(started, call.seq);
    if (call.state == CallState::finished) completed = std::max(completed, call.seq);
  }
  return {{"last_enqueued_collective", enqueued},
          {"last_started_collective", started},
          {"last_completed_collective", completed}};
}

}  // namespace

Json flight_dump(const RankRecord& record) {
  Json json;
  json["version"] = kVersion;
  json["pg_config"] = Json::object();
  json["pg_status"] = Json::object();
  for (std::size_t i = 0; i < record.groups.size(); ++i) {
    const GroupId group = group_of(record, std::int32_t(i));
    json["pg_config"][group.name] = {{"name", group.name}, {"desc", ""}, {"ranks", Json(group.ranks).dump()}};
    json["pg_status"][std::to_string(i)] = status_of(record, std::int32_t(i));
  }
  json["entries"] = Json::array();
  for (std::size_t i = 0; i < record.calls.size(); ++i)
    if (has_come(record, i)) json["entries"].push_back(entry_of(record, record.calls[i], i));
  json["nccl_comm_state"] = Json::object();
  return json;
}

void write_flight_dumps(const std::string& folder, const TorchRun& run) {
  make_folder(folder, "--flight-recorder");
  for (const RankRun& rank : run.ranks) {
    if (rank.record)
      write_file(fmt::format("{}/nccl_trace_rank_{}", folder, rank.rank), pickled(flight_dump(*rank.record)));
  }
}

}  // namespace seeksim::harness::torch
