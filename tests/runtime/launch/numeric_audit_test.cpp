// The audit lets the contract's results stand, whatever the vendor's are, and names the launch in which they are too
// far away.
#include "runtime/launch/numeric_audit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <string>
#include <vector>

#include "kernels/fast.h"
#include "kernels/gemm.h"
#include "kernels/tree.h"

namespace seeksim::runtime {
namespace {

using kernels::FastArithmetic;
using kernels::FastSlip;
using kernels::Lane;
using kernels::Trans;
using kernels::TreePart;
using Floats = std::vector<float>;

Floats drawn(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  Floats values(n);
  for (float& x : values) x = float(std::int64_t(rng() >> 40) - (1 << 23)) * 0x1p-23f / 3;
  return values;
}

bool same_bits(const Floats& a, const Floats& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return std::bit_cast<unsigned>(x) == std::bit_cast<unsigned>(y); });
}

Op op_of(std::int64_t step, const char* tensor) {
  Op op;
  op.rank = 3;
  op.step = step;
  op.micro_batch = 1;
  op.layer = 2;
  op.tensor = tensor;
  return op;
}

struct Audited {
  explicit Audited(FastSlip slip = FastSlip::none) : vendor({.tf32 = false, .slip = slip}), audit(vendor, false) {
    lane.arithmetic = &audit;
  }
  Floats product(Lane on) {
    const Floats a = drawn(24 * 300, 1), b = drawn(300 * 40, 2), bias = drawn(40, 3);
    Floats c(24 * 40);
    kernels::gemm<float>(on, Trans::no, Trans::no, {a.data(), 24, 300, 300}, {b.data(), 300, 40, 40},
                         {c.data(), 24, 40, 40}, 100, {bias.data(), 40});
    return c;
  }
  // in_place: the sum takes the place of the first part.
  Floats sum(Lane on, bool in_place) {
    Floats first = drawn(500, 4), second = drawn(500, 5), third = drawn(500, 6), out(500);
    const TreePart parts[] = {{{1, 0}, first.data(), 0}, {{0, 2}, second.data(), 1}, {{0, 3}, third.data(), 2}};
    Floats& to = in_place ? first : out;
    kernels::tree_sum(on, parts, 3, 4, {to.data(), 500}, 0.5f, 1);
    return to;
  }
  FastArithmetic vendor;
  NumericAudit audit;
  Lane lane;
};

TEST(NumericAudit, LetsTheContractsResultsStand) {
  for (const FastSlip slip : {FastSlip::none, FastSlip::sums_in_bf16, FastSlip::ring_in_bf16}) {
    Audited audited(slip);
    EXPECT_TRUE(same_bits(audited.product(audited.lane), audited.product({})));
    for (const bool in_place : {false, true})
      EXPECT_TRUE(same_bits(audited.sum(audited.lane, in_place), audited.sum({}, in_place)));
  }
}

TEST(NumericAudit, CountsWhatItCompared) {
  Audited audited;
  audited.audit.at(op_of(5, "h.2.mlp.c_fc.weight"));
  audited.product(audited.lane);
  for (const bool in_place : {false, true}) audited.sum(audited.lane, in_place);
  const AuditReport& seen = audited.audit.report();
  EXPECT_EQ(seen.products.ops, 1u);
  EXPECT_EQ(seen.products.elements, 24u * 40);
  EXPECT_EQ(seen.sums.ops, 2u);
  EXPECT_EQ(seen.sums.elements, 2u * 500);
  EXPECT_EQ(seen.over(), 0u);
  EXPECT_FALSE(seen.first);
  EXPECT_GT(seen.products.worst, 0) << "it would prove nothing of equal bits";
  EXPECT_GT(seen.sums.worst, 0);
  EXPECT_LT(seen.products.worst, 1);
  EXPECT_STREQ(seen.products.worst_op.tensor, "h.2.mlp.c_fc.weight");
}

