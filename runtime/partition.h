// Partition: the one cut of the flat parameter space among the members, for every stage. Shards are contiguous, as even
// as the norm's blocks allow (NUMERICS.md, R5: 1024 elements inside slabs), so that an owner computes whole blocks; a
// parameter may have several owners. Gradients have what parameters have, and more: where wte has two uses, the head's
// share belongs to the owners of wte; the loss belongs to the last member.
#pragma once

#include <vector>

#include "runtime/gpt2_parameters.h"
#include "runtime/shard.h"

namespace seeksim::runtime {

// Elements [offset, offset + size) of the gradient space, which lie at `own` in their owner's reduced gradients.
struct OwnedRange {
  Index offset = 0;
  Index size = 0;
  Index own = 0;
};

// A parameter's elements inside a shard: [first, first + size) of the parameter.
struct ParameterPiece {
  const ParameterInfo* parameter = nullptr;
  Index first = 0;
  Index size = 0;
  Index offset() const { return parameter->offset + first; }  // in the flat space
};

class Partition {
 public:
  Partition(const Gpt2Parameters& parameters, int members);

  int members() const { return int(bounds_.size()) - 1; }
  ShardInfo shard(int member) const { return {bounds_[member], bounds_[member + 1] - bounds_[member]}; }
  // What falls into [lo, hi) of the flat space.
  ShardInfo shard_in(int member, Index lo, Index hi) const;
  std::vector<ParameterPiece> pieces(ShardInfo shard) const;

  // Reduced gradients of a member: its shard, then its part of the head's share, then (the last member) the loss.
  Index own_size(int member) const { return shard(member).size + head_size(member) + (is_last(member) ? 1 : 0); }
  Index head_size(int member) const;
  bool is_last(int member) const { return member + 1 == members(); }
  // Those in [lo, hi) of the gradient space, ascending in `own`, without empty ones.
  std::vector<OwnedRange> owned(int member, Index lo, Index hi) const;

  // The blocks of the norm, numbered through the flat space.
  Index norm_blocks() const { return first_block_.back(); }
  Index norm_blocks_before(Index bound) const;  // of a shard's bound
  Index first_norm_block(Index parameter) const { return first_block_[parameter]; }

 private:
  Index bound_near(Index target) const;
  const ParameterInfo& at(Index element) const;

  const Gpt2Parameters& parameters_;
  std::vector<Index> bounds_;       // members + 1
  std::vector<Index> first_block_;  // parameters + 1
};

}  // namespace seeksim::runtime
