#include "runtime/comm/gather_rule.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/check.h"

namespace seeksim::runtime {
namespace {

class Ring final : public GatherRule {
 public:
  std::vector<GatherRound> rounds(int members) const override {
    std::vector<GatherRound> all;
    for (int round = 0; round + 1 < members; ++round) {
      GatherRound& moves = all.emplace_back();
      for (int from = 0; from < members; ++from)
        moves.push_back({(from - round + members) % members, from, (from + 1) % members});
    }
    return all;
  }
};

// After rounds of 1, 2, 4, ... shards a member has its own and those behind it, until it has all.
class Doubling final : public GatherRule {
 public:
  std::vector<GatherRound> rounds(int members) const override {
    std::vector<GatherRound> all;
    for (int have = 1; have < members; have *= 2) {
      GatherRound& moves = all.emplace_back();
      for (int from = 0; from < members; ++from) {
        for (int i = 0; i < std::min(have, members - have); ++i)
          moves.push_back({(from + i) % members, from, (from - have + members) % members});
      }
    }
    return all;
  }
};

// Who has which shard, while rounds are played.
class Holdings {
 public:
  explicit Holdings(int members) : members_(members), has_(std::size_t(members) * members, false) {
    for (int member = 0; member < members; ++member) has_[at(member, member)] = true;
  }
  // Plays a round: nothing that is given in it can be handed on in it.
  std::string problem_of(const GatherRound& round, int number) {
    const std::vector<bool> before = has_;
    for (const GatherMove& move : round) {
      const auto is_place = [&](int i) { return i >= 0 && i < members_; };
      const std::string which = fmt::format("of {} members, in round {}: the member at {} sends shard {} to {}",
                                            members_, number, move.from, move.shard, move.to);
      if (!is_place(move.shard) || !is_place(move.from) || !is_place(move.to) || move.from == move.to)
        return which + ", which are no two members and a shard";
      if (!before[at(move.from, move.shard)]) return which + ", and does not have it";
      if (has_[at(move.to, move.shard)]) return which + ", who has it already";
      has_[at(move.to, move.shard)] = true;
    }
    return "";
  }
  std::string problem_at_the_end() const {
    for (int member = 0; member < members_; ++member)
      for (int shard = 0; shard < members_; ++shard)
        if (!has_[at(member, shard)])
          return fmt::format("of {} members, the one at {} is never given shard {}", members_, member, shard);
    return "";
  }

 private:
  std::size_t at(int member, int shard) const { return std::size_t(member) * members_ + shard; }
  int members_;
  std::vector<bool> has_;
};

}  // namespace

std::shared_ptr<const GatherRule> built_in_gather(std::string_view name) {
  if (name == "ring") return std::make_shared<Ring>();
  if (name == "doubling") return std::make_shared<Doubling>();
  return nullptr;
}

std::string problem_of_rounds(const GatherRule& rule, int members) {
  Holdings holdings(members);
  int number = 0;
  for (const GatherRound& round : rule.rounds(members)) {
    if (const std::string problem = holdings.problem_of(round, number++); !problem.empty()) return problem;
  }
  return holdings.problem_at_the_end();
}

GatherCost cost_of(const GatherRule& rule, int members) {
  if (members < 2) return {};
  std::vector<int> sent(std::size_t(members), 0);
  GatherCost cost{0, 0};
  for (const GatherRound& round : rule.rounds(members)) {
    ++cost.rounds;
    for (const GatherMove& move : round) ++sent[std::size_t(move.from)];
  }
  cost.shards_sent_max = *std::max_element(sent.begin(), sent.end());
  return cost;
}

GatherRounds::GatherRounds(const GatherRule* rule, int members, int position) : position_(position) {
  if (rule == nullptr || members < 2) return;
  for (const GatherRound& round : rule->rounds(members)) {
    GatherRound& own = moves_.emplace_back();
    for (const GatherMove& move : round)
      if (move.from == position || move.to == position) own.push_back(move);
  }
}

void GatherRounds::begin(std::span<const Piece> whole, std::span<const int> members) {
  shards_.resize(members.size());
  for (std::vector<Piece>& shard : shards_) shard.clear();
  const auto place_of = [&](int rank) {
    const auto found = std::find(members.begin(), members.end(), rank);
    SEEKSIM_CHECK(found != members.end(), "rank %d is no member of the gather", rank);
    return std::size_t(found - members.begin());
  };
  int first_peer = -1, sent = 0;
  std::size_t place = 0;
  for (const Piece& piece : whole) {
    sent += piece.send;
    if (piece.send && first_peer < 0) first_peer = piece.peer;
    if (piece.send && piece.peer == first_peer) shards_[std::size_t(position_)].push_back(piece);
    if (piece.send) continue;
    if (place >= members.size() || members[place] != piece.peer) place = place_of(piece.peer);
    shards_[place].push_back(piece);
  }
  SEEKSIM_CHECK_EQ(std::size_t(sent), shards_[std::size_t(position_)].size() * (members.size() - 1));
}

std::span<const Piece> GatherRounds::pieces(int round, std::span<const int> members) {
  pieces_.clear();
  for (const GatherMove& move : moves_[std::size_t(round)]) {
    const bool sends = move.from == position_;
    for (Piece piece : shards_[std::size_t(move.shard)]) {
      piece.peer = members[std::size_t(sends ? move.to : move.from)];
      piece.send = sends;
      pieces_.push_back(piece);
    }
  }
  return pieces_;
}

}  // namespace seeksim::runtime
