// The order of a set of samples: a permutation for each epoch, by which any rank can tell any place.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "runtime/samples/data.h"

namespace seeksim::runtime {
namespace {

using Rows = std::vector<std::int64_t>;

Definition definition_of(SampleOrder order, std::int64_t samples, int batch, bool drop_last = false) {
  Definition d;
  d.model.context = 4;
  d.model.vocab = 50;
  d.data.synthetic = true;
  d.data.sampler = {order, -1, samples, drop_last};
  d.global_batch = batch;
  return d;
}

Rows rows(const Sampler& sampler, std::int64_t first, std::int64_t count) {
  Rows all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(sampler.row(first + i));
  return all;
}

TEST(Sampler, EachEpochIsAPermutation) {
  for (const std::int64_t n : {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 1000, 4097}) {
    for (const std::int64_t epoch : {std::int64_t(0), std::int64_t(1), std::int64_t(1) << 40}) {
      Rows all;
      for (std::int64_t i = 0; i < n; ++i) all.push_back(shuffled_row(7, epoch, n, i));
      std::sort(all.begin(), all.end());
      Rows wanted(static_cast<std::size_t>(n));
      std::iota(wanted.begin(), wanted.end(), 0);
      ASSERT_EQ(all, wanted) << n << " samples, epoch " << epoch;
    }
  }
}

TEST(Sampler, EpochsAndSeedsHaveOrdersOfTheirOwn) {
  const Sampler sampler(definition_of(SampleOrder::shuffled, 100, 10));
  std::set<Rows> orders;
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) orders.insert(rows(sampler, epoch * 100, 100));
  for (std::uint64_t seed = 10; seed < 20; ++seed) orders.insert(rows(sampler.with_seed(seed), 0, 100));
  EXPECT_EQ(orders.size(), 30u);
  EXPECT_EQ(rows(sampler.without_epochs(), 0, 100), rows(sampler.without_epochs(), 100, 100)) << "the planted mistake";
}

// Each sample is at each place about as often as at any other: 20 samples, 4000 epochs.
TEST(Sampler, NoPlaceIsPreferred) {
  constexpr std::int64_t kSamples = 20, kEpochs = 4000;
  std::vector<std::vector<int>> seen(kSamples, std::vector<int>(kSamples));
  for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch)
    for (std::int64_t i = 0; i < kSamples; ++i)
      ++seen[std::size_t(i)][std::size_t(shuffled_row(3, epoch, kSamples, i))];
  for (const std::vector<int>& place : seen)
    for (const int times : place) EXPECT_NEAR(times, 200, 75) << "5.4 standard deviations";
}

TEST(Sampler, ABatchGoesOnIntoTheNextEpochOrItsRestIsLeftOut) {
  const Sampler goes_on(definition_of(SampleOrder::sequential, 10, 4));
  EXPECT_EQ(rows(goes_on, 8, 4), (Rows{8, 9, 0, 1}));
  EXPECT_EQ(goes_on.at(11), (SamplerState{1, 1, 1}));
  const Sampler drops(definition_of(SampleOrder::sequential, 10, 4, true));
  EXPECT_EQ(drops.used_in_epoch(), 8);
  EXPECT_EQ(rows(drops, 4, 8), (Rows{4, 5, 6, 7, 0, 1, 2, 3}));
  EXPECT_EQ(drops.at(8), (SamplerState{1, 1, 0}));
  EXPECT_THROW(Sampler(definition_of(SampleOrder::sequential, 3, 4, true)), std::runtime_error);
}

TEST(Sampler, ATextIsCutInStretchesThatFollowEachOther) {
  Definition d = definition_of(SampleOrder::sequential, 0, 2);
  d.data.synthetic = false;
  d.model.vocab = 256;
  d.data.bytes = "abcdefghijklmnopq";  // 17 bytes: 4 samples of 5
  EXPECT_EQ(samples_of_data(d), 4);
  std::vector<std::int32_t> tokens(5);
  data_source(d).sample(1, tokens.data());
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{'e', 'f', 'g', 'h', 'i'}));
  data_source(d).sample(7, tokens.data());
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{'m', 'n', 'o', 'p', 'q'})) << "the last one of the second epoch";
  d.data.held_out_bytes = 1;
  EXPECT_EQ(samples_of_data(d), 3) << "16 bytes";
}

}  // namespace
}  // namespace seeksim::runtime
