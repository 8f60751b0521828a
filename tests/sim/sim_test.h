// What the tests of the simulator share: small worlds, communicators, sums.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/tree.h"
#include "runtime/seams/rank.h"
#include "sim/world.h"

namespace seeksim::sim {

using runtime::BufferPtr;
using runtime::Comm;
using runtime::CommResult;
using runtime::CommSpec;
using runtime::ErrorKind;
using runtime::Event;
using runtime::kMicrosecond;
using runtime::kMillisecond;
using runtime::kSecond;
using runtime::MemoryTag;
using runtime::Op;
using runtime::OpKind;
using runtime::Piece;
using runtime::PieceFate;
using runtime::Rank;
using runtime::SeamError;
using runtime::vec;

inline WorldPlan small_world(int ranks, std::uint64_t seed = 1, const std::string& network = "ib") {
  WorldPlan plan;
  plan.ranks_per_node = ranks;
  plan.network = network;
  plan.seed = seed;
  return plan;
}

// One rank a node: all links are of the network's kind.
inline WorldPlan spread_world(int ranks, std::uint64_t seed = 1, const std::string& network = "ib") {
  WorldPlan plan = small_world(1, seed, network);
  plan.nodes = ranks;
  return plan;
}

inline Op op_of(const Rank& rank, OpKind kind, std::uint64_t sequence, std::uint32_t epoch = 0) {
  Op op;
  op.kind = kind;
  op.rank = rank.id;
  op.sequence = sequence;
  op.epoch = epoch;
  return op;
}

inline std::vector<int> everybody(const Rank& rank) {
  std::vector<int> members(std::size_t(rank.world_size));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

inline Comm make_comm(Rank& rank, std::vector<int> members, std::uint64_t id = 1, std::uint32_t epoch = 0,
                      runtime::TimeNs deadline = runtime::kForever) {
  CommSpec spec;
  spec.name = "test";
  spec.epoch = epoch;
  spec.id = id;
  spec.members = std::move(members);
  return rank.transport.create(op_of(rank, OpKind::comm_create, id, epoch), spec, deadline);
}
inline Comm make_comm(Rank& rank) { return make_comm(rank, everybody(rank)); }

inline BufferPtr floats(Rank& rank, std::size_t n, float value = 0) {
  BufferPtr buffer = rank.device.allocate(n * sizeof(float), MemoryTag::scratch, "test");
  for (std::size_t i = 0; i < n; ++i) vec<float>(*buffer).get()[kernels::Index(i)] = value;
  return buffer;
}
inline float& at(const BufferPtr& buffer, std::size_t i) { return reinterpret_cast<float*>(buffer->data)[i]; }
inline std::uint32_t word(const BufferPtr& buffer, std::size_t i) {
  return reinterpret_cast<const std::uint32_t*>(buffer->data)[i];
}

inline Piece send_to(int peer, const BufferPtr& b, std::size_t first, std::size_t n, const PieceFate* fate = nullptr) {
  return {peer, true, b.get(), first * sizeof(float), (first + n) * sizeof(float), fate};
}
inline Piece receive_from(int peer, const BufferPtr& b, std::size_t first, std::size_t n,
                          const PieceFate* fate = nullptr) {
  return {peer, false, b.get(), first * sizeof(float), (first + n) * sizeof(float), fate};
}

// Enqueues on the communication queue and returns the event behind it.
inline Event exchange(Rank& rank, Comm comm, const Op& op, const std::vector<Piece>& pieces,
                      runtime::DiesAt dies = runtime::DiesAt::never) {
  EXPECT_EQ(rank.transport.exchange(rank.device.communication_queue(), comm, op, pieces, dies), CommResult::success);
  return rank.device.communication_queue().record();
}

// Rank 0 sends rank 1 a message of its own, in an operation of this kind.
inline void send_one_message(World& world, OpKind kind) {
  world.run([kind](Rank& rank) {
    const Comm comm = make_comm(rank);
    const BufferPtr b = floats(rank, 1000);
    const Op op = op_of(rank, kind, 1);
    const Piece piece = rank.id == 0 ? send_to(1, b, 0, 1000) : receive_from(0, b, 0, 1000);
    rank.wait(exchange(rank, comm, op, {piece}), op, 60 * kSecond, comm);
  });
}

// What a wait threw; count_ when it did not.
inline ErrorKind failure_of(const std::function<void()>& act, std::string* text = nullptr) {
  try {
    act();
  } catch (const SeamError& e) {
    if (text != nullptr) *text = e.what();
    return e.kind();
  }
  return ErrorKind::count_;
}

// All ranks returned; else says who did not, and why.
inline ::testing::AssertionResult all_returned(const WorldResult& result) {
  for (std::size_t i = 0; i < result.ranks.size(); ++i)
    if (result.ranks[i].how != RankEnd::How::returned)
      return ::testing::AssertionFailure()
             << "rank " << i << (result.ranks[i].how == RankEnd::How::died ? " died " : " threw ")
             << result.ranks[i].what << "\n"
             << result.wait_for_graph;
  if (result.end != WorldEnd::finished)
    return ::testing::AssertionFailure() << "end " << int(result.end) << "\n" << result.wait_for_graph;
  return ::testing::AssertionSuccess();
}

}  // namespace seeksim::sim
