// SimTransport: a rank's side of the pretended network, with NCCL's communicator state machine. TransportHub: what all
// ranks' transports share. The behaviour follows reference notes on NCCL 2.28: a hung communicator reports success,
// abort and revoke are local, a failure is seen by neighbours only, and no other rank ever hears of it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/seams/seams.h"
#include "sim/exchange.h"
#include "sim/native_gather.h"
#include "sim/native_reduce.h"
#include "sim/native_scatter.h"
#include "sim/random.h"
#include "sim/steering.h"

namespace seeksim::sim {

struct Core;
struct SimRank;

// A communicator as one rank holds it.
struct RankComm {
  enum class State : std::uint8_t { ready, revoked, finalized, dead };
  SharedComm* shared = nullptr;
  int position = -1;
  State state = State::ready;
  runtime::CommResult error = runtime::CommResult::success;
  SimActivity* oldest = nullptr;  // unfinished operations
  SimActivity* newest = nullptr;
  std::uint32_t splits = 0;  // so far, to tell one from the next
  std::uint32_t shrinks = 0;
};

// A meeting of hosts that build a communicator.
struct Rendezvous {
  struct Arrival {
    bool here = false;
    bool came = false;  // even if it has left again since
    int color = 0;      // as in MPI_Comm_split; below 0: it wants none
    int key = 0;
    SharedComm* made = nullptr;
  };
  std::uint64_t id = 0;
  std::uint32_t epoch = 0;
  runtime::Axis axis = runtime::Axis::data;
  std::vector<int> members;       // ranks that must come
  std::vector<Arrival> arrivals;  // by place among the members
  std::size_t count = 0;          // ranks that are here
  bool complete = false;
};

class SimTransport final : public runtime::Transport {
 public:
  SimTransport(Core& core, SimRank& rank) : core_(core), rank_(rank) {}

  runtime::Comm create(const runtime::Op& op, const runtime::CommSpec& spec, TimeNs deadline) override;
  runtime::CommResult exchange(runtime::Queue& queue, runtime::Comm comm, const runtime::Op& op,
                               std::span<const runtime::Piece> pieces, runtime::DiesAt dies) override;
  bool has_native(runtime::Comm comm, const runtime::Op& op) const override;
  runtime::CommResult tree_all_reduce(runtime::Queue& queue, runtime::Comm comm, const runtime::Op& op,
                                      const runtime::TreeReduce& reduce) override;
  runtime::CommResult tree_reduce_scatter(runtime::Queue& queue, runtime::Comm comm, const runtime::Op& op,
                                          const runtime::TreeScatter& scatter) override;
  runtime::CommResult async_error(runtime::Comm comm) override;
  runtime::CommResult revoke(runtime::Comm comm) override;
  runtime::CommResult abort(std::span<const runtime::Comm> comms) override;
  runtime::CommResult finalize(runtime::Comm comm) override;
  runtime::CommResult destroy(runtime::Comm comm) override;
  runtime::Comm split(const runtime::Op& op, runtime::Comm parent, int color, int key, TimeNs deadline) override;
  runtime::Comm shrink(const runtime::Op& op, runtime::Comm parent, std::span<const int> exclude,
                       TimeNs deadline) override;
  Unmatched unmatched(runtime::Comm comm) const override;

  // ---- for the parts of the simulator
  Core& core() { return core_; }
  SimRank& rank() { return rank_; }
  RankComm& comm_at(std::uint32_t index) { return comms_[index]; }
  std::size_t comm_count() const { return comms_.size(); }
  void ended(SimActivity& activity);  // an activity leaves its communicator
  void fail(std::uint32_t comm, runtime::CommResult error, const std::string& why);  // asynchronously
  void withdraw_all();                                                               // the rank is gone
  // Sets remote_error on each communicator that waits on `dead` over a link of this kind.
  void notice_death_of(int dead, bool same_node);
  void sent(const runtime::Op& op, std::uint64_t bytes);  // for the statistics
  struct Use {
    std::uint64_t calls = 0;
    std::uint64_t bytes = 0;
  };
  const std::array<Use, std::size_t(runtime::OpKind::count_)>& use() const { return use_; }
  // Ask for memory: what an operation's end will touch; what the next operation will.
  void fetch(std::uint32_t comm, std::uint64_t record) const;
  void fetch_ahead() const;
  // Operations that are over are used again by the same rank, for whom they may still be in the caches.
  void give_back(Exchange& exchange) { spare_exchanges_.push_back(&exchange); }
  void give_back(NativeReduce& native) { spare_natives_.push_back(&native); }
  void give_back(NativeScatter& native) { spare_scatters_.push_back(&native); }
  void give_back(NativeGather& native) { spare_gathers_.push_back(&native); }
  void touch_operations(Access how) const;
  std::string meeting_waits_for() const;  // while the host is blocked in one

