// Cuts: of flat tensors among owners, and of a step's samples among ranks and micro-batches. All are pure functions
// that every rank computes alike; none of them decides a bit (docs/numerics.md#r3), so they are chosen for memory and
// traffic.
#include "runtime/layout/shard.h"

#include <algorithm>

#include "kernels/check.h"

namespace seeksim::runtime {

using kernels::kBlock;

ShardInfo shard_of(Index n, int count, int owner) {
  SEEKSIM_CHECK(n >= 0 && count > 0 && owner >= 0 && owner < count, "owner %d of %d", owner, count);
  const Index blocks = (n + kBlock - 1) / kBlock;
  const Index each = blocks / count;
  const Index first_with_fewer = blocks % count;  // owners before it hold one block more
  const Index begin = owner * each + std::min<Index>(owner, first_with_fewer);
  const Index end = begin + each + (owner < first_with_fewer ? 1 : 0);
  return {std::min(begin * kBlock, n), std::min(end * kBlock, n) - std::min(begin * kBlock, n)};
}

ShardInfo common(ShardInfo a, ShardInfo b) {
  const Index begin = std::max(a.offset, b.offset), end = std::min(a.offset + a.size, b.offset + b.size);
  return {begin, std::max<Index>(end - begin, 0)};
}

std::vector<ShardInfo> shard_evenly(Index n, int count) {
  std::vector<ShardInfo> shards;
  for (int owner = 0; owner < count; ++owner) shards.push_back(shard_of(n, count, owner));
  return shards;
}

SampleRange samples_of(Index global_batch, int count, int member, Index grain) {
  SEEKSIM_CHECK(global_batch >= 0 && count > 0 && member >= 0 && member < count, "member %d of %d", member, count);
  if (grain > 1) {
    const SampleRange parts = samples_of(global_batch / grain, count, member);
    return {parts.begin * grain, parts.end * grain};
  }
  // Subtree roots are fewest when cuts lie on multiples of a power of two; 8 costs at most 4 samples of imbalance.
  const bool on_eights = global_batch % count != 0 && global_batch >= 8 * Index(count);
  auto cut = [&](Index i) {
    if (i == count) return global_batch;
    const Index even = i * global_batch / count;
    return on_eights ? (even + 4) / 8 * 8 : even;
  };
  return {cut(member), cut(member + 1)};
}

std::vector<SampleRange> cut_samples(Index global_batch, int count) {
  std::vector<SampleRange> cuts;
  for (int member = 0; member < count; ++member) cuts.push_back(samples_of(global_batch, count, member));
  return cuts;
}

SampleRange StepCut::own() const {
  return groups == 1 ? SampleRange{0, leaves} : samples_of(leaves, groups, group, grain);
}

int StepCut::count() const {
  if (!interleaved) return 1;
  const Index of_all = Index(members) * each * micro;
  Index most = own().size();
  for (int other = 0; groups > 1 && other < groups; ++other)
    most = std::max(most, samples_of(leaves, groups, other, grain).size());
  return static_cast<int>((most + of_all - 1) / of_all);
}

SampleRange StepCut::window(int k) const {
  const SampleRange all = own();
  if (!interleaved) return all;
  const Index of_all = Index(members) * each * micro;
  return {std::min(all.begin + k * of_all, all.end), std::min(all.begin + (k + 1) * of_all, all.end)};
}

SampleRange StepCut::samples(int k, int member) const {
  return {samples_of_rank(k, member * each).begin, samples_of_rank(k, (member + 1) * each - 1).end};
}

SampleRange StepCut::samples_of_rank(int k, int rank) const {
  const int ranks = members * each;
  if (!interleaved) {
    const SampleRange all = own(), cut = samples_of(all.size(), ranks, rank, grain);
    return {all.begin + cut.begin, all.begin + cut.end};
  }
  const SampleRange all = window(k);
  const Index parts = all.size() / grain;
  return {all.begin + rank * parts / ranks * grain, all.begin + (rank + 1) * parts / ranks * grain};
}

std::vector<SampleRange> micro_batches(SampleRange samples, Index micro_batch) {
  SEEKSIM_CHECK(micro_batch > 0, "micro-batches of %lld samples", static_cast<long long>(micro_batch));
  const Index count = (samples.size() + micro_batch - 1) / micro_batch;
  // A short first micro-batch puts all later cuts on multiples, if that costs no micro-batch more.
  const Index to_multiple = (micro_batch - samples.begin % micro_batch) % micro_batch;
  const bool aligned = to_multiple > 0 && to_multiple < samples.size() &&
                       1 + (samples.size() - to_multiple + micro_batch - 1) / micro_batch == count;
  std::vector<SampleRange> cuts;
  Index begin = samples.begin;
  while (begin < samples.end) {
    const Index size = cuts.empty() && aligned ? to_multiple : micro_batch;
    cuts.push_back({begin, std::min(begin + size, samples.end)});
    begin = cuts.back().end;
  }
  return cuts;
}

std::vector<SampleRange> micro_batches_of_parts(SampleRange samples, Index micro_batch, Index part) {
  std::vector<SampleRange> all;
  for (Index begin = samples.begin; begin < samples.end; begin += part) {
    const std::vector<SampleRange> own = micro_batches({begin, begin + part}, micro_batch);
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

}  // namespace seeksim::runtime
