// What says that two runs train the same: the digest of a definition, which every checkpoint on a disk has.
#include "runtime/decide/run_state.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

#include "tests/support/plans.h"

namespace seeksim::test {
namespace {

Definition llama_with_experts() {
  Definition d = tiny_plan().definition;
  d.model.family = "llama";
  d.model.experts.count = 4;
  d.model.experts.per_token = 2;
  return d;
}

// Another digest of the same definition: a checkpoint of yesterday is refused as that of another run.
TEST(DefinitionDigest, IsThatOfCheckpointsOnDisks) {
  EXPECT_EQ(definition_digest(tiny_plan().definition, 0), 344197706059915997u);
  EXPECT_EQ(definition_digest(llama_with_experts(), 0), 10827027087671859648u);
}

TEST(DefinitionDigest, TellsValuesThatAreSwapped) {
  std::set<std::uint64_t> digests;
  for (const auto& [layers, width, context, vocab] :
       std::vector<std::array<int, 4>>{{2, 8, 16, 32}, {8, 2, 16, 32}, {2, 8, 32, 16}, {8, 2, 32, 16}}) {
    Definition d = tiny_plan().definition;
    d.model.layers = layers;
    d.model.width = width;
    d.model.context = context;
    d.model.vocab = vocab;
    digests.insert(definition_digest(d, 0));
  }
  EXPECT_EQ(digests.size(), 4u);
}

}  // namespace
}  // namespace seeksim::test
