// What the relays of two hosts say to each other, each a head of the project's TCP wire (runtime/backend/wire): the
// kind, then one of these. A reader believes nothing: see from_bytes().
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "pytorch/core/relay_line.h"

namespace seeksim::harness::torch {

enum class FrameKind : std::uint8_t {
  beat,
  part,    // with a payload: bytes of a slot
  came,    // a rank has come to a meeting; behind its parts
  state,   // how far a rank is, for texts
  chunk,   // with a payload: part of a message between two ranks
  took,    // such a part is taken
  ended,   // a rank's process is gone
  poison,  // a group has failed
  stacks,  // a rank is missing and shall write its stacks
  failed,  // the job of a host has failed
  file,    // with a payload: part of a file that a rank has left; to the first host
  count_
};

struct Beat {
  std::int64_t now_ns = 0;   // of the sender's monotonic clock
  std::int64_t echo_ns = 0;  // the last now_ns that it got from the other; 0: none
  std::int64_t held_ns = 0;  // for so long
};
struct PartFrame {
  pytorch::GroupKey key = {};
  std::int32_t place = -1;
  std::uint32_t bank = 0, offset = 0;
};
struct CameFrame {
  pytorch::GroupKey key = {};
  std::int32_t place = -1;
  std::uint32_t meeting = 0, bank = 0;
  std::uint64_t joined = 0, finished = 0;
  pytorch::OpName op = pytorch::OpName::count_;
  pytorch::ReduceName reduce = pytorch::ReduceName::count_;
  pytorch::DType dtype = pytorch::DType::count_;
  std::int32_t root = -1;
  std::int64_t numel = 0, tensors = 0;
  std::uint64_t sizes = 0;
  std::vector<std::int64_t> gives, takes;  // by place
};
struct StateFrame {
  pytorch::GroupKey key = {};
  std::int32_t place = -1;
  std::uint64_t joined = 0, finished = 0;
};
struct ChunkFrame {
  pytorch::GroupKey key = {};
  std::int32_t from = -1, to = -1;
  std::uint32_t number = 0;  // how many have been written with it
  std::uint64_t message = 0, bytes = 0;
  std::int32_t dtype = 0, tag = 0;
};
struct TookFrame {
  pytorch::GroupKey key = {};
  std::int32_t from = -1, to = -1;
  std::uint32_t number = 0;
};
struct PlaceFrame {  // ended, stacks
  pytorch::GroupKey key = {};
  std::int32_t place = -1;
};
struct PoisonFrame {
  pytorch::GroupKey key = {};
  std::vector<std::pair<std::int32_t, std::uint8_t>> culprits;  // places, blames
  std::string text;
};
struct FailedFrame {
  std::string text;
};
struct FileFrame {
  std::string name;
  std::uint64_t offset = 0;
  bool last = false;
};

// A group on several hosts: its head of a collective has to fit into a message's.
inline constexpr int kFarRanksMax = 128;

}  // namespace seeksim::harness::torch
