// The functions of nccl.h that are used, and the groups that they come in.
#include <nccl.h>
#include <sys/random.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

#include "tests/standin/communicator.h"
#include "tests/standin/memory.h"

struct ncclComm {};  // only its address counts

namespace seeksim::standin {
namespace {

// Handles are never given twice, so that a late use of one is found.
struct Handles {
  std::mutex mutex;
  std::map<ncclComm_t, std::shared_ptr<Comm>> all;
};
Handles& handles() {
  static Handles* const kHandles = new Handles;
  return *kHandles;
}

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<std::pair<std::shared_ptr<Comm>, Work>>
      work;  // one of each communicator, in the order of the first calls
  std::vector<ncclComm_t> aborted;
  std::vector<std::shared_ptr<Comm>> touched;
};
thread_local Group group;

// Flags first, on all; then what frees memory, which waits for the device.
void carry_out_aborts(const std::vector<ncclComm_t>& aborted) {
  std::vector<std::shared_ptr<Comm>> comms;
  for (ncclComm_t const handle : aborted) {
    comms.push_back(comm_of(handle));
    forget(handle);
    if (comms.back() != nullptr) comms.back()->stop();
  }
  for (const auto& comm : comms) {
    if (comm != nullptr) comm->join();
  }
  wait_for_the_device("ncclCommAbort");
}

ncclResult_t end_of_group() {
  const Group ended = std::exchange(group, {});
  if (ended.error != ncclSuccess) {
    for (const auto& comm : ended.touched) {
      if (!comm->blocking()) comm->fail(ended.error);
    }
    return ended.error;
  }
  if (!ended.aborted.empty()) carry_out_aborts(ended.aborted);
  ncclResult_t result = ncclSuccess;
  for (const auto& [comm, work] : ended.work) {
    if (const ncclResult_t launched = comm->launch(work); launched != ncclSuccess) result = launched;
  }
  return result;
}

// A call that may stand in a group or alone.
template <class Call>
ncclResult_t in_group(const Call& call) {
  ++group.depth;
  const ncclResult_t result = call();
  if (result != ncclSuccess) group.error = result;  // the last one wins
  if (--group.depth > 0) return result;
  return end_of_group();
}

ncclResult_t add(ncclComm_t handle, cudaStream_t stream, const Transfer* transfer, const Reduction* reduction) {
  return in_group([&] {
    const std::shared_ptr<Comm> comm = comm_of(handle);
    if (comm == nullptr) return ncclInvalidArgument;
    group.touched.push_back(comm);
    if (const ncclResult_t result = comm->usable(); result != ncclSuccess) return result;
    if (stream == nullptr) return ncclInvalidArgument;
    Work* work = nullptr;
    for (auto& [of, its] : group.work) {
      if (of == comm) work = &its;
    }
    if (work == nullptr) {
      work = &group.work.emplace_back(comm, Work{}).second;
      work->stream = stream;
    }
    if (work->stream != stream) violation("a group that uses two streams on one communicator: the stand-in has one");
    if (transfer != nullptr) work->transfers.push_back(*transfer);
    if (reduction != nullptr) work->reductions.push_back(*reduction);
    return ncclSuccess;
  });
}

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclFloat32:
      return 4;
    default:
      violation("a type that the stand-in does not know");
      return 0;
  }
}

bool bad_buffer(const void* at, std::size_t bytes, const char* what) {
  if (bytes == 0 || reachable(at, bytes)) return false;
  violation(std::string(what) + ": memory that a GPU cannot reach, or past the end of it");
  return true;
}

ncclResult_t transfer(bool send, const void* at, std::size_t bytes, int peer, ncclComm_t handle, cudaStream_t stream) {
  Transfer one;
  one.send = send;
  one.peer = peer;
  one.at = static_cast<std::byte*>(const_cast<void*>(at));
  one.bytes = bytes;
  const std::shared_ptr<Comm> comm = comm_of(handle);
  const bool bad =
      comm == nullptr || peer < 0 || peer >= comm->ranks() || bad_buffer(at, bytes, send ? "ncclSend" : "ncclRecv");
  if (!bad) return add(handle, stream, &one, nullptr);
  return in_group([&] {
    if (comm != nullptr) group.touched.push_back(comm);
    return ncclInvalidArgument;
  });
}

ncclResult_t reduction(Collective kind, const void* from, void* to, std::size_t count, ncclDataType_t type,
                       ncclRedOp_t op, int root, ncclComm_t handle, cudaStream_t stream) {
  const std::shared_ptr<Comm> comm = comm_of(handle);
  if (comm == nullptr) return in_group([] { return ncclInvalidArgument; });
  if (type != ncclFloat32 || op != ncclSum) violation("a reduction that the stand-in does not know");
  const std::size_t all = kind == Collective::reduce_scatter ? count * std::size_t(comm->ranks()) : count;
  const bool receives = kind != Collective::reduce || root == comm->rank();
  const std::size_t received = kind == Collective::all_reduce ? all : count;
  const bool bad = root < 0 || root >= comm->ranks() || bad_buffer(from, all * sizeof(float), "what is reduced") ||
                   (receives && bad_buffer(to, received * sizeof(float), "where a sum is to go"));
  if (bad || count == 0) {
    return in_group([&] {
      group.touched.push_back(comm);
      return bad ? ncclInvalidArgument : ncclSuccess;  // nothing: success, and no part in it
    });
  }
  const Reduction one{kind, static_cast<const float*>(from), static_cast<float*>(to), count, root};
  return add(handle, stream, nullptr, &one);
}

