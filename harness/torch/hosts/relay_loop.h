// What the relay's thread does. Only that thread calls these, but for what Board says.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "harness/torch/hosts/host_files.h"
#include "harness/torch/hosts/mirror.h"
#include "harness/torch/hosts/ranks_door.h"
#include "harness/torch/hosts/relay_plan.h"
#include "runtime/backend/wire/bytes.h"
#include "runtime/backend/wire/tcp_world.h"

namespace seeksim::harness::torch {

// Between the relay's thread and the command's: whoever reads or writes holds the mutex.
struct Board {
  mutable std::mutex mutex;
  std::condition_variable changed;
  // Asked for by the command.
  bool stop = false;
  std::optional<std::string> own_failure;
  std::optional<std::vector<HostFile>> files;
  std::optional<std::string> summary, verdict;
  // Told by the thread.
  std::string failed_elsewhere;
  std::vector<HostGave> gave;         // by host
  std::vector<std::string> why_lost;  // by host
  std::optional<std::string> verdict_came;
};

class RelayLoop final : public runtime::Wire::Listener {
 public:
  RelayLoop(const RelayPlan& plan, std::unique_ptr<runtime::TcpWire> wire, Board& board, RanksDoor& door, int bell);
  void run();

  // A rank of this host comes into a group; `file` is the memory's, from the first one, and is closed here. Throws
  // std::runtime_error where what it says makes no sense.
  void enter(RankCaller& caller, const pytorch::Entrance& entrance, int file);

  void arrived(int from, std::span<const std::byte> head, runtime::Wire::Ticket payload) override;
  void over(runtime::Wire::Ticket ticket) override;
  void damaged(int from, runtime::Wire::Ticket payload) override;
  void failed(const std::string&) override {}

 private:
  using Ticket = runtime::Wire::Ticket;
  using MirrorPtr = std::shared_ptr<Mirror>;
  // What a frame asks for, in the order in which frames came; it waits for its payload.
  struct Deed {
    Ticket payload = 0;  // 0: there is none, or it is there
    std::function<void()> act;
  };
  struct Peer {
    std::deque<Deed> deeds;
    std::uint64_t received = 0;  // bytes, at the last look
    std::int64_t heard_ns = 0;
    std::int64_t beat_ns = 0;                // the other's clock in its last beat
    std::int64_t beat_came_ns = 0;           // when that came
    std::int64_t round_trip_ns = INT64_MAX;  // the shortest so far
    bool lost = false;
    std::unique_ptr<FileReceiver> files;
  };

  bool is_other(int host) const { return host != plan_.host; }
  void wait();
  void obey();
  bool asked_to_stop();
  void hear_ranks();
  void heard(RankCaller& caller, RanksDoor::Said& said);
  void forget_groups();
  void tick();
  void look_at(int host, std::int64_t now_ns);
  void lose(int host, pytorch::Far why, const std::string& text);
  void send(int host, std::span<const std::byte> head, std::span<const std::byte> payload, MirrorPtr keeps);
  void take_texts();
  void dispatch(int from, std::span<const std::byte> head, Ticket payload);
  void take_beat(int from, const Beat& beat);
  void take_failure(int from, const FailedFrame& frame);
  void take_file(int from, const FileFrame& frame, Ticket payload);
  template <class Frame, class Act>
  void of_group(int from, const Frame& frame, Act act);
  template <class Frame, class Act>
  void into_group(int from, const Frame& frame, Ticket payload, Act act);
  void act_in_order(int from);
  void send_files();
  MirrorPtr mirror(const pytorch::GroupKey& key) const;
  template <class Frame>
  Frame frame_in(runtime::ByteReader& reader) const;

  const RelayPlan& plan_;
  std::unique_ptr<runtime::TcpWire> wire_;
  Board& board_;
  RanksDoor& door_;
  const int bell_;  // an eventfd: the command wants something
  std::map<pytorch::GroupKey, MirrorPtr> mirrors_;
  std::vector<Peer> peers_;
  struct Outgoing {
    int host;
    MirrorPtr keeps;
  };
  std::map<Ticket, Outgoing> outgoing_;
  std::unique_ptr<FileSender> sender_;
  std::optional<std::string> summary_;  // goes behind the last file
  Ticket file_ticket_ = 0;
  bool told_verdict_ = false;
  std::int64_t next_tick_ns_ = 0, next_beat_ns_ = 0, stop_until_ns_ = 0;
};

}  // namespace seeksim::harness::torch
