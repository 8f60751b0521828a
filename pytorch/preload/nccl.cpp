// A library that is loaded before NCCL (LD_PRELOAD) and lets a rank's calls of NCCL fail, or never return, as a rule of
// the run says. All else it hands on. It knows no rules: whoever has them is asked at each call (seeksim_nccl_asks).
// Free of torch, CUDA and nccl.h: what it hands on are pointers and numbers, and a result is an int.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdio>

namespace {

constexpr int kInternalError = 3;  // ncclInternalError

// 0: go on; above: return this result (ncclResult_t); below: never return.
using Ask = int (*)(const char* operation);
std::atomic<Ask> ask{nullptr};

// NCCL's own function: by its second name, else the next library's.
void* below(const char* name) {
  char second[64];
  std::snprintf(second, sizeof second, "p%s", name);
  if (void* found = dlsym(RTLD_DEFAULT, second)) return found;
  if (void* found = dlsym(RTLD_NEXT, name)) return found;
  void* library = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr ? nullptr : dlsym(library, name);
}

template <class... Arguments>
int hand_on(const char* operation, void* function, const char* name, Arguments... arguments) {
  const Ask asked = ask.load();
  const int how = asked == nullptr ? 0 : asked(operation);
  while (how < 0) ::pause();
  if (how > 0) return how;
  if (function == nullptr) {
    std::fprintf(stderr, "seeksim: there is no NCCL below the preloaded library: %s\n", name);
    return kInternalError;
  }
  return reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
}

}  // namespace

#define SEEKSIM_HAND_ON(name, operation, ...) \
  static void* const own = below(#name);      \
  return hand_on(operation, own, #name, __VA_ARGS__)

extern "C" {

// Who decides. Null: every call is handed on.
__attribute__((visibility("default"))) void seeksim_nccl_asks(Ask given) { ask = given; }

#define SEEKSIM_NCCL __attribute__((visibility("default"))) int

SEEKSIM_NCCL ncclAllReduce(const void* from, void* to, std::size_t n, int type, int op, void* comm, void* stream) {
  SEEKSIM_HAND_ON(ncclAllReduce, "all_reduce", from, to, n, type, op, comm, stream);
}
SEEKSIM_NCCL ncclReduce(const void* from, void* to, std::size_t n, int type, int op, int root, void* comm,
                        void* stream) {
  SEEKSIM_HAND_ON(ncclReduce, "reduce", from, to, n, type, op, root, comm, stream);
}
SEEKSIM_NCCL ncclBroadcast(const void* from, void* to, std::size_t n, int type, int root, void* comm, void* stream) {
  SEEKSIM_HAND_ON(ncclBroadcast, "broadcast", from, to, n, type, root, comm, stream);
}
SEEKSIM_NCCL ncclBcast(void* at, std::size_t n, int type, int root, void* comm, void* stream) {
  SEEKSIM_HAND_ON(ncclBcast, "broadcast", at, n, type, root, comm, stream);
}
SEEKSIM_NCCL ncclAllGather(const void* from, void* to, std::size_t n, int type, void* comm, void* stream) {
  SEEKSIM_HAND_ON(ncclAllGather, "all_gather", from, to, n, type, comm, stream);
}
SEEKSIM_NCCL ncclReduceScatter(const void* from, void* to, std::size_t n, int type, int op, void* comm, void* stream) {
  SEEKSIM_HAND_ON(ncclReduceScatter, "reduce_scatter", from, to, n, type, op, comm, stream);
}
SEEKSIM_NCCL ncclAlltoAll(const void* from, void* to, std::size_t n, int type, void* comm, void* stream) {
  SEEKSIM_HAND_ON(ncclAlltoAll, "all_to_all", from, to, n, type, comm, stream);
}
SEEKSIM_NCCL ncclSend(const void* at, std::size_t n, int type, int peer, void* comm, void* stream) {
  SEEKSIM_HAND_ON(ncclSend, "send", at, n, type, peer, comm, stream);
}
SEEKSIM_NCCL ncclRecv(void* at, std::size_t n, int type, int peer, void* comm, void* stream) {
  SEEKSIM_HAND_ON(ncclRecv, "recv", at, n, type, peer, comm, stream);
}

}  // extern "C"
