// Partition: the one cut of the flat parameter space among the members, for every stage. Shards are contiguous, as even
// as the norm's blocks allow (docs/numerics.md#r5: 1024 elements inside slabs), so that an owner computes whole blocks;
// a parameter may have several owners. Trainable and frozen parameters are cut apart from each other, since only the
// former cost an owner more than their values. Gradients have what trainable parameters have, and more: where wte has
// two uses, the head's share belongs to the owners of wte; the loss belongs to the last member.
#pragma once

#include <vector>

#include "runtime/layout/parameters.h"
#include "runtime/layout/shard.h"

namespace seeksim::runtime {

// Elements [offset, offset + size) of the gradient space, which lie at `own` in their owner's reduced gradients.
struct OwnedRange {
  Index offset = 0;
  Index size = 0;
  Index own = 0;
};

// A parameter's elements inside a shard: [first, first + size) of what is here of it, one stretch of the whole one too.
struct ParameterPiece {
  const ParameterInfo* parameter = nullptr;
  Index first = 0;
  Index size = 0;
  Index offset() const { return parameter->offset + first; }  // in the flat space
};

class Partition {
 public:
  Partition(const Parameters& parameters, int members);

  int members() const { return int(bounds_.size()) - 1; }
  ShardInfo shard(int member) const { return {begin(member), bounds_[member + 1] - begin(member)}; }
  // A member's frozen parameters, behind all trainable ones.
  ShardInfo frozen(int member) const { return {frozen_[member], frozen_[member + 1] - frozen_[member]}; }
  // What falls into [lo, hi) of the flat space, which holds trainable or frozen elements only.
  ShardInfo shard_in(int member, Index lo, Index hi) const;
  std::vector<ParameterPiece> pieces(ShardInfo shard) const;

  // Reduced gradients of a member: its shard, then its part of the head's share, then (the last member) the loss.
  Index own_size(int member) const { return shard(member).size + head_size(member) + (is_last(member) ? 1 : 0); }
  Index head_size(int member) const;
  bool is_last(int member) const { return member + 1 == members(); }
  // Those in [lo, hi) of the gradient space, ascending in `own`, without empty ones.
  std::vector<OwnedRange> owned(int member, Index lo, Index hi) const;

  // A planted bug: where the second shard begins.
  void plant(const PlantedBug& bug);
  static bool is_bound(const ParameterInfo& parameter, Index first);  // of the norm's blocks

  // The blocks of the norm, numbered through the trainable part.
  Index norm_blocks() const { return first_block_.back(); }
  Index norm_blocks_before(Index bound) const;  // of a shard's bound
  Index first_norm_block(Index trainable) const { return first_block_[trainable]; }

 private:
  Index begin(int member) const { return bounds_[member] + (member == 1 ? moved_ : 0); }
  void cut(int members);
  Index begin_of(int shard, int shards) const;  // before it is taken to a bound
  Index bound_near(Index target) const;
  using Row = std::vector<const ParameterInfo*>;
  const Row& row(Index element) const;
  Row::const_iterator at(Index element) const;  // in its row

  const Parameters& parameters_;
  std::vector<Index> bounds_, frozen_;  // members + 1
  std::vector<Index> first_block_;      // trainable parameters + 1
  Index moved_ = 0;                     // the beginning of the second shard, by a planted bug
  bool divides_all_ = false;            // matrices too, by another
};

}  // namespace seeksim::runtime
