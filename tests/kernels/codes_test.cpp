// Tensors in 8 bits by blocks: codes and worth against a second text of the definition, in each type; and the laws that
// quantised weights rest on.
#include "kernels/compression.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/check.h"
#include "tests/kernels/half.h"

namespace seeksim::kernels::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// Two runs: blocks begin again with the second.
std::vector<WireRun> runs_of(Index first, Index second, Index block) {
  return {{0, first, 0}, {first, second, code_bytes(first, block)}};
}

struct Sent {
  std::vector<std::byte> wire;
  Floats values;
};

Sent send(const Floats& x, const std::vector<WireRun>& runs, CodeForm form) {
  const WireRun& last = runs.back();
  Sent sent{std::vector<std::byte>(std::size_t(last.at + code_bytes(last.n, form.block)), std::byte{0xa5}),
            Floats(x.size(), kNaN)};
  quantise(Lane{}, form, {runs, 0, 0}, {x.data(), Index(x.size())}, {sent.wire.data(), Index(sent.wire.size())});
  dequantise(Lane{}, form, {runs, 0, 0}, {sent.wire.data(), Index(sent.wire.size())},
             {sent.values.data(), Index(x.size())});
  return sent;
}

// The nearest multiple of the scale, of two equally near ones the even one, by looking at all 255.
float nearest(float x, float scale) {
  int best = -127;
  const auto gap = [&](int code) { return std::fabs(double(x / scale) - code); };
  for (int code = -127; code <= 127; ++code)
    if (gap(code) < gap(best) || (gap(code) == gap(best) && code % 2 == 0)) best = code;
  return float(best) * scale;
}

Floats tensor(unsigned seed, std::size_t n, int least, int most) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> exponent(least, most);
  std::uniform_real_distribution<float> mantissa(-2.0F, 2.0F);
  Floats x(n);
  for (float& value : x) value = std::ldexp(mantissa(random), exponent(random));
  for (std::size_t i = 0; i < n; i += 17) x[i] = i % 2 == 0 ? 0.0F : -0.0F;
  return x;
}

TEST(Int8, IsTheNearestMultipleOfTheBlocksScale) {
  for (const Index block : {1, 4, 64, 1024}) {
    for (const auto& [least, most] : {std::pair{-4, 4}, {-100, -90}, {90, 120}}) {
      const Index first = 1300, second = 77;
      const Floats x = tensor(unsigned(block), std::size_t(first + second), least, most);
      const Sent sent = send(x, runs_of(first, second, block), {block});
      for (Index begin = 0; begin < Index(x.size());) {
        const Index end = std::min(begin < first ? first : first + second, begin + block);
        float largest = 0;
        for (Index i = begin; i < end; ++i) largest = std::max(largest, std::fabs(x[std::size_t(i)]));
        for (Index i = begin; i < end; ++i) {
          const float want = largest == 0 ? 0.0F : nearest(x[std::size_t(i)], largest / 127.0F);
          ASSERT_EQ(sent.values[std::size_t(i)], want) << "block " << block << ", element " << i;
        }
        begin = end;
      }
    }
  }
}

TEST(Int8, KeepsZerosAndRoundsTiesToEven) {
  const Floats x = {127.0F, 0.0F, -0.0F, 0.5F, 1.5F, -2.5F, 126.5F, -127.0F};
  EXPECT_EQ(send(x, {{0, 8, 0}}, {8}).values, (Floats{127.0F, 0.0F, 0.0F, 0.0F, 2.0F, -2.0F, 126.0F, -127.0F}));
  EXPECT_EQ(send(Floats(5, 0.0F), {{0, 5, 0}}, {8}).values, Floats(5, 0.0F));
}

// Of numbers so small that a 127th of them is none, nothing is left; a scale that is denormal saturates and is finite.
TEST(Int8, OfTheSmallestNumbersIsFinite) {
  EXPECT_EQ(send({0x1p-149F, -0x1p-149F}, {{0, 2, 0}}, {2}).values, (Floats{0.0F, 0.0F}));
  for (const float value : send({190 * 0x1p-149F, -3 * 0x1p-149F}, {{0, 2, 0}}, {2}).values)
    EXPECT_TRUE(std::isfinite(value));
}

// Only its block: what is next to it stays.
TEST(Int8, ABlockWithAValueThatIsNotFiniteBecomesNaN) {
  for (const float bad : {kNaN, kInf, -kInf}) {
    Floats x(12, 1.0F);
    x[5] = bad;
    const Floats got = send(x, {{0, 12, 0}}, {4}).values;
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(std::isnan(got[i]), i / 4 == 1) << i;
  }
}