 private:
  RankComm* find(runtime::Comm comm);
  const RankComm* find(runtime::Comm comm) const { return const_cast<SimTransport*>(this)->find(comm); }
  // What an operation on the communicator returns at once; success: go on.
  static runtime::CommResult usable(const RankComm* comm);
  // Uses payload_ and touched_.
  void enqueue(SimActivity& activity, runtime::Queue& queue, runtime::Comm comm, const runtime::Op& op);
  static void cut_short(RankComm& comm);
  TimeNs measured_gather(const SharedComm& shared, std::size_t bytes);
  bool valid(const RankComm& comm, std::span<const runtime::Piece> pieces) const;
  bool others_in_flight() const;
  runtime::Comm join(const runtime::Op& op, const runtime::CommSpec& spec, int color, int key, TimeNs deadline);
  void check_not_fenced(const runtime::Op& op) const;

  Core& core_;
  SimRank& rank_;
  std::vector<RankComm> comms_;
  const Rendezvous* meets_in_ = nullptr;
  runtime::Payload payload_;             // of the operation that is being enqueued, for its record
  std::vector<runtime::Range> touched_;  // by the operation that is being enqueued; empty without a watcher
  std::vector<Exchange*> spare_exchanges_;
  std::vector<NativeReduce*> spare_natives_;
  std::vector<NativeScatter*> spare_scatters_;
  std::vector<NativeGather*> spare_gathers_;
  std::array<Use, std::size_t(runtime::OpKind::count_)> use_{};
};

class TransportHub {
 public:
  TransportHub(Core& core, std::uint64_t seed) : partial(seed, Stream::partial), core_(core) {}

  Exchange& make_exchange() { return exchanges_.emplace_back(); }
  NativeReduce& make_native() { return natives_.emplace_back(); }
  NativeScatter& make_scatter() { return scatters_.emplace_back(); }
  NativeGather& make_gather() { return gathers_.emplace_back(); }

  // The meeting of a communicator's members; one a generation, made by the first that comes.
  Rendezvous& meeting(const runtime::CommSpec& spec);
  void begin(Rendezvous& meeting);  // all have come: the communicator will be there a little later

  // Crashes: when a rank's neighbours hear of it depends on the link between them.
  void died(int rank);
  void forget_death_of(int rank) { noticed_.erase(rank); }  // another incarnation has come in
  bool known_dead(int rank, bool same_node) const;
  bool any_dead() const { return any_dead_; }

  void stale(SimActivity& activity);  // of an epoch that the world has left: counted, never matched
  std::uint64_t stale_count() const { return stale_count_; }

  // A message that arrives a second time. Its epoch and number tell that it is stale; where that is not looked at (a
  // planted bug), its bytes land where the next message of its size between these two belongs.
  struct Zombie {
    int from = -1;
    int to = -1;
    std::string what;
    std::vector<std::byte> bytes;
  };
  void rises(Zombie zombie);
  bool zombies_wait() const { return !zombies_.empty(); }
  void land_on(int from, const runtime::Piece& received);
  std::uint32_t newest_epoch = 0;

  // What members bring to one operation is compared always.
  void mismatch(const std::string& why) {
    if (mismatches.size() < kMismatchesKept) mismatches.push_back(why);
  }
  std::uint64_t compared = 0;           // how often two were compared
  std::vector<std::string> mismatches;  // the first few

  Random partial;                        // how much of a dying rank's exchange gets through
  std::vector<kernels::TreePart> parts;  // scratch of native sums

 private:
  struct Noticed {
    bool inside = false;
    bool between = false;
  };
  static constexpr std::size_t kMismatchesKept = 8;
  void finish(Rendezvous& meeting);

  Core& core_;
  std::deque<Exchange> exchanges_;
  std::deque<NativeReduce> natives_;
  std::deque<NativeScatter> scatters_;
  std::deque<NativeGather> gathers_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, Rendezvous> meetings_;
  std::vector<std::unique_ptr<SharedComm>> comms_;
  std::map<int, Noticed> noticed_;
  bool any_dead_ = false;
  std::uint64_t stale_count_ = 0;
  std::vector<Zombie> zombies_;  // that wait for a place; none unless the bug is there
};

}  // namespace seeksim::sim
