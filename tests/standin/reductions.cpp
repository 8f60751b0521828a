// The stand-in's sums: rings. A sum for a rank starts on the one behind it and goes round; each rank adds its part.
#include <algorithm>
#include <vector>

#include "tests/standin/communicator.h"
#include "tests/standin/loud.h"

namespace seeksim::standin {
namespace {

struct Chunk {
  std::size_t begin = 0, size = 0;
};
Chunk chunk_of(std::size_t count, int ranks, int which) {
  const std::size_t each = (count + std::size_t(ranks) - 1) / std::size_t(ranks);
  const std::size_t begin = std::min(count, each * std::size_t(which));
  return {begin, std::min(count, begin + each) - begin};
}

// SEEKSIM_STANDIN_FORGETS=1: a planted mistake that a check of NCCL's sums must see.
bool forgets() {
  static const bool kForgets = setting("SEEKSIM_STANDIN_FORGETS", 0) != 0;
  return kForgets;
}

}  // namespace

// To the next member, and from the one before.
bool Comm::pass_on(const float* out, float* in, std::size_t n, bool sends, bool receives, std::uint64_t ticket) {
  std::vector<Transfer> both;
  const auto add = [&](bool send, int peer, const float* at) {
    Transfer transfer;
    transfer.send = send;
    transfer.peer = peer;
    transfer.at = reinterpret_cast<std::byte*>(const_cast<float*>(at));
    transfer.bytes = n * sizeof(float);
    both.push_back(transfer);
  };
  if (sends) add(true, (rank_ + 1) % ranks_, out);
  if (receives) add(false, (rank_ + ranks_ - 1) % ranks_, in);
  return move(both, ticket);
}

// What this rank contributes.
std::vector<float> Comm::addend(const float* from, std::size_t n) const {
  if (forgets() && rank_ + 1 == ranks_) return std::vector<float>(n);
  return {from, from + n};
}

bool Comm::reduce(const Reduction& of, std::uint64_t ticket) {
  const auto behind = [&](int which, int by) { return ((which - by) % ranks_ + ranks_) % ranks_; };
  if (of.kind == Collective::reduce) {  // a chain that begins behind the root
    const int place = behind(rank_, of.root + 1);
    std::vector<float> sum = addend(of.from, of.count), before(of.count);
    if (place > 0) {
      if (!pass_on(nullptr, before.data(), of.count, false, true, ticket)) return false;
      for (std::size_t i = 0; i < of.count; ++i) sum[i] = before[i] + sum[i];
    }
    if (place < ranks_ - 1) return pass_on(sum.data(), nullptr, of.count, true, false, ticket);
    std::copy(sum.begin(), sum.end(), of.to);
    return true;
  }
  const bool scatter = of.kind == Collective::reduce_scatter;
  const std::size_t all = scatter ? of.count * std::size_t(ranks_) : of.count;
  const auto chunk = [&](int which) {
    return scatter ? Chunk{of.count * std::size_t(which), of.count} : chunk_of(all, ranks_, which);
  };
  std::vector<float> sum = addend(of.from, all), in(all);
  const auto exchange = [&](int sent, int received, bool adds) {
    const Chunk out = chunk(sent), into = chunk(received);
    std::vector<Transfer> both(2);
    both[0].send = true;
    both[0].peer = (rank_ + 1) % ranks_;
    both[0].at = reinterpret_cast<std::byte*>(sum.data() + out.begin);
    both[0].bytes = out.size * sizeof(float);
    both[1].peer = (rank_ + ranks_ - 1) % ranks_;
    both[1].at = reinterpret_cast<std::byte*>(in.data() + into.begin);
    both[1].bytes = into.size * sizeof(float);
    if (!move(both, ticket)) return false;
    for (std::size_t i = into.begin; i < into.begin + into.size; ++i) sum[i] = adds ? in[i] + sum[i] : in[i];
    return true;
  };
  // The chunk that is to end on a rank comes to it last.
  for (int step = 0; step < ranks_ - 1; ++step) {
    if (!exchange(behind(rank_, step + 1), behind(rank_, step + 2), true)) return false;
  }
  if (scatter) {
    const Chunk mine = chunk(rank_);
    std::copy_n(sum.begin() + std::ptrdiff_t(mine.begin), mine.size, of.to);
    return true;
  }
  for (int step = 0; step < ranks_ - 1; ++step) {
    if (!exchange(behind(rank_, step), behind(rank_, step + 1), false)) return false;
  }
  std::copy(sum.begin(), sum.end(), of.to);
  return true;
}

}  // namespace seeksim::standin
