#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "kernels/tree.h"
#include "runtime/layout/shard.h"

namespace seeksim::runtime {
namespace {

TEST(Shards, AreDisjointCoverAllAndEndOnBlocks) {
  rc::check([] {
    const Index n = *rc::gen::inRange<Index>(0, 200000);
    const int count = *rc::gen::inRange(1, 70);
    const auto shards = shard_evenly(n, count);
    RC_ASSERT(int(shards.size()) == count);
    Index at = 0, least = n, most = 0;
    for (int i = 0; i < count; ++i) {
      RC_ASSERT(shards[i] == shard_of(n, count, i));
      RC_ASSERT(shards[i].offset == at);
      at += shards[i].size;
      RC_ASSERT(at % kernels::kBlock == 0 || at == n);
      least = std::min(least, shards[i].size);
      most = std::max(most, shards[i].size);
    }
    RC_ASSERT(at == n);
    RC_ASSERT(most - least <= 2 * kernels::kBlock);
  });
}

TEST(SampleCuts, AreDisjointCoverAllAndAreEven) {
  rc::check([] {
    const Index batch = *rc::gen::inRange<Index>(0, 3000);
    const int count = *rc::gen::inRange(1, 70);
    const auto cuts = cut_samples(batch, count);
    Index at = 0, least = batch, most = 0;
    for (int i = 0; i < count; ++i) {
      RC_ASSERT(cuts[i] == samples_of(batch, count, i));
      RC_ASSERT(cuts[i].begin == at);
      at = cuts[i].end;
      least = std::min(least, cuts[i].size());
      most = std::max(most, cuts[i].size());
    }
    RC_ASSERT(at == batch);
    if (batch % count == 0) {
      RC_ASSERT(most == least);
    } else if (batch < 8 * count) {
      RC_ASSERT(most - least == 1);
    } else {
      for (int i = 1; i < count; ++i) RC_ASSERT(cuts[i].begin % 8 == 0);
      RC_ASSERT(most - least <= 15);
    }
  });
}

TEST(MicroBatches, AreAsManyAsTheSizeAsksFor) {
  rc::check([] {
    const Index begin = *rc::gen::inRange<Index>(0, 500);
    const Index size = *rc::gen::inRange<Index>(0, 200);
    const Index micro = *rc::gen::inRange<Index>(1, 40);
    const auto cuts = micro_batches({begin, begin + size}, micro);
    RC_ASSERT(Index(cuts.size()) == (size + micro - 1) / micro);
    Index at = begin;
    for (const SampleRange& cut : cuts) {
      RC_ASSERT(cut.begin == at && cut.size() > 0 && cut.size() <= micro);
      at = cut.end;
    }
    RC_ASSERT(at == begin + size);
  });
}

TEST(MicroBatches, BeginOnMultiplesWhereThatCostsNone) {
  EXPECT_EQ(micro_batches({3, 6}, 2), (std::vector<SampleRange>{{3, 4}, {4, 6}}));
  EXPECT_EQ(micro_batches({3, 7}, 2), (std::vector<SampleRange>{{3, 5}, {5, 7}}));
  EXPECT_EQ(micro_batches({0, 5}, 2), (std::vector<SampleRange>{{0, 2}, {2, 4}, {4, 5}}));
}

}  // namespace
}  // namespace seeksim::runtime