// Owners of parts, in any cut at blocks, make the wire of the whole.
TEST(Int8, PartsMakeTheWireOfTheWhole) {
  const Index block = 64, first = 1300, second = 500;
  const std::vector<WireRun> runs = runs_of(first, second, block);
  const Floats x = tensor(3, std::size_t(first + second), -3, 3);
  const Sent whole = send(x, runs, {block});
  std::vector<std::byte> wire(whole.wire.size(), std::byte{0x5a});
  const Index bounds[] = {0, 640, 1280, first, first + 128, first + second};
  const Index bytes[] = {0,
                         code_bytes(640, block),
                         code_bytes(1280, block),
                         runs[1].at,
                         runs[1].at + code_bytes(128, block),
                         Index(wire.size())};
  for (std::size_t i = 0; i + 1 < std::size(bounds); ++i)
    quantise(Lane{}, {block}, {runs, bounds[i], bytes[i]}, {x.data() + bounds[i], bounds[i + 1] - bounds[i]},
             {wire.data() + bytes[i], bytes[i + 1] - bytes[i]});
  EXPECT_EQ(wire, whole.wire);
}

TEST(Int8, WithoutAWireIsTheSame) {
  const Floats x = tensor(5, 3000, -3, 3);
  std::vector<WireRun> runs;
  for (Index at = 0, byte = 0; at < 3000; at += 700) {
    const Index n = std::min<Index>(700, 3000 - at);
    runs.push_back({at, n, byte});
    byte += code_bytes(n, 128);
  }
  Floats y(x.size(), kNaN);
  through_codes(Lane{}, {128}, 700, {x.data(), 3000}, {y.data(), 3000});
  EXPECT_EQ(y, send(x, runs, {128}).values);
}

// In 16 bits the sequence is that of fp32 on the widened elements, and the worth is rounded once.
template <class T>
void has_the_worth_of_fp32() {
  const Floats drawn = tensor(7, 900, -3, 3);
  std::vector<T> x(drawn.size()), y(drawn.size());
  Floats wide(drawn.size()), worth(drawn.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = round_one<T>(drawn[i]), wide[i] = widen_one(x[i]);
  through_codes(Lane{}, {64}, 900, {wide.data(), 900}, {worth.data(), 900});
  through_codes<T>(Lane{}, {64}, 900, {x.data(), 900}, {y.data(), 900});
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i].bits, round_one<T>(worth[i]).bits) << i;
}
TEST(Int8, In16BitsHasTheWorthOfFp32RoundedOnce) {
  has_the_worth_of_fp32<bf16>();
  has_the_worth_of_fp32<fp16>();
}

TEST(Int8, EachPlantedSlipGivesOtherValues) {
  const Floats x = tensor(9, 512, -3, 3);
  const Floats right = send(x, {{0, 512, 0}}, {64}).values;
  for (const CodeSlip slip : {CodeSlip::one_scale, CodeSlip::cut_off})
    EXPECT_NE(send(x, {{0, 512, 0}}, {64, slip}).values, right) << int(slip);
  std::vector<bf16> in(512), out(512), other(512);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = round_one<bf16>(x[i]);
  through_codes<bf16>(Lane{}, {64}, 512, {in.data(), 512}, {out.data(), 512});
  through_codes<bf16>(Lane{}, {64, CodeSlip::as_fp16}, 512, {in.data(), 512}, {other.data(), 512});
  EXPECT_FALSE(std::equal(out.begin(), out.end(), other.begin(), [](bf16 a, bf16 b) { return a.bits == b.bits; }));
}

TEST(Int8, ABlockThatIsCutIsRefused) {
  const Floats x(10, 1.0F);
  std::vector<std::byte> wire(100);
  EXPECT_THROW(quantise(Lane{}, {4}, {std::vector<WireRun>{{0, 10, 0}}, 2, 6}, {x.data(), 8}, {wire.data(), 100}),
               CheckError);
}

// ---- codes of 4 bits, and sums of codes
// ------------------------------------------------------------------------------

constexpr CodeForm in4(Index block) { return {block, CodeSlip::none, 4}; }

std::vector<std::byte> wire_of(const Floats& x, CodeForm form) {
  std::vector<std::byte> wire(std::size_t(code_bytes(Index(x.size()), form.block, form.bits)), std::byte{0xa5});
  quantise(Lane{}, form, {std::vector<WireRun>{{0, Index(x.size()), 0}}, 0, 0}, {x.data(), Index(x.size())},
           {wire.data(), Index(wire.size())});
  return wire;
}

TEST(Codes4, TwoGoToAByteTheEarlierOneInTheLowHalf) {
  const std::vector<std::byte> wire = wire_of({7.0F, -7.0F, 1.0F, 3.5F, -2.0F}, in4(8));
  ASSERT_EQ(wire.size(), 7U);  // a scale and three bytes
  float scale = 0;
  std::memcpy(&scale, wire.data(), sizeof scale);
  EXPECT_EQ(scale, 1.0F);
  EXPECT_EQ(wire[4], std::byte{0x97});
  EXPECT_EQ(wire[5], std::byte{0x41});
  EXPECT_EQ(wire[6], std::byte{0x0e});
}

