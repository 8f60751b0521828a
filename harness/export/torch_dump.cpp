#include "harness/export/torch_dump.h"

#include <fmt/format.h>

#include <algorithm>

#include <nlohmann/json.hpp>

namespace seeksim::harness {
namespace {

using runtime::CommHeader;
using runtime::FlightDump;
using runtime::Op;
using runtime::OpKind;

// PyTorch counts the members of a group from 0. Below zero: it is none.
std::ptrdiff_t place_in(const CommHeader& comm, int rank) {
  const auto found = std::find(comm.members.begin(), comm.members.end(), rank);
  return found == comm.members.end() ? -1 : found - comm.members.begin();
}

std::string torch_name(const Op& op, const CommHeader* comm) {
  const auto mine = comm == nullptr ? op.rank : place_in(*comm, op.rank);
  const auto peer = comm == nullptr ? op.peer : place_in(*comm, op.peer);
  const bool sends = op.kind == OpKind::send || op.kind == OpKind::send_activation;
  if (peer >= 0 && sends) return fmt::format("nccl:send {}->{}", mine, peer);
  if (peer >= 0 && op.kind == OpKind::recv) return fmt::format("nccl:recv {}<-{}", mine, peer);
  switch (op.kind) {
    case OpKind::all_reduce:
    case OpKind::broadcast:
    case OpKind::barrier:
      return fmt::format("nccl:{}", name(op.kind));
    default:
      return "nccl:all_to_all";
  }
}

}  // namespace

Json torch_form(const FlightDump& dump, Json json) {
  json.erase("seeksim");
  for (std::size_t i = 0; i < dump.records.size(); ++i) {
    const runtime::Record& record = dump.records[i];
    const auto comm = std::find_if(dump.comms.begin(), dump.comms.end(),
                                   [&](const CommHeader& one) { return one.handle == record.comm; });
    Json& entry = json["entries"][i];
    entry.erase("seeksim");
    entry["profiling_name"] = torch_name(record.op, comm == dump.comms.end() ? nullptr : &*comm);
    const std::string name = entry["profiling_name"];
    const bool p2p = name.starts_with("nccl:send ") || name.starts_with("nccl:recv ");
    entry["is_p2p"] = p2p;
    entry["collective_seq_id"] = p2p ? 0 : record.op.sequence;
    entry["p2p_seq_id"] = p2p ? record.op.sequence : 0;
  }
  return json;
}

}  // namespace seeksim::harness
