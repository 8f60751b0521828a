#include "runtime/seams/rank_names.h"

#include <gtest/gtest.h>

namespace seeksim::runtime {
namespace {

TEST(RankNames, AListJoinsThreeNeighboursAndMore) {
  EXPECT_EQ(rank_list({0, 1, 2, 3, 4, 6, 7}), "0-4, 6, 7");
  EXPECT_EQ(rank_list({}), "");
  EXPECT_EQ(rank_list({3, 5}), "3, 5");
}

TEST(RankNames, ASentenceJoinsNeighboursOnlyWhereThereAreMany) {
  EXPECT_EQ(rank_names({3}), "rank 3");
  EXPECT_EQ(rank_names({1, 2, 3, 5}), "ranks 1, 2, 3 and 5");
  EXPECT_EQ(rank_names({0, 1, 2, 3, 4, 5, 6, 7, 9}), "ranks 0-7 and 9");
}

}  // namespace
}  // namespace seeksim::runtime
