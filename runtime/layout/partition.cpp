// Bounds are found by arithmetic, not in a list of blocks: a model of 1.5 billion parameters has 1.5 million of them.
#include "runtime/layout/partition.h"

#include <algorithm>

#include "kernels/check.h"
#include "runtime/layout/placement_rule.h"
#include "runtime/rules/bugs.h"

namespace seeksim::runtime {

using kernels::kBlock;

namespace {

Index blocks_in(Index elements) { return (elements + kBlock - 1) / kBlock; }

Index norm_blocks_of(const ParameterInfo& p) {
  const Index whole = p.size / p.slab;
  return whole * blocks_in(p.slab) + blocks_in(p.size % p.slab);
}

}  // namespace

Partition::Partition(const Parameters& parameters, int members) : parameters_(parameters) {
  SEEKSIM_CHECK(members > 0, "%d members", members);
  first_block_.push_back(0);
  for (const ParameterInfo* p : parameters.trainable()) {
    first_block_.push_back(first_block_.back() + norm_blocks_of(*p));
  }
  cut(members);
}

void Partition::cut(int members) {
  bounds_.clear();
  frozen_.clear();
  const Index trainable = parameters_.trainable_size(), frozen = parameters_.size() - trainable;
  for (int i = 0; i <= members; ++i) {
    bounds_.push_back(bound_near(begin_of(i, members)));
    SEEKSIM_CHECK(i == 0 || bounds_[i] >= bounds_[i - 1], "shard %d of %d begins at %lld, before the one in front", i,
                  members, static_cast<long long>(bounds_[i]));
    frozen_.push_back(bound_near(trainable + Index(i) * frozen / members));
  }
}

Index Partition::begin_of(int shard, int shards) const {
  const Index trainable = parameters_.trainable_size();
  const PlacementRule* const rule = parameters_.placement();
  if (rule == nullptr || shard == 0 || shard == shards) return Index(shard) * trainable / shards;
  const Index begin = rule->begin(parameters_, shard, shards);
  SEEKSIM_CHECK(begin >= 0 && begin <= trainable, "shard %d of %d begins at %lld of %lld", shard, shards,
                static_cast<long long>(begin), static_cast<long long>(trainable));
  return begin;
}

const Partition::Row& Partition::row(Index element) const {
  return element < parameters_.trainable_size() ? parameters_.trainable() : parameters_.frozen();
}

Partition::Row::const_iterator Partition::at(Index element) const {
  const Row& all = row(element);
  return std::upper_bound(all.begin(), all.end(), element,
                          [](Index x, const ParameterInfo* p) { return x < p->offset; }) -
         1;
}

// The nearest bound of a norm block.
Index Partition::bound_near(Index target) const {
  if (target <= 0 || target >= parameters_.size()) return target;
  const ParameterInfo& p = **at(target);
  if (p.undivided && !divides_all_) {
    const Index each = p.experts > 0 ? p.of_expert : p.size, first = (target - p.offset) / each * each;
    return p.offset + (target - p.offset - first <= first + each - (target - p.offset) ? first : first + each);
  }
  const Index slab_begin = (target - p.offset) / p.slab * p.slab;
  const Index slab_end = std::min(slab_begin + p.slab, p.size);
  const Index lo = slab_begin + (target - p.offset - slab_begin) / kBlock * kBlock;
  const Index hi = std::min(lo + kBlock, slab_end);
  return p.offset + (target - p.offset - lo <= hi - (target - p.offset) ? lo : hi);
}

ShardInfo Partition::shard_in(int member, Index lo, Index hi) const {
  const Index trainable = parameters_.trainable_size();
  SEEKSIM_CHECK(hi <= trainable || lo >= trainable, "[%lld, %lld) holds both", static_cast<long long>(lo),
                static_cast<long long>(hi));
  const std::vector<Index>& bounds = hi <= trainable ? bounds_ : frozen_;
  const Index first = std::clamp(hi <= trainable ? begin(member) : frozen_[member], lo, hi);
  return {first, std::clamp(bounds[member + 1], lo, hi) - first};
}

bool Partition::is_bound(const ParameterInfo& parameter, Index first) {
  if (parameter.undivided)
    return first == 0 || first == parameter.size || (parameter.experts > 0 && first % parameter.of_expert == 0);
  return first % parameter.slab % kBlock == 0 || first == parameter.size;
}

void Partition::plant(const PlantedBug& bug) {
  if (members() < 2) return;
  if (bug.is(Bug::muon_cuts_matrices)) {
    divides_all_ = true;
    cut(members());
  }
  if (bug.is(Bug::gap_in_shards)) moved_ = std::min<Index>(1, shard(1).size);
  if (bug.is(Bug::overlapping_shards) && bounds_[1] > 0)
    moved_ = bound_near(std::max<Index>(bounds_[1] - kBlock, 0)) - bounds_[1];
}

std::vector<ParameterPiece> Partition::pieces(ShardInfo shard) const {
  std::vector<ParameterPiece> pieces;
  const Index end = shard.offset + shard.size;
  if (shard.size == 0) return pieces;
  for (auto p = at(shard.offset); p != row(shard.offset).end() && (*p)->offset < end; ++p) {
    const Index begin = (*p)->offset;
    const Index first = std::max(begin, shard.offset), last = std::min(begin + (*p)->size, end);
    // A piece is one stretch of the whole parameter.
    for (Index at = first - begin; at < last - begin;) {
      const Index next = std::min(at - at % (*p)->stretch() + (*p)->stretch(), last - begin);
      pieces.push_back({*p, at, next - at});
      at = next;
    }
  }
  return pieces;
}

Index Partition::head_size(int member) const {
  if (!parameters_.shares_head()) return 0;
  const ParameterInfo& wte = parameters_.wte();
  return shard_in(member, wte.offset, wte.offset + wte.size).size;
}

std::vector<OwnedRange> Partition::owned(int member, Index lo, Index hi) const {
  std::vector<OwnedRange> ranges;
  auto add = [&](Index offset, Index size, Index own) {
    const Index begin = std::max(offset, lo), end = std::min(offset + size, hi);
    if (begin < end) ranges.push_back({begin, end - begin, own + begin - offset});
  };
  const ShardInfo mine = shard(member);
  add(mine.offset, mine.size, 0);
  if (parameters_.shares_head()) {
    // wte is the first trainable parameter; its second use lies behind all of them.
    add(parameters_.head_gradient_offset() + mine.offset, head_size(member), mine.size);
  }
  if (is_last(member)) add(parameters_.loss_offset(), 1, mine.size + head_size(member));
  return ranges;
}

Index Partition::norm_blocks_before(Index bound) const {
  if (bound >= parameters_.trainable_size()) return norm_blocks();
  const auto place = at(bound);
  const ParameterInfo& p = **place;
  const Index inside = bound - p.offset, slabs = inside / p.slab;
  return first_block_[place - parameters_.trainable().begin()] + slabs * blocks_in(p.slab) + inside % p.slab / kBlock;
}

}  // namespace seeksim::runtime
