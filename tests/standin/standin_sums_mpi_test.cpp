// NCCL's own reductions in `fast` arithmetic, on the stand-in, whose rings do not add in the contract's order.
// Gradients are their sums, and each is compared with the contract's on the processes that made it.
#include "tests/support/processes.h"

namespace seeksim {
namespace {

struct Case {
  const char* name;
  int ranks;
  std::vector<std::string> sets;
};
std::ostream& operator<<(std::ostream& out, const Case& of) { return out << of.name; }

class MpiStandinSums : public Mpi, public testing::WithParamInterface<Case> {
 protected:
  Ran fast(const Case& of, const std::string& set = "sweep=[]", const std::string& environment = "X=") {
    std::vector<std::string> sets = of.sets;
    sets.insert(sets.begin(), "sweep=[]");
    sets.push_back(set);
    const std::string as_root = ::getuid() == 0 ? " --allow-run-as-root" : "";
    return shell("SEEKSIM_STANDIN_DELAYS=1 " + environment + " timeout 100 mpirun --oversubscribe" + as_root + " -np " +
                 std::to_string(of.ranks) + " " + arguments("equivalence/fast_within_bounds", sets) +
                 " --backend nccl --report " + in_quotes(folder() + "/nccl.json"));
  }
  Json seen() const { return report("nccl")["fast"]; }
};

TEST_P(MpiStandinSums, AreWithinTheirBounds) {
  const Ran ran = fast(GetParam());
  ASSERT_EQ(ran.status, 0) << ran.text;
  EXPECT_NE(ran.text.find("sums over replicas are NCCL's"), std::string::npos) << ran.text;
  const Json audit = seen();
  EXPECT_EQ(audit["compared_on"], "nccl");
  EXPECT_TRUE(audit["operands_are_canonical"].get<bool>());
  EXPECT_EQ(audit["sums"]["over"], 0);
  EXPECT_GT(audit["sums"]["elements"].get<int>(), 30'000) << "each parameter's gradient in each step";
  EXPECT_GT(audit["sums"]["worst_ratio"].get<double>(), 0) << "they were the contract's";
}

TEST_P(MpiStandinSums, AMistakeOfTheLibraryIsNamed) {
  const Ran ran = fast(GetParam(), "sweep=[]", "SEEKSIM_STANDIN_FORGETS=1");
  EXPECT_EQ(ran.status, 1) << ran.text;
  ASSERT_FALSE(seen()["first_over"].is_null());
  EXPECT_EQ(seen()["first_over"]["what"], "sum");
  EXPECT_EQ(seen()["products"]["over"], 0);
}

TEST_P(MpiStandinSums, AddendsRoundedToBf16AreNamed) {
  const Ran ran = fast(GetParam(), "bug=fast_ring_in_bf16");
  EXPECT_EQ(ran.status, 1) << ran.text;
  ASSERT_FALSE(seen()["first_over"].is_null());
  EXPECT_EQ(seen()["first_over"]["what"], "sum");
}

Case zero(const char* name, int stage, std::vector<std::string> more = {}) {
  more.insert(more.end(), {"deepspeed.zero_optimization.stage=" + std::to_string(stage), "world.ranks_per_node=3",
                           "batch_arithmetic=by_samples"});
  return {name, 3, std::move(more)};
}

INSTANTIATE_TEST_SUITE_P(
    Runs, MpiStandinSums,
    testing::Values(zero("Stage0", 0), zero("Stage1", 1), zero("Stage2InBf16", 2, {"deepspeed.bf16.enabled=true"}),
                    zero("Stage3Offloaded", 3, {"deepspeed.zero_optimization.offload_optimizer.device=cpu"})),
    [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace seeksim
