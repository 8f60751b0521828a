// A matrix of Muon's is a tensor of Hugging Face's files, whatever lies between its rows here; and no shard ends
// inside.
#include "runtime/layout/matrices.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "runtime/layout/partition.h"
#include "runtime/model/weights.h"
#include "runtime/rules/bugs.h"
#include "tests/support/plans.h"

namespace seeksim::test {
namespace {

using namespace runtime;

ModelPlan gpt2() {
  ModelPlan m;
  m.layers = 2, m.width = 24, m.heads = 3, m.context = 4, m.vocab = 11;
  return m;
}

// Short last slabs, and one key head of two queries.
ModelPlan llama(int kv_heads, int experts = 0) {
  ModelPlan m;
  m.family = "llama";
  m.layers = 2, m.width = 24, m.heads = 6, m.kv_heads = kv_heads, m.ffn = 21, m.context = 4, m.vocab = 11;
  m.tied = false;
  m.experts.count = experts;
  m.experts.per_token = 2;
  return m;
}

OptimizerPlan muon() {
  OptimizerPlan o;
  o.type = "Muon";
  return o;
}

// Numbers the matrices, writes each one's number into its elements, and reads them by tensors of the files.
void expect_files(const ModelPlan& model, std::size_t wanted) {
  const Parameters parameters(model, muon());
  std::vector<float> flat(std::size_t(parameters.size()), 0);
  std::map<float, std::pair<Index, double>> sizes;  // by number: elements, outputs per input
  float number = 0;
  for (const ParameterInfo& p : parameters.all()) {
    EXPECT_EQ(p.undivided, !p.matrices.empty());
    Index covered = 0;
    for (const Matrix& matrix : p.matrices) {
      number += 1;
      for (const Rows& rows : matrix.rows)
        for (Index i = rows.first * p.cols(); i < (rows.first + rows.count) * p.cols(); ++i)
          flat[std::size_t(p.offset + i)] = number;
      covered += matrix.count() * p.cols();
      sizes[number] = {matrix.count() * p.cols(), matrix.outputs_per_input};
    }
    EXPECT_EQ(covered, p.matrices.empty() ? 0 : p.size) << p.name;
  }
  EXPECT_EQ(sizes.size(), wanted);
  std::size_t seen = 0;
  for (const NamedTensor& tensor : to_hugging_face(parameters, model, flat)) {
    const float first = tensor.values.front();
    for (const float value : tensor.values) ASSERT_EQ(value, first) << tensor.name;
    const bool in_layer =
        tensor.name.find("h.") != std::string::npos || tensor.name.find("layers.") != std::string::npos;
    EXPECT_EQ(first != 0, in_layer && tensor.shape.size() == 2) << tensor.name;
    if (first == 0) continue;
    ++seen;
    const auto rows = double(tensor.shape[0]), cols = double(tensor.shape[1]);
    EXPECT_EQ(sizes.at(first).first, Index(tensor.values.size())) << tensor.name;
    EXPECT_DOUBLE_EQ(sizes.at(first).second, model.llama() ? rows / cols : cols / rows) << tensor.name;
  }
  EXPECT_EQ(seen, wanted);
}

TEST(Matrices, AreTheTensorsOfTheFiles) {
  expect_files(gpt2(), 2 * 4);
  for (const int kv_heads : {1, 2, 3, 6}) expect_files(llama(kv_heads), 2 * 7);
  expect_files(llama(2, 4), 2 * (4 + 1 + 4 * 3));
}

TEST(Matrices, ThoseThatAreFrozenAreNobodys) {
  ModelPlan model = gpt2();
  model.frozen = {"*.c_fc.weight"};
  const Parameters parameters(model, muon());
  for (const ParameterInfo& p : parameters.all())
    EXPECT_EQ(p.undivided, !p.frozen && p.shape.size() == 2 && p.module > 0) << p.name;
}

TEST(Matrices, OtherOptimizersHaveNone) {
  const Parameters parameters(gpt2(), OptimizerPlan{});
  for (const ParameterInfo& p : parameters.all()) {
    EXPECT_TRUE(p.matrices.empty()) << p.name;
    EXPECT_FALSE(p.undivided) << p.name;
  }
}

TEST(Matrices, NoShardEndsInsideOfOne) {
  for (const ModelPlan& model : {gpt2(), llama(2), llama(2, 4)}) {
    const Parameters parameters(model, muon()), cut(model, OptimizerPlan{});
    int moved = 0;
    for (int members = 1; members <= 40; ++members) {
      const Partition partition(parameters, members), even(cut, members);
      Index end = 0;
      for (int member = 0; member < members; ++member) {
        const ShardInfo shard = partition.shard(member);
        ASSERT_EQ(shard.offset, end);
        ASSERT_GE(shard.size, 0);
        end += shard.size;
        moved += shard.offset != even.shard(member).offset;
        for (const ParameterPiece& piece : partition.pieces(shard)) {
          const Index each = piece.parameter->experts > 0 ? piece.parameter->slab : piece.parameter->size;
          if (!piece.parameter->undivided) continue;
          ASSERT_EQ(piece.first % each, 0) << piece.parameter->name;
          ASSERT_EQ(piece.size % each, 0) << piece.parameter->name;
        }
      }
      ASSERT_EQ(end, parameters.trainable_size());
    }
    EXPECT_GT(moved, 0);
    Partition planted(parameters, 3);
    planted.plant({.bug = Bug::muon_cuts_matrices});
    for (int member = 0; member < 3; ++member)
      EXPECT_EQ(planted.shard(member).offset, Partition(cut, 3).shard(member).offset);
  }
}

}  // namespace
}  // namespace seeksim::test