TEST(Codes4, AreTheNearestMultipleOfTheBlocksScale) {
  for (const Index block : {1, 2, 64, 1024}) {
    const Floats x = tensor(unsigned(block), 1301, -3, 3);
    Floats worth(x.size(), kNaN), in_place = x;
    const std::vector<WireRun> runs = {{0, Index(x.size()), 0}};
    const std::vector<std::byte> wire = wire_of(x, in4(block));
    dequantise(Lane{}, in4(block), {runs, 0, 0}, {wire.data(), Index(wire.size())}, {worth.data(), Index(x.size())});
    through_codes(Lane{}, in4(block), CodePart{runs, 0, 0}, Vec<float>{in_place.data(), Index(x.size())});
    EXPECT_EQ(in_place, worth) << block;
    for (std::size_t begin = 0; begin < x.size(); begin += std::size_t(block)) {
      const std::size_t end = std::min(x.size(), begin + std::size_t(block));
      float largest = 0;
      for (std::size_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(x[i]));
      const float scale = largest / 7.0F;
      for (std::size_t i = begin; i < end; ++i) {
        const double code = scale > 0 ? double(worth[i]) / double(scale) : 0;
        EXPECT_LE(std::fabs(code), 7.0001);
        EXPECT_NEAR(code, std::nearbyint(code), 1e-5);
        EXPECT_LE(scale > 0 ? std::fabs(double(x[i] / scale) - code) : 0.0, 0.5001);
      }
    }
  }
}

// Parts in their order as leaves of a tree, at any place of a wire.
TEST(Codes, ASumIsTheTreeOverWhatItsPartsAreWorth) {
  for (const int bits : {4, 8}) {
    for (const Index count : {1, 2, 3, 5, 8}) {
      const CodeForm form{64, CodeSlip::none, bits};
      const Index n = 900, bytes = code_bytes(n, 64, bits);
      std::vector<std::byte> wires;
      std::vector<Floats> worth;
      for (Index k = 0; k < count; ++k) {
        const std::vector<std::byte> wire = wire_of(tensor(unsigned(k + 1), std::size_t(n), -3, 3), form);
        wires.insert(wires.end(), wire.begin(), wire.end());
        worth.emplace_back(std::size_t(n));
        dequantise(Lane{}, form, {std::vector<WireRun>{{0, n, 0}}, 0, 0}, {wire.data(), bytes},
                   {worth.back().data(), n});
      }
      std::vector<Floats> level = worth;
      while (level.size() > 1) {
        std::vector<Floats> next;
        for (std::size_t i = 0; i < level.size(); i += 2) {
          next.push_back(level[i]);
          for (std::size_t e = 0; i + 1 < level.size() && e < next.back().size(); ++e)
            next.back()[e] += level[i + 1][e];
        }
        level = next;
      }
      const Index first = 128, at = code_bytes(first, 64, bits);
      Floats sum(std::size_t(n - first), kNaN);
      sum_codes(Lane{}, form, {std::vector<WireRun>{{0, n, 0}}, first, at}, {count, bytes},
                {wires.data() + at, Index(wires.size()) - at}, {sum.data(), n - first}, 0.5F);
      for (Index i = 0; i < n - first; ++i)
        ASSERT_EQ(sum[std::size_t(i)], level[0][std::size_t(first + i)] * 0.5F) << bits << " bits, " << count;
    }
  }
}

TEST(Codes, EachSlipOfASumGivesOtherValues) {
  const Index n = 256, bytes = code_bytes(n, 64, 4);
  std::vector<std::byte> wires;
  for (unsigned k = 1; k <= 2; ++k)
    for (const std::byte b : wire_of(tensor(k, std::size_t(n), -3, 3), in4(64))) wires.push_back(b);
  const auto sum = [&](CodeSlip slip) {
    Floats out(std::size_t(n), kNaN);
    sum_codes(Lane{}, {64, slip, 4}, {std::vector<WireRun>{{0, n, 0}}, 0, 0}, {2, bytes},
              {wires.data(), Index(wires.size())}, {out.data(), n});
    return out;
  };
  for (const CodeSlip slip : {CodeSlip::neighbours_scale, CodeSlip::codes_summed, CodeSlip::halves_swapped})
    EXPECT_NE(sum(slip), sum(CodeSlip::none)) << int(slip);
}

TEST(Codes, ABlockThatIsNotFiniteStaysSoInASum) {
  Floats x(12, 1.0F);
  x[5] = kInf;
  std::vector<std::byte> wires = wire_of(x, in4(4));
  const Index bytes = Index(wires.size());
  const std::vector<std::byte> good = wire_of(Floats(12, 1.0F), in4(4));
  wires.insert(wires.end(), good.begin(), good.end());
  Floats sum(12);
  sum_codes(Lane{}, in4(4), {std::vector<WireRun>{{0, 12, 0}}, 0, 0}, {2, bytes}, {wires.data(), 2 * bytes},
            {sum.data(), 12});
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(std::isnan(sum[i]), i / 4 == 1) << i;
}

}  // namespace
}  // namespace seeksim::kernels::test
