// How a communicator is made, ends, and is split.
#include "tests/standin/communicator.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <limits>

namespace seeksim::standin {
namespace {

constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();

int current_device() {
  int device = 0;
  static_cast<void>(cudaGetDevice(&device));
  return device;
}

}  // namespace

int stood_for() { return int(setting("SEEKSIM_STANDIN_NCCL", NCCL_VERSION_CODE)); }

bool ranks_may_share_a_gpu() {
  return stood_for() >= NCCL_VERSION(2, 30, 0) && setting("NCCL_MULTI_RANK_GPU_ENABLE", 0) == 1;
}

Comm::Comm(std::string name, int ranks, int rank, bool blocking)
    : name_(std::move(name)),
      ranks_(ranks),
      rank_(rank),
      blocking_(blocking),
      segment_(std::make_unique<Segment>(name_, ranks)),
      draws_(delay_seed() + std::hash<std::string>()(name_) + std::uint64_t(rank)) {
  segment_->member(rank).process = ::getpid();
  segment_->member(rank).device = current_device();
}

Comm::~Comm() { join(); }

void Comm::join() {
  if (job_.joinable()) job_.join();
}

// One job at a time: a communicator in progress takes no other call.
void Comm::in_background(std::function<ncclResult_t()> job) {
  join();
  state_ = ncclInProgress;
  job_ = std::thread([this, job = std::move(job), device = current_device()] {
    static_cast<void>(cudaSetDevice(device));
    const ncclResult_t result = job();
    int expected = ncclInProgress;
    state_.compare_exchange_strong(expected, result);  // an error that has come meanwhile stays
  });
}

ncclResult_t Comm::wait() {
  while (state() == ncclInProgress) std::this_thread::sleep_for(std::chrono::microseconds(100));
  return state();
}

template <class Done>
bool Comm::until(std::uint64_t ticket, const Done& done) {
  while (!done()) {
    if (stopped(ticket)) return false;
    const std::uint32_t heard = segment_->hear(rank_);
    if (done()) return true;
    segment_->nap(rank_, heard);
    look_for_deaths();
  }
  return true;
}

void Comm::look_for_deaths() {
  static const bool kNetwork = setting("SEEKSIM_STANDIN_NETWORK", 0) != 0;
  if (!kNetwork || stop_up_to_ == kAll) return;
  for (int peer = 0; peer < ranks_; ++peer) {
    const std::int32_t process = segment_->member(peer).process;
    if (process != 0 && is_dead(process)) state_ = ncclRemoteError;
  }
}

// ---- begin ---------------------------------------------------------------------------------------------------------

ncclResult_t Comm::connect() {
  in_background([this] {
    Shared& shared = segment_->shared();
    if (++shared.arrived == std::uint32_t(ranks_)) segment_->remove();
    segment_->ring_all();
    if (!until(1, [&] { return shared.arrived >= std::uint32_t(ranks_); })) {
      segment_->remove();
      return ncclInternalError;
    }
    if (dawdles()) dawdle(draws_);
    for (int peer = 0; peer < ranks_; ++peer) {
      const bool same = segment_->member(peer).device == segment_->member(rank_).device;
      if (peer != rank_ && same && !ranks_may_share_a_gpu()) return ncclInvalidUsage;
    }
    return ncclSuccess;
  });
  return blocking_ ? wait() : ncclInProgress;
}

// Until the members of the child have met, or this communicator is stopped.
ncclResult_t Comm::bear(const std::shared_ptr<Comm>& child, std::uint64_t ticket, const Give& give) {
  static_cast<void>(child->connect());
  const bool met = until(ticket, [&] { return child->state() != ncclInProgress; });
  if (!met) child->stop();
  child->join();
  give(child);
  return met ? child->state() : ncclInternalError;
}

// Each member says what it wants, and waits until all have.
ncclResult_t Comm::split(int color, int key, Give give) {
  if (finalized_) return ncclInvalidUsage;
  if (state() != ncclSuccess) return state() == ncclInProgress ? ncclInvalidArgument : state();
  const std::uint32_t generation = ++splits_;
  SplitAnswer& mine = segment_->member(rank_).answers[generation % 2];
  mine.color = color;
  mine.key = key;
  mine.generation = generation;
  segment_->ring_all();
  in_background([this, color, key, generation, give = std::move(give), ticket = stop_up_to_ + 1] {
    const auto answer = [&](int rank) -> SplitAnswer& { return segment_->member(rank).answers[generation % 2]; };
    const bool all = until(ticket, [&] {
      for (int rank = 0; rank < ranks_; ++rank) {
        if (answer(rank).generation != generation) return false;
      }
      return true;
    });
    if (!all) return ncclInternalError;
    if (color < 0) return ncclSuccess;
    std::vector<std::pair<int, int>> members;  // key, rank
    for (int rank = 0; rank < ranks_; ++rank) {
      if (answer(rank).color == color) members.emplace_back(answer(rank).key, rank);
    }
    std::sort(members.begin(), members.end());
    const auto me = std::find(members.begin(), members.end(), std::pair{key, rank_}) - members.begin();
    const std::string name = name_ + ".s" + std::to_string(generation) + "c" + std::to_string(color);
    return bear(std::make_shared<Comm>(name, int(members.size()), int(me), false), ticket, give);
  });
  return blocking_ ? wait() : ncclSuccess;
}

// No agreement: ranks with different lists get different names, and never meet.
ncclResult_t Comm::shrink(std::vector<int> exclude, bool abort, Give give) {
  if (finalized_) return ncclInvalidUsage;
  if (exclude.empty() || !std::is_sorted(exclude.begin(), exclude.end()) ||
      std::adjacent_find(exclude.begin(), exclude.end()) != exclude.end() ||
      std::find(exclude.begin(), exclude.end(), rank_) != exclude.end())
    return ncclInvalidArgument;
  if (state() == ncclInProgress && (!abort || launched_ == ended_)) return ncclInvalidArgument;
  if (abort) {
    stop_up_to_ = launched_.load();
    segment_->ring_bell(rank_);
    join();
    until(kAll, [&] { return ended_ >= stop_up_to_; });
    int in_progress = ncclInProgress;
    state_.compare_exchange_strong(in_progress, ncclSuccess);
  }
  if (state() != ncclSuccess) return state();  // sticky: the child is not built
  std::string list;
  int before = 0;
  for (const int rank : exclude) {
    list += "x" + std::to_string(rank);
    before += rank < rank_ ? 1 : 0;
  }
  const auto child = std::make_shared<Comm>(name_ + ".k" + std::to_string(++shrinks_) + list,
                                            ranks_ - int(exclude.size()), rank_ - before, false);
  in_background([this, child, give = std::move(give), ticket = stop_up_to_ + 1] { return bear(child, ticket, give); });
  return blocking_ ? wait() : ncclSuccess;
}

// ---- end -----------------------------------------------------------------------------------------------------------

void Comm::stop() {
  stop_up_to_ = kAll;
  segment_->ring_bell(rank_);
}

ncclResult_t Comm::revoke() {
  if (revoked_ || finalized_) return ncclInvalidArgument;
  revoked_ = true;
  stop_up_to_ = launched_.load();
  segment_->ring_bell(rank_);
  join();
  in_background([this] {
    while (ended_ < stop_up_to_) {  // the kernels leave when their streams have come to them
      const std::uint32_t heard = segment_->hear(rank_);
      if (ended_ < stop_up_to_ && stop_up_to_ != kAll) segment_->nap(rank_, heard);
      if (stop_up_to_ == kAll) break;
    }
    return ncclSuccess;
  });
  return blocking_ ? wait() : ncclInProgress;
}

// What was launched is carried out; then all have to get here.
ncclResult_t Comm::finalize() {
  if (revoked_ || finalized_) return ncclInvalidArgument;
  if (state() != ncclSuccess) return state() == ncclInProgress ? ncclInvalidArgument : state();
  finalized_ = true;
  in_background([this] {
    if (!until(launched_ + 1, [&] { return ended_ >= launched_; })) return ncclInternalError;
    segment_->member(rank_).finalized = 1;
    segment_->ring_all();
    const bool all = until(launched_ + 1, [&] {
      for (int rank = 0; rank < ranks_; ++rank) {
        if (segment_->member(rank).finalized == 0) return false;
      }
      return true;
    });
    return all ? ncclSuccess : ncclInternalError;
  });
  return blocking_ ? wait() : ncclInProgress;
}

ncclResult_t Comm::usable() const {
  if (finalized_ || revoked_) return ncclInvalidUsage;
  return state() == ncclInProgress ? ncclInvalidArgument : state();
}

// ---- operations ----------------------------------------------------------------------------------------------------

std::set<std::pair<int, bool>> Comm::new_peers(const Work& work) const {
  std::set<std::pair<int, bool>> peers;
  for (const Transfer& transfer : work.transfers) peers.emplace(transfer.peer, transfer.send);
  if (!work.reductions.empty() && ranks_ > 1) {
    peers.emplace((rank_ + 1) % ranks_, true);
    peers.emplace((rank_ + ranks_ - 1) % ranks_, false);
  }
  for (const auto& peer : connected_) peers.erase(peer);
  return peers;
}

// With SEEKSIM_STANDIN_CONNECTS_ALONE=1 a process makes one connection at a time.
class Comm::Alone {
 public:
  Alone(Comm& comm, std::uint64_t ticket) {
    if (setting("SEEKSIM_STANDIN_CONNECTS_ALONE", 0) == 0) return;
    granted_ = held_ = comm.until(ticket, [] { return !busy().exchange(true); });
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
  ~Alone() {
    if (held_) busy() = false;
  }
  bool granted() const { return granted_; }

 private:
  static std::atomic<bool>& busy() {
    static std::atomic<bool> of_the_process{false};
    return of_the_process;
  }
  bool held_ = false, granted_ = true;
};

// Both ends of a connection have to want it.
bool Comm::meet(const std::set<std::pair<int, bool>>& peers, std::uint64_t ticket) {
  for (const auto& [peer, send] : peers) {
    Ring& ring = send ? segment_->ring(rank_, peer) : segment_->ring(peer, rank_);
    (send ? ring.sender_there : ring.receiver_there) = 1;
    segment_->ring_bell(peer);
  }
  return until(ticket, [&] {
    return std::all_of(peers.begin(), peers.end(), [&](const auto& of) {
      Ring& ring = of.second ? segment_->ring(rank_, of.first) : segment_->ring(of.first, rank_);
      return (of.second ? ring.receiver_there : ring.sender_there) != 0;
    });
  });
}

// The kernel goes on its stream at once, or, where peers are new, when all are connected: ncclInProgress until then.
ncclResult_t Comm::launch(Work work) {
  work.ticket = ++launched_;
  const auto peers = new_peers(work);
  const bool late = !peers.empty() || (dawdles() && draws_.next() % 8 == 0);
  cudaStream_t const stream = work.stream;
  auto kernel = [comm = shared_from_this(), work]() mutable { comm->carry_out(work); };
  if (!late || blocking_) {
    if (!peers.empty() && !meet(peers, work.ticket)) return ncclInternalError;
    connected_.insert(peers.begin(), peers.end());
    stream->enqueue_by_nccl(std::move(kernel));
    return ncclSuccess;
  }
  ++stream->connecting;
  connected_.insert(peers.begin(), peers.end());
  in_background([this, peers, stream, kernel = std::move(kernel), ticket = work.ticket] {
    const Alone alone(*this, ticket);
    const bool met = alone.granted() && meet(peers, ticket);
    if (met && dawdles()) dawdle(draws_);
    if (met)
      stream->enqueue_by_nccl(kernel);
    else
      ended(ticket);
    --stream->connecting;
    return met ? ncclSuccess : ncclInternalError;
  });
  return ncclInProgress;
}

void Comm::ended(std::uint64_t ticket) {
  std::uint64_t before = ended_;
  while (before < ticket && !ended_.compare_exchange_weak(before, ticket)) {
  }
  segment_->ring_bell(rank_);
}

// Runs on the stream's thread. If stopped, it leaves its buffers as they are, and the stream goes on as if nothing had
// happened.
void Comm::carry_out(Work& work) {
  if (until(work.ticket, [&] { return ended_ + 1 >= work.ticket; }) && move(work.transfers, work.ticket)) {
    for (const Reduction& reduction : work.reductions) {
      if (!reduce(reduction, work.ticket)) break;
    }
  }
  ended(work.ticket);
}

// Bytes of one transfer that can move now.
bool Comm::advance(Transfer& transfer) {
  Ring& ring = transfer.send ? segment_->ring(rank_, transfer.peer) : segment_->ring(transfer.peer, rank_);
  std::size_t moved = 0;
  auto* const head = reinterpret_cast<std::byte*>(transfer.head);
  const auto pump = [&](std::byte* at, std::size_t& done, std::size_t all) {
    const std::size_t n = transfer.send ? ring.put(at + done, all - done) : ring.get(at + done, all - done);
    done += n;
    moved += n;
    return done == all;
  };
  if (transfer.head_moved < sizeof transfer.head) {
    if (transfer.send) transfer.head[0] = transfer.bytes;
    if (pump(head, transfer.head_moved, sizeof transfer.head) && transfer.head[0] != transfer.bytes)
      violation("rank " + std::to_string(rank_) + " of " + name_ + " receives " + std::to_string(transfer.bytes) +
                " bytes from rank " + std::to_string(transfer.peer) + ", who sends " +
                std::to_string(transfer.head[0]) + ": NCCL would hang, or write elsewhere");
  }
  if (transfer.head_moved == sizeof transfer.head) pump(transfer.at, transfer.moved, transfer.bytes);
  if (moved > 0) segment_->ring_bell(transfer.peer);
  return moved > 0;
}

// All of a group at once; what has the same peer and direction in the order of its calls.
bool Comm::move(std::vector<Transfer>& transfers, std::uint64_t ticket) {
  const auto over = [](const Transfer& t) {
    return t.bytes == 0 || (t.head_moved == sizeof t.head && t.moved == t.bytes);
  };
  auto moved_last = std::chrono::steady_clock::now();
  bool said = false;
  for (;;) {
    if (stopped(ticket)) return false;
    const std::uint32_t heard = segment_->hear(rank_);
    bool moved = false, all = true;
    std::array<bool, std::size_t(2) * kMostMembers> busy{};
    for (Transfer& transfer : transfers) {
      if (over(transfer)) continue;
      all = false;
      bool& taken = busy[std::size_t(2 * transfer.peer + (transfer.send ? 1 : 0))];
      if (!std::exchange(taken, true)) moved = advance(transfer) || moved;
    }
    if (all) return true;
    if (moved) {
      moved_last = std::chrono::steady_clock::now();
      continue;
    }
    segment_->nap(rank_, heard);
    look_for_deaths();
    if (!said && std::chrono::steady_clock::now() - moved_last > std::chrono::seconds(5)) say(transfers, ticket);
    said = said || std::chrono::steady_clock::now() - moved_last > std::chrono::seconds(5);
  }
}

// To find the reason of a hang: SEEKSIM_STANDIN_SAYS=1.
void Comm::say(const std::vector<Transfer>& transfers, std::uint64_t ticket) const {
  if (setting("SEEKSIM_STANDIN_SAYS", 0) == 0) return;
  std::string text;
  for (const Transfer& t : transfers)
    text += std::string(t.send ? " to " : " from ") + std::to_string(segment_->member(t.peer).process) + ": " +
            std::to_string(t.moved) + " of " + std::to_string(t.bytes) + " bytes;";
  std::fprintf(stderr, "stand-in (process %d): operation %d of %s waits:%s\n", int(::getpid()), int(ticket),
               name_.substr(name_.size() - 6).c_str(), text.c_str());
}

}  // namespace seeksim::standin