bool blocking(const ncclConfig_t* config) { return config == nullptr || config->blocking != 0; }

}  // namespace

std::shared_ptr<Comm> comm_of(ncclComm_t handle) {
  if (handle == nullptr) return nullptr;
  const std::lock_guard lock(handles().mutex);
  const auto found = handles().all.find(handle);
  if (found != handles().all.end() && found->second != nullptr) return found->second;
  violation("a communicator is used that was aborted or destroyed");
  return nullptr;
}

ncclComm_t handle_of(std::shared_ptr<Comm> comm) {
  auto* const handle = new ncclComm;
  const std::lock_guard lock(handles().mutex);
  handles().all[handle] = std::move(comm);
  return handle;
}

void forget(ncclComm_t handle) {
  const std::lock_guard lock(handles().mutex);
  handles().all[handle] = nullptr;
}

}  // namespace seeksim::standin

using namespace seeksim::standin;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = stood_for();
  return ncclSuccess;
}

// Fresh each time: from the system's random numbers, as the text of a name.
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::uint64_t drawn[2] = {};
  if (::getrandom(drawn, sizeof drawn, 0) != ssize_t(sizeof drawn)) return ncclSystemError;
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "/seeksim-standin-%d-%016llx%016llx", int(::getpid()),
                static_cast<unsigned long long>(drawn[0]), static_cast<unsigned long long>(drawn[1]));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  *comm = nullptr;
  if (ranks < 1 || rank < 0 || rank >= ranks || std::strncmp(id.internal, "/seeksim-standin-", 17) != 0)
    return ncclInvalidArgument;
  if (ranks > kMostMembers) violation("more members than the stand-in has room for");
  auto made = std::make_shared<Comm>(id.internal, ranks, rank, blocking(config));
  *comm = handle_of(made);
  return made->connect();
}

// Where a child's handle goes. Null until then.
static Comm::Give into(ncclComm_t* child) {
  return [child](const std::shared_ptr<Comm>& made) {
    std::atomic_ref(*child).store(handle_of(made), std::memory_order_release);
  };
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* child, ncclConfig_t*) {
  *child = nullptr;
  const std::shared_ptr<Comm> comm = comm_of(parent);
  if (comm == nullptr) return ncclInvalidArgument;
  return comm->split(color, key, into(child));
}

ncclResult_t ncclCommShrink(ncclComm_t parent, int* exclude, int count, ncclComm_t* child, ncclConfig_t*, int flags) {
  *child = nullptr;
  const std::shared_ptr<Comm> comm = comm_of(parent);
  if (comm == nullptr || exclude == nullptr || count <= 0) return ncclInvalidArgument;
  return comm->shrink({exclude, exclude + count}, flags == NCCL_SHRINK_ABORT, into(child));
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  const std::shared_ptr<Comm> comm = comm_of(handle);
  if (comm == nullptr) return ncclInvalidArgument;
  *error = comm->state();
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  if (handle == nullptr) return ncclSuccess;
  const std::shared_ptr<Comm> comm = comm_of(handle);
  return comm == nullptr ? ncclInvalidArgument : comm->finalize();
}

// On a communicator with an error it frees nothing, and later calls of this thread are never launched.
ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  if (handle == nullptr) return ncclSuccess;
  const std::shared_ptr<Comm> comm = comm_of(handle);
  if (comm == nullptr) return ncclInvalidArgument;
  const ncclResult_t state = comm->state();
  if (state != ncclSuccess) {
    violation("ncclCommDestroy of a communicator that has an error or is in progress: it is to be aborted");
    return state == ncclInProgress ? ncclInvalidArgument : state;
  }
  static_cast<void>(comm->finalize());  // unless that was done, or it was revoked
  comm->wait();
  forget(handle);
  comm->stop();
  comm->join();
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  if (handle == nullptr) return ncclSuccess;
  return in_group([&] {
    group.aborted.push_back(handle);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommRevoke(ncclComm_t handle, int flags) {
  if (handle == nullptr) return ncclSuccess;
  const std::shared_ptr<Comm> comm = comm_of(handle);
  return comm == nullptr || flags != NCCL_REVOKE_DEFAULT ? ncclInvalidArgument : comm->revoke();
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return ncclInvalidUsage;
  return --group.depth > 0 ? ncclSuccess : end_of_group();
}

ncclResult_t ncclSend(const void* at, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return transfer(true, at, count * size_of(type), peer, comm, stream);
}
ncclResult_t ncclRecv(void* at, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return transfer(false, at, count * size_of(type), peer, comm, stream);
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return reduction(Collective::all_reduce, from, to, count, type, op, 0, comm, stream);
}
ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return reduction(Collective::reduce, from, to, count, type, op, root, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return reduction(Collective::reduce_scatter, from, to, count, type, op, 0, comm, stream);
}

}  // extern "C"
