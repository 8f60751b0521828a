// NcclTransport: how communicators are made, all members together: from a fresh unique id, or from another
// communicator.
#include "runtime/backend/gpu/nccl_transport.h"

#ifdef SEEKSIM_NCCL

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

namespace seeksim::runtime {
namespace {

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

}  // namespace

Comm NcclTransport::create(const Op& op, const CommSpec& spec, TimeNs deadline) {
  const Comm side = side_.create(op, spec, deadline);  // all members are there, and agree on who they are
  try {
    const ncclUniqueId id = share_id(op, side, spec, deadline);
    const auto place = std::find(spec.members.begin(), spec.members.end(), rank_) - spec.members.begin();
    ncclConfig_t config = non_blocking();
    ncclComm_t comm = nullptr;
    const ncclResult_t made = nccl_.comm_init(&comm, int(spec.members.size()), id, int(place), &config);
    return keep(op, comm, side, spec.epoch, spec.members, made, deadline);
  } catch (...) {
    leave(side);
    throw;
  }
}

void NcclTransport::leave(Comm side) {
  const Comm alone[] = {side};
  side_.abort(alone);
}

// From the first member to all: a fresh one for each communicator, so that no rank of an earlier epoch can come in.
ncclUniqueId NcclTransport::share_id(const Op& op, Comm side, const CommSpec& spec, TimeNs deadline) {
  ncclUniqueId id{};
  const bool first = spec.members.front() == rank_;
  if (first) {
    if (const ncclResult_t result = nccl_.get_unique_id(&id); result != ncclSuccess)
      throw SeamError(error_kind(result_of(result)), op, "NCCL has no unique id to give");
  }
  // The device's, which keeps it as long as a queue may use it: this wait may be given up before the message has ended.
  const BufferPtr memory = device_.allocate_in(Space::host, sizeof id, MemoryTag::communication, "unique id");
  std::memcpy(memory->data, &id, sizeof id);
  std::vector<Piece> pieces;
  for (const int member : spec.members) {
    if (first ? member != rank_ : member == spec.members.front())
      pieces.push_back({member, first, memory.get(), 0, sizeof id, nullptr, ElementType::bytes});
  }
  Op message = op;
  message.sequence = 1;
  message.bytes = sizeof id;
  message.tensor = memory->name;
  Queue& queue = device_.host_queue();
  if (const CommResult result = side_.exchange(queue, side, message, pieces, DiesAt::never);
      result != CommResult::success)
    throw SeamError(error_kind(result), op, "the unique id cannot be sent");
  switch (device_.wait(queue.record(), deadline, spec.epoch)) {
    case WaitResult::timed_out:
      throw SeamError(ErrorKind::timeout, op, "the unique id of a communicator did not come");
    case WaitResult::revoked:
      throw SeamError(ErrorKind::revoked, op, "while the unique id of a communicator was awaited");
    default:
      std::memcpy(&id, memory->data, sizeof id);
      return id;
  }
}

// Until NCCL has connected, or not.
Comm NcclTransport::keep(const Op& op, ncclComm_t comm, Comm side, std::uint32_t epoch, std::vector<int> members,
                         ncclResult_t made, TimeNs deadline) {
  ncclResult_t state = comm == nullptr && made == ncclSuccess ? ncclInternalError : made;
  const auto revoked = [&] { return signals_.revoked >= std::int64_t(epoch); };
  const auto over = [&] {
    if (state == ncclInProgress && comm != nullptr && nccl_.async_error(comm, &state) != ncclSuccess)
      state = ncclInternalError;
    return state != ncclInProgress || revoked();
  };
  bool in_time = loop_.until(deadline, over);
  if (state == ncclSuccess && members.size() > 1 && !revoked()) {
    const auto me = std::find(members.begin(), members.end(), rank_) - members.begin();
    state = first_messages_.send(comm, int(members.size()), int(me));
    in_time = loop_.until(deadline, over);
    if (state == ncclSuccess)
      in_time =
          loop_.until(deadline, [&] { return (state = first_messages_.arrived()) != ncclInProgress || revoked(); });
  }
  if (state != ncclSuccess) {
    if (comm != nullptr) give_up_half_made(comm);
    if (revoked()) throw SeamError(ErrorKind::revoked, op, "while NCCL connected");
    if (!in_time) throw SeamError(ErrorKind::timeout, op, "NCCL did not connect in time");
    if (state == ncclInvalidUsage)  // no mismatch of ours: the members have agreed on who they are
      throw SeamError(ErrorKind::device_lost, op, "NCCL made no communicator: do two ranks share one GPU?");
    throw SeamError(error_kind(result_of(state)), op,
                    fmt::format("NCCL made no communicator: {}", name(result_of(state))));
  }
  Held& held = comms_.emplace_back();
  held.comm = comm;
  held.side = side;
  held.epoch = epoch;
  held.members = std::move(members);
  return {std::uint32_t(comms_.size())};
}

// Its abort may wait for the whole device, on which operations of others may hang: then it goes with them, in one
// group.
void NcclTransport::give_up_half_made(ncclComm_t comm) {
  half_made_.push_back(comm);
  const bool alone =
      std::all_of(comms_.begin(), comms_.end(), [](const Held& held) { return held.state == Held::State::dead; });
  if (alone) abort({});
}

// NCCL makes a child in a thread of its own. Its calls return ncclSuccess all the same; meanwhile the parent is in
// progress, and the child's handle is null.
void NcclTransport::wait_for_child(const Op& op, const Held& parent, ncclResult_t made, TimeNs deadline) {
  ncclResult_t state = made == ncclSuccess ? ncclInProgress : made;
  const auto revoked = [&] { return signals_.revoked >= std::int64_t(parent.epoch); };
  const bool in_time = loop_.until(deadline, [&] {
    if (state == ncclInProgress && nccl_.async_error(parent.comm, &state) != ncclSuccess) state = ncclInternalError;
    return state != ncclInProgress || revoked();
  });
  if (state == ncclSuccess) return;
  if (revoked()) throw SeamError(ErrorKind::revoked, op, "while NCCL connected");
  if (!in_time) throw SeamError(ErrorKind::timeout, op, "NCCL did not connect in time");
  throw SeamError(error_kind(result_of(state)), op,
                  fmt::format("NCCL made no communicator: {}", name(result_of(state))));
}

// NCCL's thread writes the handle, maybe after nobody waits for it any more. So its place lives as long as this does.
ncclComm_t NcclTransport::taken(ncclComm_t& child) {
  return std::atomic_ref(child).exchange(nullptr, std::memory_order_acq_rel);
}

Comm NcclTransport::split(const Op& op, Comm parent, int color, int key, TimeNs deadline) {
  Held* const held = find(parent);
  if (held == nullptr || held->state != Held::State::ready)
    throw SeamError(error_kind(CommResult::invalid_usage), op, "the communicator that is to be split is not usable");
  const Comm side = side_.split(op, held->side, color, key, deadline);
  ncclConfig_t config = non_blocking();
  ncclComm_t& child = children_.emplace_back();
  const ncclResult_t made = nccl_.comm_split(held->comm, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &child, &config);
  if (color < 0) {
    wait_for_child(op, *held, made, deadline);
    return {};
  }
  const std::span<const int> members = side_.members(side);
  try {
    wait_for_child(op, *held, made, deadline);
    return keep(op, taken(child), side, held->epoch, {members.begin(), members.end()}, ncclSuccess, deadline);
  } catch (...) {
    leave(side);
    throw;
  }
}

// NCCL wants the ranks to leave out as positions, ascending and each once, alike on all survivors.
Comm NcclTransport::shrink(const Op& op, Comm parent, std::span<const int> exclude, TimeNs deadline) {
  Held* const held = find(parent);
  if (held == nullptr)
    throw SeamError(error_kind(CommResult::invalid_usage), op, "the communicator that is to shrink is gone");
  const Comm side = side_.shrink(op, held->side, exclude, deadline);
  std::vector<int> places, members;
  for (std::size_t i = 0; i < held->members.size(); ++i) {
    const int member = held->members[i];
    if (std::find(exclude.begin(), exclude.end(), member) != exclude.end())
      places.push_back(int(i));
    else
      members.push_back(member);
  }
  ncclConfig_t config = non_blocking();
  ncclComm_t& child = children_.emplace_back();
  const ncclResult_t made =
      nccl_.comm_shrink(held->comm, places.data(), int(places.size()), &child, &config, NCCL_SHRINK_ABORT);
  try {
    wait_for_child(op, *held, made, deadline);
    return keep(op, taken(child), side, held->epoch, std::move(members), ncclSuccess, deadline);
  } catch (...) {
    leave(side);
    throw;
  }
}

}  // namespace seeksim::runtime

#endif