TEST(NumericAudit, NamesTheFirstLaunchOverItsBound) {
  Audited audited(FastSlip::last_k_left_out);
  audited.audit.at(op_of(5, "h.2.mlp.c_fc.weight"));
  audited.product(audited.lane);
  audited.audit.at(op_of(6, "later"));
  audited.product(audited.lane);
  audited.sum(audited.lane, false);
  const AuditReport& seen = audited.audit.report();
  ASSERT_TRUE(seen.first);
  EXPECT_EQ(seen.first->op.step, 5);
  EXPECT_EQ(seen.first->terms, 301);
  EXPECT_GT(seen.first->over, 0);
  EXPECT_EQ(seen.sums.over, 0u);
  const std::string text = describe(*seen.first);
  for (const char* part : {"product in compute", "rank 3", "step 5", "micro-batch 1", "layer 2",
                           "'h.2.mlp.c_fc.weight'", "element (0, 0) of (24, 40) over 301 terms", "the bound"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

// What a library made of the same parts is looked at, and not what the vendor's kernels would.
TEST(NumericAudit, LooksAtALibrarysSumWhereThereIsOne) {
  const Floats first = drawn(500, 4), second = drawn(500, 5), third = drawn(500, 6);
  const TreePart parts[] = {{{1, 0}, first.data(), 0}, {{0, 2}, second.data(), 1}, {{0, 3}, third.data(), 2}};
  for (const float factor : {0.3f, 1.0f}) {
    Floats library(500), out(500), alone(500);
    for (std::size_t i = 0; i < library.size(); ++i) library[i] = third[i] + first[i] + second[i];
    kernels::tree_sum({}, parts, 3, 4, {alone.data(), 500}, factor);
    for (const bool sound : {true, false}) {
      if (!sound) library[77] = third[77] + first[77];
      Audited audited(FastSlip::ring_in_bf16);  // by the kernels it would be far off
      kernels::tree_sum(audited.lane, parts, 3, 4, {out.data(), 500}, factor, 1, library.data());
      EXPECT_TRUE(same_bits(out, alone));
      const AuditReport& seen = audited.audit.report();
      EXPECT_EQ(seen.sums.over, sound ? 0u : 1u);
      EXPECT_GT(seen.sums.worst, 0);
      ASSERT_EQ(seen.first.has_value(), !sound);
      if (!sound) {
        EXPECT_EQ(seen.first->at.column, 77);
        EXPECT_EQ(seen.first->rows, 1);
        EXPECT_EQ(seen.first->columns, 500);
        EXPECT_EQ(seen.first->terms, factor == 1.0f ? 3 : 4) << "three parts, and a factor";
      }
    }
  }
}

TEST(NumericAudit, OfSeveralRanksAddUp) {
  Audited sound, late(FastSlip::ring_in_bf16), early(FastSlip::ring_in_bf16);
  sound.sum(sound.lane, false);
  late.audit.at(op_of(7, "late"));
  late.sum(late.lane, false);
  early.audit.at(op_of(4, "early"));
  early.sum(early.lane, false);
  AuditReport all;
  for (const Audited* one : {&sound, &late, &early}) add(all, one->audit.report());
  EXPECT_EQ(all.sums.ops, 3u);
  EXPECT_EQ(all.sums.elements, 1500u);
  EXPECT_EQ(all.sums.over, 2 * late.audit.report().sums.over);
  EXPECT_EQ(all.sums.worst, late.audit.report().sums.worst);
  EXPECT_EQ(all.products.ops, 0u);
  ASSERT_TRUE(all.first);
  EXPECT_EQ(all.first->op.step, 4);
}

TEST(NumericAudit, NamesASumOverItsBound) {
  Audited audited(FastSlip::ring_in_bf16);
  for (const bool in_place : {false, true}) audited.sum(audited.lane, in_place);
  audited.product(audited.lane);
  const AuditReport& seen = audited.audit.report();
  ASSERT_TRUE(seen.first);
  EXPECT_STREQ(seen.first->what, "sum");
  EXPECT_EQ(seen.products.over, 0u);
}

}  // namespace
}  // namespace seeksim::runtime
