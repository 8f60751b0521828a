// Poison is found wherever it stands, first place first, and nothing else is taken for it.
#include "runtime/launch/poison.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <vector>

namespace seeksim::runtime {
namespace {

constexpr Index kMany = 1300;  // two whole blocks and a part of one

template <class T>
std::optional<Index> found_in(std::vector<T>& values, Index offset = 0) {
  Buffer buffer;
  buffer.bytes = values.size() * sizeof(T);
  buffer.data = reinterpret_cast<std::byte*>(values.data());
  return find_poison(AnyVec(&buffer, offset, Index(values.size()) - offset, element_type<T>()));
}

TEST(Poison, OfFloatsIsFoundAtItsPlace) {
  const float fresh = std::bit_cast<float>(kPoisonFresh), aborted = std::bit_cast<float>(kPoisonAborted);
  for (const float pattern : {fresh, aborted, -fresh}) {
    for (const Index at : {0, 1, 511, 512, 1023, 1024, 1299}) {
      std::vector<float> values(kMany, 1.5f);
      values[std::size_t(at)] = pattern;
      EXPECT_EQ(found_in(values), at);
      values.back() = fresh;
      EXPECT_EQ(found_in(values), at) << "the first of two";
      EXPECT_EQ(found_in(values, at + 1 < kMany ? at + 1 : at), at + 1 < kMany ? kMany - 2 - at : 0)
          << "counted from where the values begin";
    }
  }
}

TEST(Poison, OfSixteenBitsIsFoundAtItsPlace) {
  for (const Index at : {0, 511, 512, 1299}) {
    std::vector<kernels::bf16> values(kMany);
    values[std::size_t(at)].bits = std::uint16_t(kPoisonFresh >> 16);
    EXPECT_EQ(found_in(values), at);
  }
}

TEST(Poison, OtherValuesAreNone) {
  std::vector<float> values(kMany, std::numeric_limits<float>::quiet_NaN());
  values[3] = std::numeric_limits<float>::infinity();
  values[600] = std::bit_cast<float>(kPoisonFresh ^ 1u);
  EXPECT_EQ(found_in(values), std::nullopt);
  std::vector<float> none;
  EXPECT_EQ(found_in(none), std::nullopt);
}

}  // namespace
}  // namespace seeksim::runtime
