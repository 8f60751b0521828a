// Steps in closed form against the same steps one by one.
#include "harness/campaign/stretch.h"

#include <gtest/gtest.h>

#include "harness/campaign/nodes.h"
#include "sim/random.h"

namespace seeksim::harness::campaign {
namespace {

TEST(Stretch, IsWhatItsStepsAreOneByOne) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    sim::Random random(seed, sim::Stream(2));
    const TimeNs begin = random.below(1000), step = 1 + random.below(50);
    const std::int64_t first = random.below(100);
    std::vector<Stretch::Stop> stops(random.below(3));
    for (Stretch::Stop& stop : stops) stop = {1 + random.below(9), TimeNs(random.below(70))};
    const Stretch stretch(begin, first, step, stops);
    std::vector<TimeNs> commits = {begin}, over = {begin};
    for (TimeNs now = begin; commits.size() < 60;) {
      commits.push_back(now += step);
      for (std::size_t i = 0; i < stops.size(); ++i) {
        if ((first + std::int64_t(commits.size()) - 1) % stops[i].every != 0) continue;
        ASSERT_EQ(stretch.checkpoint_begins(i, std::int64_t(commits.size()) - 1), now);
        now += stops[i].blocks_ns;
      }
      over.push_back(now);
    }
    std::int64_t j = 0;
    for (TimeNs at = begin; at < over[58]; ++at) {
      while (commits[std::size_t(j) + 1] <= at) ++j;
      ASSERT_EQ(stretch.committed(at), j) << "seed " << seed << " at " << at;
      ASSERT_EQ(stretch.commit(j), commits[std::size_t(j)]);
      const auto end = std::lower_bound(over.begin(), over.end(), at);
      ASSERT_EQ(stretch.in_order(at), *end);
    }
  }
}

TEST(Nodes, CopiesLastUnlessAllKeepersAreLost) {
  EXPECT_TRUE(copies_last({}, 8, 1, 1));
  EXPECT_TRUE(copies_last({3}, 8, 1, 1));
  EXPECT_FALSE(copies_last({3, 4}, 8, 1, 1));
  EXPECT_TRUE(copies_last({3, 5}, 8, 1, 1));
  EXPECT_FALSE(copies_last({7, 0}, 8, 1, 1));
  EXPECT_TRUE(copies_last({3, 4}, 8, 2, 1));
  EXPECT_FALSE(copies_last({3, 4, 5}, 8, 2, 1));
  EXPECT_FALSE(copies_last({0}, 1, 1, 1)) << "a single node keeps its own copy";
}

}  // namespace
}  // namespace seeksim::harness::campaign
