// One group on several hosts, as the relay of one of them has it: the memory that its ranks here share. What they
// publish goes out as frames; what frames of other hosts say is written there, as if those ranks were here.
//
// The memory's own rules bound all of it: a rank fills a slot again only when all have met twice since, and sends a
// fifth part of a message only when one was taken. So nothing is kept, and payloads go from slot to slot.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <vector>

#include "harness/torch/hosts/frames.h"
#include "pytorch/core/group.h"

namespace seeksim::harness::torch {

// What another host says makes no sense: the connection to it is closed.
struct Distrust : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Mirror {
 public:
  // Hands a frame to a host. The payload lies in this group's memory and stays as it is until it has gone.
  using Send = std::function<void(int host, std::span<const std::byte> head, std::span<const std::byte> payload)>;
  // Throws std::runtime_error where the entrance makes no sense.
  Mirror(const pytorch::Entrance& entrance, int host, pytorch::Segment segment, Send send);

  const pytorch::GroupKey& key() const { return key_; }
  bool is_here(int place) const { return place >= 0 && place < size() && hosts_[std::size_t(place)] == host_; }

  // ---- of ranks here: throw std::runtime_error where what they say makes no sense
  // A rank has come in, from this process. file >= 0 only of the first one.
  void entered(const pytorch::Entrance& entrance, int pid);
  void noted(int place, const pytorch::Note& note, std::span<const pytorch::Part> parts);
  // Tells the other hosts how far ranks are, and the ranks here when something last came from each host.
  void tick(std::span<const std::int64_t> heard_ns);
  void ended(int place);  // its process is gone

  // ---- of other hosts: throw Distrust
  // Where the bytes of a payload go; it is checked that a rank of this host may write there now.
  std::span<std::byte> room_for(int from, const PartFrame& frame, std::uint64_t bytes);
  std::span<std::byte> room_for(int from, const ChunkFrame& frame, std::uint64_t bytes);
  // Once the payloads before them are there.
  void take(int from, const CameFrame& frame);
  void take(int from, const StateFrame& frame);
  void take(int from, const ChunkFrame& frame);
  void take(int from, const TookFrame& frame);
  void take(int from, const PoisonFrame& frame);
  void take_ended(int from, const PlaceFrame& frame);
  void take_stacks(const PlaceFrame& frame);  // a place of this host
  // Nothing will come from this host any more.
  void lost(int host, pytorch::Far why, std::int64_t heard_ns);

 private:
  int size() const { return int(hosts_.size()); }
  void need_there(int from, int place) const;
  void need_here(int place) const;
  template <class Frame>
  void tell(int host, FrameKind kind, const Frame& frame, std::span<const std::byte> payload = {});
  template <class Frame>
  void tell_others(FrameKind kind, const Frame& frame);
  void tell_came(int place, const pytorch::Note& note, std::span<const pytorch::Part> parts);
  void tell_chunk(int place, const pytorch::Note& note);
  void tell_poison();

  pytorch::GroupKey key_;
  int host_;
  std::vector<int> hosts_;   // by place
  std::vector<int> others_;  // hosts that have ranks in it, but for this one
  pytorch::Segment segment_;
  Send send_;
  std::vector<int> pids_;                                      // by place; of ranks here
  std::vector<std::uint32_t> meetings_;                        // by place: told, or taken
  std::vector<std::pair<std::uint64_t, std::uint64_t>> told_;  // by place: joined and finished
  std::map<std::pair<int, int>, std::uint32_t> announced_;     // chunks that are on their way here, by their ends
};

}  // namespace seeksim::harness::torch
